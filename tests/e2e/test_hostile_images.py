"""What an image with symbolic links does to the mounts of HAMi-core: docs/vgpu.md says it, and runc decides.

The library is a text file here: what counts is whether a program that looks for it finds it.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.classes.vgpu_profiles import Profile, Vgpu, annotations_of
from criproxy.devices.evidence.device_request import Response, joined
from criproxy.devices.plugin.enforcement import EnforcementBuilder, HamiPaths, enforced_by, with_enforcement
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.e2e.device_nodes import WITHOUT_DRIVER
from tests.e2e.scene import ALL, Scene, proxied
from tests.e2e.test_devices import inside

HOSTILE = "criproxy.test/hostile:1"
CARD = "criproxyhostile0"
NODES = {f"/dev/{CARD}": (WITHOUT_DRIVER, 8)}
RESOURCE = "criproxy.io/e2e-8g"
PROFILE = Profile(name="e2e-8g", kind="e2e", memory_mib=8192, enforce=("hami-core", "watch"))
VGPU = Vgpu(id=f"{CARD}/e2e-8g/0", card=CARD, profile="e2e-8g", memory_mib=8192, cores_percent=0)
LIBRARY, LISTED = "the library", "/usr/local/vgpu/libvgpu.so"
PRELOAD = "etc/ld.so.preload"
NOT_THERE = "No such file or directory"
ELSEWHERE = Path("/elsewhere-of-criproxy")
POLICY = f"""policy: static
reservedCpus: "{min(ALL)}"
devices:
  classes:
    - name: e2e
      resources: [test.criproxy.io/card]
      idFormat: index
      nodes: {{perDevice: ["/dev/criproxyhostile{{index}}"]}}
  plugin:
    advertise: [{{class: e2e, resource: test.criproxy.io/card}}]
    profiles: [{{name: e2e-8g, class: e2e, memory: 8192Mi, count: 1}}]
"""


@dataclass(slots=True)
class Node:
    """A node with HAMi-core, and an image that somebody else has made."""

    scene: Scene
    containerd: PrivateContainerd
    paths: HamiPaths
    folder: Path
    """For volumes of pods."""

    def image(self, links: Mapping[str, str], env: tuple[str, ...] = ()) -> str:
        """Have an image with these symbolic links and variables; without them, it is that of other tests."""
        if not links and not env:
            return IMAGE
        self.containerd.import_image(HOSTILE, links=links, env=env)
        return HOSTILE

    @asynccontextmanager
    async def running(self, image: str, volume: str = "") -> AsyncIterator[str]:
        """Run a container with the vGPU, as the device plugin allocates it, and with a *volume* of its pod: its id."""
        found = enforced_by(PROFILE, VGPU, EnforcementBuilder(resource=RESOURCE, hami=self.paths), lambda _: True)
        response = joined(Response(), RESOURCE, [VGPU.id])
        response = replace(response, annotations={**response.annotations, **annotations_of(VGPU)})
        response = with_enforcement(response, found)
        pod = PodSpec("hostile", (ContainerSpec("c0", image, annotations=response.annotations),))

        def mount(config: api.ContainerConfig) -> None:
            for each in response.mounts:
                config.mounts.add(container_path=each.container_path, host_path=each.host_path, readonly=each.read_only)
            if volume:
                config.mounts.add(container_path=volume, host_path=str(self.folder))

        ran = await self.scene.create(pod, mount)
        try:
            await self.scene.kubelet.start(ran.container_id)
            yield ran.container_id
        finally:
            await self.scene.remove(ran)

    async def mounted(self, key: str, source: str) -> list[str]:
        """Where in the container a file or folder of HAMi-core is mounted."""
        lines = (await inside(self.scene, key, "cat", "/proc/self/mountinfo")).splitlines()
        words = [line.split() for line in lines]
        return [each[4] for each in words if each[3].endswith(source)]


@pytest.fixture
def hami(tmp_path: Path) -> HamiPaths:
    """Return HAMi-core on the host."""
    paths = HamiPaths(
        library=str(tmp_path / "hami/libvgpu.so"),
        preload=str(tmp_path / "hami/ld.so.preload"),
        containers=str(tmp_path / "hami/containers"),
        lock=str(tmp_path / "hami/vgpulock"),
    )
    for folder in (Path(paths.containers) / VGPU.file_name, Path(paths.lock)):
        folder.mkdir(parents=True)
    Path(paths.library).write_text(LIBRARY)
    Path(paths.preload).write_text(LISTED)
    return paths


@pytest.fixture
async def node(tmp_path: Path, containerd: PrivateContainerd, hami: HamiPaths, cards: None) -> AsyncIterator[Node]:
    """Criproxy in front of containerd; other tests compare what containerd says of its images."""
    (volume := tmp_path / "volume").mkdir()
    listed = containerd.call("ListImages", api.ListImagesRequest(), api.ListImagesResponse).images
    before = {each.id for each in listed}
    async with asyncio.timeout(120), proxied(tmp_path, containerd, POLICY) as scene:
        yield Node(scene, containerd, hami, volume)
    images = containerd.call("ListImages", api.ListImagesRequest(), api.ListImagesResponse).images
    for each in images:
        if each.id not in before:  # also those whose name another one has got
            remove = api.RemoveImageRequest(image=api.ImageSpec(image=each.id))
            containerd.call("RemoveImage", remove, api.RemoveImageResponse)


async def found(node: Node, key: str) -> tuple[str, str]:
    """What a program reads that looks for the list of libraries, and for the library."""
    return (await inside(node.scene, key, "cat", "/etc/ld.so.preload"), await inside(node.scene, key, "cat", LISTED))


LIST = "/etc/ld.so.preload"
LINKS = {
    "no link": ({}, "", LIST, (LISTED, LIBRARY)),
    "absolute": ({PRELOAD: "/opt/elsewhere"}, "", "/opt/elsewhere", (LISTED, LIBRARY)),
    "out of the root": ({PRELOAD: f"../../../../../..{ELSEWHERE}"}, "", str(ELSEWHERE), (LISTED, LIBRARY)),
    "a folder above": ({"etc": "/data"}, "", "/data/ld.so.preload", (LISTED, LIBRARY)),
    "above the library": ({"usr/local": "/opt"}, "", LIST, (LISTED, LIBRARY)),
    # Short paths are mounted first: a link that leads below a longer one takes the list, or the library, away.
    "below a mount of the runtime": ({PRELOAD: "/dev/shm/list"}, "", "", (NOT_THERE, LIBRARY)),
    "below a volume": ({PRELOAD: "/a/long/way/list"}, "/a/long/way", "", (NOT_THERE, LIBRARY)),
    "the library below a volume": ({"usr/local/vgpu": "/a/b/c/d/it"}, "/a/b/c/d", LIST, (LISTED, NOT_THERE)),
    "our folder over our list": ({"usr/local/vgpu": "/etc"}, "", "", (NOT_THERE, LIBRARY)),
}
"""Links of an image, a volume of the pod, where the list is mounted, and what is found of the list and the library."""


async def test_links_lead_within_the_container(node: Node) -> None:
    """A mount lands where a link of the image leads, below the container's root."""
    for title, (links, volume, where, expected) in LINKS.items():
        async with node.running(node.image(links), volume) as key:
            assert not where or await node.mounted(key, "/hami/ld.so.preload") == [where], title
            for text, part in zip(await found(node, key), expected, strict=True):
                assert part in text, title
    assert not await asyncio.to_thread(ELSEWHERE.exists)


async def test_a_link_can_be_removed(node: Node) -> None:
    """A mount cannot be removed from within the container, but a link to it can."""
    async with node.running(node.image({PRELOAD: "/opt/elsewhere"})) as key:
        await inside(node.scene, key, "/bin/busybox", "rm", "/etc/ld.so.preload")
        assert NOT_THERE in (await found(node, key))[0]

        assert "busy" in await inside(node.scene, key, "/bin/busybox", "rm", LISTED)
        assert (await found(node, key))[1] == LIBRARY


async def test_links_that_runc_refuses(node: Node) -> None:
    """The container does not start, and the message says why."""
    for target, why in (
        ("/proc/self/attr/current", "inside /proc"),
        ("ld.so.preload", "too many levels of symbolic links"),
    ):
        with pytest.raises(RuntimeCallError, match=why):
            async with node.running(node.image({PRELOAD: target})):
                pass


async def test_variables_of_the_image_stay(node: Node) -> None:
    """The runtime adds them to the request: criproxy overrides those that it sets, and cannot remove others."""
    image = node.image({}, ("CUDA_DEVICE_MEMORY_LIMIT_0=99999m", "GPU_CORE_UTILIZATION_POLICY=disable"))
    async with node.running(image) as key:
        seen = (await inside(node.scene, key, "env")).splitlines()

    assert "CUDA_DEVICE_MEMORY_LIMIT_0=8192m" in seen
    assert "GPU_CORE_UTILIZATION_POLICY=disable" in seen
