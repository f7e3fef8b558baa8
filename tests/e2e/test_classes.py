"""Classes through the whole chain: kubelet, criproxy, the controls service and containerd, as processes."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.cri.translate import pid_in
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.controls.test_service import Service
from tests.daemons import until
from tests.e2e.scene import ALL, Ran, Scene, proxied

BATCH, NORMAL = "3", "0"
"""As in /proc/PID/stat."""
_POLICY_FIELD = 40
SCRIPT = """read -r mine </proc/self/stat
echo "$mine" >/first.part
/bin/busybox mv /first.part /first
sleep 1000"""
"""Reads its own scheduling before it does anything else."""
POD = PodSpec("program", (ContainerSpec("c0", IMAGE, ("/bin/sh", "-c", SCRIPT)),))
PLACED = f'policy: static\nreservedCpus: "{min(ALL)}"\n'
WITH_CLASS = f"""{PLACED}
classes:
  batch:
    for: {{namespaces: ["*"]}}
    scheduling: {{policy: batch}}
"""


class Classes:
    """The scene, and the service beside it."""

    def __init__(self, scene: Scene, service: Service) -> None:
        self.scene, self.service = scene, service

    async def run(self, pod: PodSpec = POD) -> Ran:
        """Run a pod whose program says how it was scheduled first."""
        return await self.scene.run(pod)

    async def first(self, one: Ran) -> str:
        """The policy that the program had at its first instruction."""
        file = Path(f"/proc/{await self.pid(one)}/root/first")
        await until(file.exists, 0.01)
        return file.read_text().split()[_POLICY_FIELD]  # noqa: ASYNC240 (of a container)

    async def pid(self, one: Ran) -> int:
        """The first process of a container."""
        status = await self.scene.direct.container_status(one.container_id, verbose=True)
        pid = pid_in(status.info)
        assert pid is not None
        return pid

    async def has(self, one: Ran, policy: str) -> None:
        """Wait until the program has that policy now."""
        pid = await self.pid(one)

        def is_so() -> bool:
            return Path(f"/proc/{pid}/stat").read_text().split()[_POLICY_FIELD] == policy

        await until(is_so, 0.01)

    async def answers(self) -> None:
        """Wait until the service has applied everything, as the daemon knows."""

        async def is_so() -> bool:
            said = (await self.scene.serve.ask("status"))["controls"]
            return bool(said and said["state"] == "answers" and not said["pending"])

        await until(is_so)


@pytest.fixture
async def classes(tmp_path: Path, containerd: PrivateContainerd) -> AsyncIterator[Classes]:
    """Every container is scheduled as batch."""
    folder = tmp_path / "run" / "controls"
    folder.mkdir(parents=True)
    service, criproxy = Service(folder, Path("/")), proxied(tmp_path, containerd, WITH_CLASS)
    async with asyncio.timeout(120), service, criproxy as scene:
        found = Classes(scene, service)
        await found.answers()
        yield found


async def test_a_program_begins_with_its_class(classes: Classes) -> None:
    """Before its first instruction; so have the next ones, whose cgroups the runtime is not asked for.

    containerd makes the first process within its start, so that an overloaded machine may be some milliseconds late.
    """
    programs = [await classes.run(PodSpec(f"program-{number}", POD.containers)) for number in range(5)]
    begun = [await classes.first(one) for one in programs]

    assert begun.count(BATCH) > len(begun) // 2, begun


async def test_a_reload_changes_the_class(classes: Classes) -> None:
    """Of running containers, at once."""
    one = await classes.run()
    await classes.has(one, BATCH)

    await classes.scene.serve.reload(WITH_CLASS.replace("policy: batch", "nice: 5"))
    await classes.has(one, NORMAL)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restart_of_the_daemon_keeps_the_class(classes: Classes, how: signal.Signals) -> None:
    """The service is told all of it again, and changes nothing."""
    one = await classes.run()
    await classes.scene.restart(how)
    await classes.answers()

    status = await classes.service.applied()
    assert status is not None
    assert status["containers"]["applied"] == 1
    await classes.has(one, BATCH)


async def test_a_release_puts_everything_back_and_a_bypass_leaves_it(classes: Classes) -> None:
    """The end of the release brings it again; a release during the bypass puts it back, too."""
    one = await classes.run()
    await classes.has(one, BATCH)

    await classes.scene.release()
    await classes.has(one, NORMAL)
    await classes.scene.release("--undo")
    await classes.has(one, BATCH)

    await classes.scene.serve.command("bypass", "on")
    await classes.answers()
    await classes.has(one, BATCH)
    await classes.scene.release()
    await classes.has(one, NORMAL)


async def test_a_stopped_service_delays_one_start_and_catches_up(classes: Classes) -> None:
    """The containers start as if there were no classes, which is noted; they get them when it goes on."""
    classes.service.signal(signal.SIGSTOP)
    first = await classes.run()
    second = await classes.run(PodSpec("second", POD.containers))

    for name in ("program", "second"):
        told = await classes.scene.serve.ask("explain", container=f"default/{name}/c0")
        sentences = [sentence for event in told["events"] for sentence in event["sentences"]]
        assert any("it started before its class was set (batch)" in sentence for sentence in sentences)
        assert told["controls"]["service_state"] == "pending"
    assert await classes.first(first) == await classes.first(second) == NORMAL

    classes.service.signal(signal.SIGCONT)
    await classes.has(first, BATCH)
    await classes.has(second, BATCH)


async def test_a_killed_service_comes_back_and_gets_all_of_it(classes: Classes) -> None:
    """Meanwhile, what it has applied stays, new containers start without it, and the daemon says so."""
    first = await classes.run()
    await classes.has(first, BATCH)
    classes.service.signal(signal.SIGKILL)
    await classes.service.exit_status()
    second = await classes.run(PodSpec("second", POD.containers))
    assert await classes.first(second) == NORMAL
    assert "nobody answers on" in (await classes.scene.serve.notices())["controls"]
    await classes.has(first, BATCH)

    classes.service.forget()
    await classes.service.spawn()
    await classes.has(second, BATCH)
    await classes.answers()
    assert "controls" not in await classes.scene.serve.notices()


async def test_a_release_says_what_it_cannot_put_back(classes: Classes) -> None:
    """While the service is away, and while the daemon is; the service still has it then."""
    one = await classes.run()
    await classes.has(one, BATCH)
    await classes.scene.end()
    assert "no criproxy runs" in (await classes.scene.release())["not_put_back"]
    await classes.has(one, BATCH)
    await classes.scene.begin()
    await classes.has(one, NORMAL)
    assert (await classes.scene.release("--undo"))["not_put_back"] == ""
    await classes.has(one, BATCH)

    await classes.service.stop()

    async def is_known() -> bool:
        return bool((await classes.scene.serve.ask("status"))["controls"]["state"] == "absent")

    await until(is_known)
    assert "restart criproxy-controls.service" in (await classes.scene.release())["not_put_back"]


async def test_without_classes_nobody_is_asked(classes: Classes) -> None:
    """A file without classes puts all back and ends the connection; after a restart, there is none."""
    one = await classes.run()
    await classes.scene.serve.reload(PLACED)
    await classes.has(one, NORMAL)

    async def is_unused() -> bool:
        return (await classes.scene.serve.ask("status"))["controls"] is None

    await until(is_unused)
    classes.service.signal(signal.SIGSTOP)  # whoever asks it now waits
    await classes.scene.restart(signal.SIGTERM)
    assert await is_unused()
    classes.service.signal(signal.SIGCONT)


async def test_a_file_that_loses_its_classes_while_no_daemon_runs_puts_them_back(classes: Classes) -> None:
    """The state directory says that the service has something."""
    one = await classes.run()
    await classes.scene.end(signal.SIGKILL)
    classes.scene.serve.policy.write_text(PLACED)
    await classes.scene.begin()

    await classes.has(one, NORMAL)


async def test_a_restart_of_containerd_keeps_the_class(classes: Classes, containerd: PrivateContainerd) -> None:
    """Containers live on, and so do their classes."""
    one = await classes.run()
    await asyncio.to_thread(containerd.restart)

    async def goes_on() -> bool:
        with suppress(RuntimeCallError):  # connections end with it
            await classes.scene.client.call("Version", api.VersionRequest(), api.VersionResponse)
            return True
        return False

    await until(goes_on)
    second = await classes.run(PodSpec("second", POD.containers))

    await classes.has(second, BATCH)
    await classes.has(one, BATCH)


async def test_a_service_that_restarts_between_create_and_start_is_told_again(classes: Classes) -> None:
    """At once: it has to wait for the first process. While it is away, the start is noted as late."""
    first = await classes.scene.create(POD)
    await classes.answers()
    classes.service.signal(signal.SIGKILL)
    await classes.service.exit_status()

    async def is_known() -> bool:
        return bool((await classes.scene.serve.ask("status"))["controls"]["state"] == "absent")

    await until(is_known)
    await classes.scene.kubelet.start(first.container_id)
    assert (await classes.scene.serve.ask("status"))["controls"]["late_starts"] == 1

    second = await classes.scene.create(PodSpec("second", POD.containers))
    classes.service.forget()
    await classes.service.spawn()
    await classes.answers()
    await classes.scene.kubelet.start(second.container_id)
    await classes.has(second, BATCH)
    assert (await classes.scene.serve.ask("status"))["controls"]["late_starts"] == 1
