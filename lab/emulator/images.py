"""The image service of the embedded runtime: a made-up store in which every pull succeeds, or fails as asked."""

import hashlib
import re
import time
from dataclasses import dataclass, field

from criproxy.cri import api_pb2 as cri
from lab.emulator.records.records import Refusal, not_found, unknown

_PATH = re.compile(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(r"[A-Za-z0-9.-]+(?::\d+)?|localhost")
SIZE_BYTES = 1_997_454
"""The size that every image claims to have."""
UNREACHABLE = "unreachable.test/"
"""The start of references whose registry does not answer."""
MOUNTPOINT = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"


def normalise(reference: str) -> str:
    """Return the full form of a reference, ``docker.io/library/busybox:latest`` for ``busybox``.

    Raises:
        Refusal: with containerd's text, for what is no reference.
    """
    name, at, digest = reference.partition("@")
    host, slash, path = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, path = "docker.io", name if slash else f"library/{name}"
    path, colon, tag = path.partition(":")
    tag_fine = bool(_TAG.fullmatch(tag)) if colon else True
    digest_fine = bool(_DIGEST.fullmatch(digest)) if at else True
    if not (name and _HOST.fullmatch(host) and _PATH.fullmatch(path) and tag_fine and digest_fine):
        why = ": repository name must be lowercase" if path != path.lower() else ""
        raise unknown(f'failed to parse image reference "{reference}": invalid reference format{why}')
    return f"{host}/{path}" + (f"@{digest}" if at else f":{tag or 'latest'}")


@dataclass(slots=True)
class ImageStore:
    """Images by id, each with the references that name it."""

    images: dict[str, set[str]] = field(default_factory=dict)

    def pull(self, reference: str) -> str:
        """Store what *reference* names and return its id."""
        name = normalise(reference)
        if name.startswith(UNREACHABLE):
            raise _unreachable(reference, name)
        identifier = "sha256:" + hashlib.sha256(name.encode()).hexdigest()
        self.images.setdefault(identifier, set()).add(name)
        return identifier

    def resolve(self, reference: str) -> str | None:
        """Return the id of a stored image, by its id (with or without ``sha256:``) or by a name."""
        for identifier in (reference, f"sha256:{reference}"):
            if identifier in self.images:
                return identifier
        try:
            name = normalise(reference)
        except Refusal:
            return None
        return next((identifier for identifier, names in self.images.items() if name in names), None)

    def required(self, reference: str) -> str:
        """Return the id of a stored image; a Refusal in containerd's words where there is none."""
        identifier = self.resolve(reference)
        if identifier is None:
            raise not_found().within(f'failed to resolve image "{reference}"')
        return identifier

    def describe(self, identifier: str) -> cri.Image:
        """Return the message about one stored image."""
        names = sorted(self.images[identifier])
        tags = [name for name in names if "@" not in name]
        digests = [name.rpartition(":")[0] + "@" + identifier for name in tags]
        digests += [name for name in names if "@" in name]
        spec = cri.ImageSpec(image=names[0])
        return cri.Image(id=identifier, repo_tags=tags, repo_digests=digests, size=SIZE_BYTES, spec=spec)


class ImageService:
    """One coroutine per method of runtime.v1.ImageService."""

    def __init__(self, store: ImageStore) -> None:
        self._store = store

    async def list_images(self, request: cri.ListImagesRequest) -> cri.ListImagesResponse:
        """Serve ListImages; the filter is one reference."""
        wanted = request.filter.image.image
        found = [self._store.resolve(wanted)] if wanted else list(self._store.images)
        return cri.ListImagesResponse(images=[self._store.describe(identifier) for identifier in found if identifier])

    async def image_status(self, request: cri.ImageStatusRequest) -> cri.ImageStatusResponse:
        """Serve ImageStatus: an unknown image is an empty answer, not an error."""
        identifier = self._store.resolve(request.image.image)
        return cri.ImageStatusResponse(image=self._store.describe(identifier) if identifier else None)

    async def pull_image(self, request: cri.PullImageRequest) -> cri.PullImageResponse:
        """Serve PullImage."""
        return cri.PullImageResponse(image_ref=self._store.pull(request.image.image))

    async def remove_image(self, request: cri.RemoveImageRequest) -> cri.RemoveImageResponse:
        """Serve RemoveImage: an unknown image is no error."""
        identifier = self._store.resolve(request.image.image)
        if identifier:
            del self._store.images[identifier]
        return cri.RemoveImageResponse()

    async def image_fs_info(self, request: cri.ImageFsInfoRequest) -> cri.ImageFsInfoResponse:
        """Serve ImageFsInfo."""
        used = cri.FilesystemUsage(
            timestamp=time.time_ns(),
            fs_id=cri.FilesystemIdentifier(mountpoint=MOUNTPOINT),
            used_bytes=cri.UInt64Value(value=SIZE_BYTES * len(self._store.images)),
            inodes_used=cri.UInt64Value(value=40 * len(self._store.images)),
        )
        return cri.ImageFsInfoResponse(image_filesystems=[used])


def _unreachable(reference: str, name: str) -> Refusal:
    host, _, path = name.partition("/")
    repository, _, tag = path.rpartition(":")
    return unknown(
        f'failed to pull and unpack image "{reference}": failed to resolve reference "{reference}": failed to do '
        f'request: Head "https://{host}/v2/{repository}/manifests/{tag}": dial tcp: lookup {host}: no such host'
    )
