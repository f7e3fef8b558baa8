"""Pure: replaces the registries in names of images by pseudonyms."""

import re
from typing import Any

_HOST = r"(?:(?:[A-Za-z0-9-]+\.)+[A-Za-z0-9-]+(?::\d{1,5})?|[A-Za-z0-9-]+:\d{1,5}|localhost)"
_LEADING_HOST = re.compile(rf"({_HOST})/")
_REFERENCE = re.compile(rf"(?<![\w./@:-])({_HOST})/[\w./*-]+(?::[\w.-]+|@sha256:[0-9a-f]+)")
"""The name of an image with a tag or digest, wherever it is."""
_NAMED = re.compile(rf"\bimages?\w*\\*[\"']?\s*[=:]\s*\\*[\"']?({_HOST})/", re.IGNORECASE)


class Registries:
    """The registries that are known so far."""

    def __init__(self) -> None:
        self._pseudonyms: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    @property
    def known(self) -> frozenset[str]:
        """All registries that are replaced."""
        return frozenset(self._pseudonyms)

    def learn(self, registry: str) -> None:
        """Give *registry* a pseudonym, unless it has one."""
        if registry not in self._pseudonyms:
            self._pseudonyms[registry] = f"registry-{len(self._pseudonyms) + 1}"
            longest_first = sorted(self._pseudonyms, key=len, reverse=True)
            names = "|".join(map(re.escape, longest_first))
            self._pattern = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")

    def learn_json(self, value: Any, *, is_image: bool = False) -> None:  # noqa: ANN401 - JSON
        """Learn the registries of all images in JSON values, or in those of a policy file."""
        if isinstance(value, dict):
            for key, item in value.items():
                self.learn_json(item, is_image=is_image or "image" in str(key).lower())
        elif isinstance(value, list):
            for item in value:
                self.learn_json(item, is_image=is_image)
        elif isinstance(value, str):
            if is_image and (found := _LEADING_HOST.match(value)):
                self.learn(found[1])
            self.learn_text(value)

    def learn_text(self, text: str) -> None:
        """Learn the registries of all names of images in *text*."""
        for registry in (*_REFERENCE.findall(text), *_NAMED.findall(text)):
            self.learn(registry)

    def replaced(self, text: str) -> str:
        """Return *text* with pseudonyms."""
        return self._pattern.sub(lambda found: self._pseudonyms[found[0]], text) if self._pattern else text

    def replaced_json(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """Return JSON values with pseudonyms."""
        if isinstance(value, dict):
            return {self.replaced(key): self.replaced_json(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.replaced_json(item) for item in value]
        return self.replaced(value) if isinstance(value, str) else value
