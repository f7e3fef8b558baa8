"""A criproxy whose runtime is another criproxy: two of them place the same containers, and that is said."""

from pathlib import Path

import pytest

from criproxy.daemon.behind import KubeletCpus
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions
from tests.addresses import free_address
from tests.daemons import Serve, until
from tests.node.world import World


@pytest.mark.parametrize(("policy", "way"), [("none", "direct"), ("static", "link")])
async def test_a_criproxy_behind_is_told(tmp_path: Path, policy: str, way: str) -> None:
    """In log and status, whichever policy that one has and whatever path leads to it; calls pass all the same."""
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.mkdir()
    outer.mkdir()
    behind = Serve(inner, policy=f"policy: {policy}\n", cpus="0-3")
    path = behind.socket if way == "direct" else outer / "runtime.sock"
    front = Serve(outer, "--runtime-endpoint", f"unix://{path}", policy="policy: static\n", cpus="0-3")
    front.runtime.symlink_to(behind.socket)
    async with EmbeddedRuntime(behind.runtime), behind, front, front.client() as client:
        await front.logged("the runtime is another criproxy")
        assert "criproxy-behind" in await front.notices()
        assert "criproxy-behind" not in await behind.notices()
        assert (await client.version()).runtime_name == "criproxy-sim"


async def test_http_for_everybody_is_in_the_log(tmp_path: Path) -> None:
    """The daemon starts, and says that nobody is asked who they are."""
    address = free_address("0.0.0.0")
    async with EmbeddedRuntime(tmp_path / "runtime.sock"), Serve(tmp_path, "--http", address) as serve:
        await serve.logged("serving metrics and health")
        assert "--http is open to every client that can reach this node" in serve.log.read_text()


async def test_cpus_that_only_the_kubelet_reserves_are_told(tmp_path: Path) -> None:
    """A note of `status --check`, which is no problem; with a policy that reserves the same it is gone."""
    config = tmp_path / "var/lib/kubelet/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text('reservedSystemCPUs: "0,3"\n')
    text = "Note: the kubelet reserves CPUs 0,3 (reservedSystemCPUs), but this policy reserves CPU 0: pods also run on"
    serve = Serve(tmp_path, policy='policy: static\nreservedCpus: "0"\n', cpus="0-3")

    async def is_told(wanted: bool) -> bool:
        return ("kubelet-reserved" in await serve.notices()) is wanted

    async with EmbeddedRuntime(tmp_path / "runtime.sock"), serve:
        await until(lambda: is_told(True))
        status, output = await serve.command("status", "--check")
        assert (status, text in output.replace("\n", " ")) == (0, True), output

        await serve.reload('policy: static\nreservedCpus: "0,3"\n')
        await until(lambda: is_told(False))


async def test_what_is_unknown_of_the_kubelet_is_told(tmp_path: Path) -> None:
    """What it reserved when its configuration could be read counts on, and why it cannot be read is said beside it."""
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
    program = "/usr/local/Ascend/Ascend-Docker-Runtime/ascend-docker-runtime"
    runtime = EmbeddedRuntime(tmp_path / "runtime.sock", RuntimeOptions(program=program))
    serve = Serve(tmp_path, policy="policy: static\ndevices:\n  classes: [ascend]\n", cpus="0-3")

    async def is_told() -> bool:
        return "devices-open" in await serve.notices()

    async with runtime, serve:
        await until(is_told)
        status, output = await serve.command("status", "--check")
        await serve.reload('policy: static\ndevices:\n  classes: [{name: ascend, runtimes: ["*"]}]\n')
        assert not await is_told()

    said = " ".join(output.split())
    assert status == 1
    assert "the default runtime handler runs ascend-docker-runtime" in said
    assert 'runtimes: ["*"]' in said
