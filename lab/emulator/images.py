"""The image service of the embedded runtime: a made-up store in which every pull succeeds."""

import hashlib

from criproxy.cri import api_pb2 as cri
from lab.emulator.records.records import not_found

SIZE_BYTES = 1_997_454
"""The size that every image claims to have."""


class Images:
    """Images by id, each with the reference that names it; a coroutine for each method of runtime.v1.ImageService."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def pull(self, reference: str) -> str:
        """Store what *reference* names and return its id."""
        identifier = "sha256:" + hashlib.sha256(reference.encode()).hexdigest()
        self._names[identifier] = reference
        return identifier

    def required(self, reference: str) -> str:
        """Return the id of a stored image; a Refusal in containerd's words where there is none."""
        if (identifier := self._resolve(reference)) is None:
            raise not_found().within(f'failed to resolve image "{reference}"')
        return identifier

    def _resolve(self, reference: str) -> str | None:
        """Return the id of a stored image, by its id or its name."""
        return next((key for key, name in self._names.items() if reference in (key, name)), None)

    def _describe(self, identifier: str) -> cri.Image:
        name = self._names[identifier]
        return cri.Image(id=identifier, repo_tags=[name], size=SIZE_BYTES, spec=cri.ImageSpec(image=name))

    async def list(self, request: cri.ListImagesRequest) -> cri.ListImagesResponse:
        """Serve ListImages; the filter is one reference."""
        wanted = request.filter.image.image
        found = [self._resolve(wanted)] if wanted else self._names
        return cri.ListImagesResponse(images=[self._describe(identifier) for identifier in found if identifier])

    async def status(self, request: cri.ImageStatusRequest) -> cri.ImageStatusResponse:
        """Serve ImageStatus: an unknown image is an empty answer, not an error."""
        identifier = self._resolve(request.image.image)
        return cri.ImageStatusResponse(image=self._describe(identifier) if identifier else None)

    async def serve_pull(self, request: cri.PullImageRequest) -> cri.PullImageResponse:
        """Serve PullImage."""
        return cri.PullImageResponse(image_ref=self.pull(request.image.image))

    async def remove(self, request: cri.RemoveImageRequest) -> cri.RemoveImageResponse:
        """Serve RemoveImage: an unknown image is no error."""
        self._names.pop(self._resolve(request.image.image) or "", None)
        return cri.RemoveImageResponse()
