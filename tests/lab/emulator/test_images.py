"""The made-up image store."""

import pytest

from criproxy.cri import api_pb2 as cri
from criproxy.cri.runtime import RuntimeClient
from lab.emulator.images import normalise

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("reference", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("a/b", "docker.io/a/b:latest"),
        ("localhost/x", "localhost/x:latest"),
        ("reg.test:5000/a/b:1", "reg.test:5000/a/b:1"),
        (f"reg.test/x@{DIGEST}", f"reg.test/x@{DIGEST}"),
        (f"reg.test/x:1@{DIGEST}", f"reg.test/x@{DIGEST}"),
    ],
)
def test_references_get_their_full_form(reference: str, full: str) -> None:
    """Host, library and tag are filled in as every runtime does."""
    assert normalise(reference) == full


def spec(name: str) -> cri.ImageSpec:
    """Name an image."""
    return cri.ImageSpec(image=name)


async def test_an_image_lives_from_pull_to_removal(client: RuntimeClient) -> None:
    """Pulling twice gives one image; it is found by name and id; removing twice is no error."""
    pulled = [
        await client.call("PullImage", cri.PullImageRequest(image=spec("reg.test/x:1")), cri.PullImageResponse)
        for _ in range(2)
    ]
    identifier = pulled[0].image_ref
    assert pulled[1].image_ref == identifier

    for name in ("reg.test/x:1", identifier):
        status = await client.call("ImageStatus", cri.ImageStatusRequest(image=spec(name)), cri.ImageStatusResponse)
        assert (status.image.id, list(status.image.repo_tags)) == (identifier, ["reg.test/x:1"])
    for _ in range(2):
        await client.call("RemoveImage", cri.RemoveImageRequest(image=spec(identifier)), cri.RemoveImageResponse)

    status = await client.call("ImageStatus", cri.ImageStatusRequest(image=spec(identifier)), cri.ImageStatusResponse)
    assert not status.HasField("image")
    listed = await client.call("ListImages", cri.ListImagesRequest(), cri.ListImagesResponse)
    assert identifier not in {image.id for image in listed.images}


async def test_the_file_system_grows_with_images(client: RuntimeClient) -> None:
    """ImageFsInfo counts what is stored."""
    before = await client.call("ImageFsInfo", cri.ImageFsInfoRequest(), cri.ImageFsInfoResponse)
    await client.call("PullImage", cri.PullImageRequest(image=spec("y")), cri.PullImageResponse)

    after = await client.call("ImageFsInfo", cri.ImageFsInfoRequest(), cri.ImageFsInfoResponse)

    used = [info.image_filesystems[0].used_bytes.value for info in (before, after)]
    assert used[1] == 2 * used[0]
