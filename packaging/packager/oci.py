"""Writes a container image as an archive in the OCI layout: layers from a tree, configuration, manifest, index.

See https://github.com/opencontainers/image-spec. The same tree gives the same bytes.
"""

import gzip
import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packager.source import date_s

_TYPE = "application/vnd.oci.image"
_COMPRESSION = 4
"""Of gzip: 3 % more bytes than with 6, in half of the time."""


@dataclass(frozen=True, slots=True)
class Image:
    """What an image is, besides its files."""

    name: str
    """With a tag: containerd imports the image under this name."""
    architecture: str
    config: Mapping[str, Any]
    """What is started, as the OCI specification has it."""
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Blob:
    data: bytes
    kind: str
    digest: str
    """Of *data*, in hexadecimal digits."""

    @classmethod
    def of(cls, data: bytes, kind: str) -> "_Blob":
        return cls(data, kind, _sha256(data))

    def described(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
        return {"mediaType": self.kind, "digest": f"sha256:{self.digest}", "size": len(self.data), **more}


def write(archive: Path, image: Image, root: Path, layers: Sequence[Iterable[Path]]) -> None:
    """Write *image* to the file *archive*; each of the *layers* names files of the tree *root*."""
    pressed, diff_ids = [], []
    for paths in layers:
        layer = _layer(root, paths)
        diff_ids.append(f"sha256:{_sha256(layer)}")
        pressed.append(_Blob.of(gzip.compress(layer, _COMPRESSION, mtime=0), f"{_TYPE}.layer.v1.tar+gzip"))
    config = _json(_config(image, diff_ids), f"{_TYPE}.config.v1+json")
    manifest = _manifest(image, config, pressed)
    index = _index(image, manifest)
    files = {"oci-layout": _bytes({"imageLayoutVersion": "1.0.0"}), "index.json": _bytes(index)}
    files |= {f"blobs/sha256/{blob.digest}": blob.data for blob in (config, manifest, *pressed)}
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as written:
        for folder in ("blobs", "blobs/sha256"):
            written.addfile(_member(folder, tarfile.DIRTYPE, 0o755))
        for name, data in sorted(files.items()):
            member = _member(name, tarfile.REGTYPE, 0o644)
            member.size = len(data)
            written.addfile(member, io.BytesIO(data))


def _layer(root: Path, paths: Iterable[Path]) -> bytes:
    """A tar archive with *paths*, and with the folders in which they are."""
    chosen = {path.relative_to(root) for path in paths}
    chosen |= {parent for path in chosen for parent in path.parents if parent != Path()}
    when_s = date_s()
    with tempfile.TemporaryFile() as raw:
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as written:
            for path in sorted(chosen):
                member = written.gettarinfo(root / path, str(path))
                member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
                member.mtime = when_s
                if member.isfile():
                    with (root / path).open("rb") as content:
                        written.addfile(member, content)
                else:
                    written.addfile(member)
        raw.seek(0)
        return raw.read()


def _config(image: Image, diff_ids: list[str]) -> dict[str, Any]:
    created = _created()
    return {
        "created": created,
        "architecture": image.architecture,
        "os": "linux",
        "config": {**image.config, "Labels": dict(image.annotations)},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created": created, "created_by": "make package"} for _ in diff_ids],
    }


def _manifest(image: Image, config: _Blob, layers: list[_Blob]) -> _Blob:
    content = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": config.described(),
        "layers": [layer.described() for layer in layers],
        "annotations": {"org.opencontainers.image.created": _created(), **image.annotations},
    }
    return _json(content, f"{_TYPE}.manifest.v1+json")


def _index(image: Image, manifest: _Blob) -> dict[str, Any]:
    names = {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": image.name.rpartition(":")[2]}
    platform = {"architecture": image.architecture, "os": "linux"}
    listed = manifest.described(annotations=names, platform=platform)
    return {"schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": [listed]}


def _member(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.mtime = kind, mode, date_s()
    return member


def _created() -> str:
    return datetime.fromtimestamp(date_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(content: dict[str, Any], kind: str) -> _Blob:
    return _Blob.of(_bytes(content), kind)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _bytes(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
