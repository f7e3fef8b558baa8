"""A criproxy whose runtime is another criproxy: two of them place the same containers, and that is said."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from criproxy.cli import main
from criproxy.cri.runtime import RuntimeClient
from criproxy.daemon.behind import KubeletCpus
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions
from tests.addresses import free_address
from tests.daemons import LIMIT_S, Serve
from tests.node.world import World
from tests.test_daemon import small_machine


def notices(serve: Serve) -> list[str]:
    """The kinds that `criproxy status` tells."""
    arguments = ["status", "--format", "json", "--control-socket", str(serve.control)]
    return [notice["kind"] for notice in json.loads(CliRunner().invoke(main, arguments).output)["notices"]]


@pytest.mark.parametrize("policy", ["none", "static"])
@pytest.mark.parametrize("way", ["direct", "link"])
async def test_a_criproxy_behind_is_told(tmp_path: Path, policy: str, way: str) -> None:
    """In log and status, whichever policy that one has and whatever path leads to it; calls pass all the same."""
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.mkdir()
    outer.mkdir()
    small_machine(tmp_path)
    (inner / "policy.yaml").write_text(f"policy: {policy}\n")
    options = ("--config", str(inner / "policy.yaml"), "--host-root", str(tmp_path))
    async with EmbeddedRuntime(inner / "runtime.sock"), Serve(inner, *options) as behind:
        (outer / "runtime.sock").symlink_to(behind.socket)
        path = behind.socket if way == "direct" else outer / "runtime.sock"
        (outer / "policy.yaml").write_text("policy: static\n")
        places = ("--config", str(outer / "policy.yaml"), "--host-root", str(tmp_path))
        front = Serve(outer, "--runtime-endpoint", f"unix://{path}", *places)
        async with front:
            async with asyncio.timeout(LIMIT_S):
                while "the runtime is another criproxy" not in front.log.read_text():  # noqa: ASYNC110 (nothing tells)
                    await asyncio.sleep(0.1)
            assert "criproxy-behind" in await asyncio.to_thread(notices, front)
            assert "criproxy-behind" not in await asyncio.to_thread(notices, behind)
            client = RuntimeClient(f"unix://{front.socket}", timeout_s=LIMIT_S)
            assert (await client.version()).runtime_name == "criproxy-sim"
            await client.close()


async def test_http_for_everybody_is_in_the_log(tmp_path: Path) -> None:
    """The daemon starts, and says that nobody is asked who they are."""
    address = free_address("0.0.0.0")
    async with EmbeddedRuntime(tmp_path / "runtime.sock"), Serve(tmp_path, "--http", address) as serve:
        async with asyncio.timeout(LIMIT_S):
            while "serving metrics and health" not in serve.log.read_text():  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.05)
        assert "--http is open to every client that can reach this node" in serve.log.read_text()


async def test_cpus_that_only_the_kubelet_reserves_are_told(tmp_path: Path) -> None:
    """A note of `status --check`, which is no problem; with a policy that reserves the same it is gone."""
    small_machine(tmp_path)
    config, policy = tmp_path / "var/lib/kubelet/config.yaml", tmp_path / "policy.yaml"
    config.parent.mkdir(parents=True)
    config.write_text('reservedSystemCPUs: "0,3"\n')
    policy.write_text('policy: static\nreservedCpus: "0"\n')
    text = "Note: the kubelet reserves CPUs 0,3 (reservedSystemCPUs), but this policy reserves CPU 0: pods also run on"
    options = ("--config", str(policy), "--host-root", str(tmp_path))
    async with EmbeddedRuntime(tmp_path / "runtime.sock"), Serve(tmp_path, *options) as serve:
        async with asyncio.timeout(LIMIT_S):
            while "kubelet-reserved" not in await asyncio.to_thread(notices, serve):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.2)
        arguments = ["status", "--check", "--control-socket", str(serve.control)]
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        assert (result.exit_code, text in result.output.replace("\n", " ")) == (0, True), result.output

        policy.write_text('policy: static\nreservedCpus: "0,3"\n')
        async with asyncio.timeout(LIMIT_S):
            while "kubelet-reserved" in await asyncio.to_thread(notices, serve):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.2)


async def test_what_is_unknown_of_the_kubelet_is_told(tmp_path: Path) -> None:
    """What it reserved when its configuration could be read counts on, and why it cannot be read is said beside it."""
    small_machine(tmp_path)
    config = tmp_path / "var/lib/kubelet/config.yaml"
    config.parent.mkdir(parents=True)
    unit = tmp_path / "etc/systemd/system/kubelet.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml\n")
    then = "; so nobody knows which CPUs the kubelet reserves"
    async with World(tmp_path) as world:
        cpus = KubeletCpus(tmp_path, world.controller)

        async def told(text: str) -> list[str]:
            config.write_text(text)
            await cpus.read()
            return [each.replace(str(tmp_path), "") for each in cpus.notes()]

        first = await told("reservedSystemCPUs: x-y\n")
        assert first == [f"the kubelet's reservedSystemCPUs is 'x-y', which is not a list of CPUs{then}"]
        (differs,) = await told('reservedSystemCPUs: "0,3"\n')
        assert differs.startswith("the kubelet reserves CPUs 0,3 (reservedSystemCPUs), but this policy reserves")
        assert await told("kubeReserved: {cpu: nonsense}\n") == [
            differs,
            f"the kubelet's kubeReserved.cpu is 'nonsense', which is not an amount of CPU{then}",
        ]
        unread = await told("- a\n")
        assert unread == [differs, f"cannot read /var/lib/kubelet/config.yaml: it is not a YAML mapping{then}"]
        config.unlink()
        await cpus.read()
        assert [*cpus.notes()] == [differs, f"cannot read /var/lib/kubelet/config.yaml: there is no such file{then}"]
        assert await told('reservedSystemCPUs: "0"\n') == []


async def test_a_default_runtime_that_gives_cards_to_whoever_asks_is_told(tmp_path: Path) -> None:
    """The class `ascend` hides cards only for handlers of its name, or of those in `runtimes`."""
    small_machine(tmp_path)
    policy = tmp_path / "policy.yaml"
    policy.write_text("policy: static\ndevices:\n  classes: [ascend]\n")
    options = ("--config", str(policy), "--host-root", str(tmp_path))
    program = "/usr/local/Ascend/Ascend-Docker-Runtime/ascend-docker-runtime"
    runtime = EmbeddedRuntime(tmp_path / "runtime.sock", RuntimeOptions(program=program))
    async with runtime, Serve(tmp_path, *options) as serve:
        async with asyncio.timeout(LIMIT_S):
            while "devices-open" not in await asyncio.to_thread(notices, serve):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.2)
        arguments = ["status", "--check", "--control-socket", str(serve.control)]
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        await serve.reload('policy: static\ndevices:\n  classes: [{name: ascend, runtimes: ["*"]}]\n')
        after = await asyncio.to_thread(notices, serve)

    said = " ".join(result.output.split())
    assert result.exit_code == 1
    assert "the default runtime handler runs ascend-docker-runtime" in said
    assert 'runtimes: ["*"]' in said
    assert "devices-open" not in after
