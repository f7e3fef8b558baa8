"""Devices on real containers: what the OCI specification has, what a process sees, and what updates leave of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.translate import cgroup_in
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.daemons import until
from tests.e2e.device_nodes import WITHOUT_DRIVER
from tests.e2e.scene import ALL, Scene, proxied
from tests.nri.cannot import IMAGES, cannot

GREEDY = "criproxy.test/greedy:1"
"""An image as those with CUDA are: it shows every GPU unless somebody says otherwise."""
CARD = "/dev/criproxy-e2e0"
NUMBERS = (WITHOUT_DRIVER, 7)
NODES = {CARD: NUMBERS}
ALLOWED, DENIED = "No such device or address", "Operation not permitted"
DEVICE_RULES = Path("/sys/fs/cgroup/devices")
POLICY = """policy: static
reservedCpus: "{reserved}"
devices:
  keepAccessOnUpdate: {keep}
  classes:
    - nvidia
    - name: e2e
      resources: [test.criproxy.io/card]
      idFormat: index
      nodes: {{perDevice: ["/dev/criproxy-e2e{{index}}"]}}
"""
GIVEN = {"devices.criproxy.io/test.criproxy.io_card": "0"}
"""As our own device plugin writes it."""


@asynccontextmanager
async def guarded(directory: Path, containerd: PrivateContainerd, *, keep: bool = True) -> AsyncIterator[Scene]:
    """Criproxy with rules about devices."""
    policy = POLICY.format(reserved=min(ALL), keep=str(keep).lower())
    async with asyncio.timeout(90), proxied(directory, containerd, policy) as scene:
        yield scene


async def run(scene: Scene, name: str, annotations: dict[str, str], image: str = IMAGE) -> str:
    """Run a pod of one container; its id."""
    return (await scene.run(PodSpec(name, (ContainerSpec("c0", image, annotations=annotations),)))).container_id


async def specification(scene: Scene, container_id: str) -> Any:  # noqa: ANN401 (JSON)
    """The OCI specification as containerd made it."""
    reply = await scene.direct.container_status(container_id, verbose=True)
    return json.loads(reply.info["info"])["runtimeSpec"]


async def inside(scene: Scene, container_id: str, *command: str) -> str:
    """What a command in the container prints, errors included."""
    request = api.ExecSyncRequest(container_id=container_id, cmd=command, timeout=20)
    reply = await scene.client.call("ExecSync", request, api.ExecSyncResponse, 30.0)
    return (reply.stdout + reply.stderr).decode()


async def process_env(scene: Scene, container_id: str) -> list[str]:
    """The variables of the container's first process. Until runc has become it, the kernel shows them to nobody."""

    async def shown() -> list[str]:
        said = await inside(scene, container_id, "cat", "/proc/1/environ")
        return [] if "Permission denied" in said else [env for env in said.split("\0") if env]

    envs: list[str] = await until(shown)
    return envs


@pytest.fixture
def greedy_image(containerd: PrivateContainerd) -> Iterator[str]:
    """`GREEDY`; other tests compare what containerd says of its images."""
    containerd.import_image(GREEDY, env=("NVIDIA_VISIBLE_DEVICES=all",))
    yield GREEDY
    remove = api.RemoveImageRequest(image=api.ImageSpec(image=GREEDY))
    containerd.call("RemoveImage", remove, api.RemoveImageResponse)


async def test_an_image_that_shows_all_shows_nothing(
    tmp_path: Path, containerd: PrivateContainerd, greedy_image: str
) -> None:
    """The hide value comes after that of the image, once, and is what the process has."""
    if containerd.is_front:
        pytest.skip(cannot(IMAGES))
    async with guarded(tmp_path, containerd) as scene:
        greedy = await run(scene, "greedy", {}, greedy_image)

        env = [each for each in (await specification(scene, greedy))["process"]["env"] if each.startswith("NVIDIA")]
        assert (env[-1], env.count("NVIDIA_VISIBLE_DEVICES=void")) == ("NVIDIA_VISIBLE_DEVICES=void", 1)
        process = await process_env(scene, greedy)
        assert [each for each in process if each.startswith("NVIDIA")][-1] == "NVIDIA_VISIBLE_DEVICES=void"


async def test_a_container_sees_the_card_that_it_was_given(
    tmp_path: Path, containerd: PrivateContainerd, cards: None
) -> None:
    """Its node is in the specification and can be opened; a container without an allocation has none."""
    async with guarded(tmp_path, containerd) as scene:
        owner, stranger = await run(scene, "owner", GIVEN), await run(scene, "stranger", {})

        nodes = (await specification(scene, owner))["linux"]["devices"]
        assert [(node["path"], node["major"], node["minor"]) for node in nodes] == [(CARD, *NUMBERS)]
        assert ALLOWED in await inside(scene, owner, "cat", CARD)
        assert not (await specification(scene, stranger))["linux"].get("devices")
        assert "No such file" in await inside(scene, stranger, "cat", CARD)


@pytest.mark.skipif(not DEVICE_RULES.is_dir(), reason="the rules of cgroup v2 are programs that nobody can add to")
@pytest.mark.parametrize(("keep", "left"), [(True, ALLOWED), (False, DENIED)])
async def test_a_card_survives_updates_of_the_cpuset(
    tmp_path: Path, containerd: PrivateContainerd, cards: None, keep: bool, left: str
) -> None:
    """After fifty updates and new device rules it can be opened; what only a hook had added is lost."""
    async with guarded(tmp_path, containerd, keep=keep) as scene:
        owner = await run(scene, "owner", GIVEN)
        await add_as_a_hook(scene, owner)
        assert ALLOWED in await inside(scene, owner, "cat", CARD)

        for number in range(50):
            cpus = str(sorted(ALL)[number % min(len(ALL), 2)])
            await scene.direct.update_container_resources(owner, api.LinuxContainerResources(cpuset_cpus=cpus))
        await write_rules_anew(scene, owner)

        assert left in await inside(scene, owner, "cat", CARD)


async def add_as_a_hook(scene: Scene, container_id: str) -> None:
    """Make the card's node in a running container and allow it, without the runtime's knowledge."""
    await inside(scene, container_id, "/bin/busybox", "mknod", CARD, "c", *map(str, NUMBERS))
    major, minor = NUMBERS
    (await rules_of(scene, container_id) / "devices.allow").write_text(f"c {major}:{minor} rw")


async def write_rules_anew(scene: Scene, container_id: str) -> None:
    """Set the device rules to what the specification says, as systemd does at a reload, and older runc did."""
    rules = (await specification(scene, container_id))["linux"]["resources"]["devices"]
    folder = await rules_of(scene, container_id)
    (folder / "devices.deny").write_text("a")
    for rule in rules:
        if rule["allow"]:
            numbers = (str(rule.get(name, "*")).replace("-1", "*") for name in ("major", "minor"))
            (folder / "devices.allow").write_text(f"{rule.get('type', 'a')} {':'.join(numbers)} {rule['access']}")


async def rules_of(scene: Scene, container_id: str) -> Path:
    """The folder of the container's device rules."""
    info = (await scene.direct.container_status(container_id, verbose=True)).info
    return DEVICE_RULES / cgroup_in(info).lstrip("/")
