"""A container image made on the spot from the machine's static busybox, as a tar to import.

It needs no network, and the same machine makes the same digests.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_APPLETS = "sh ash cat echo sleep true false env id ls mkdir nc nproc ps sync taskset tail test touch wget".split()
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def build(
    busybox: Path,
    machine: str,
    names: Iterable[str],
    env: tuple[str, ...] = (),
    links: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Build the image whose only file is the static program *busybox*, with links for common commands.

    What is returned is a tar in OCI layout that `ctr images import` stores under each of *names*.

    Args:
        busybox: path of the program; it must not need shared libraries.
        machine: as ``uname -m`` says it; an unknown one is taken for amd64.
        names: of the image.
        env: variables beside PATH, such as ``A=1``.
        links: more symbolic links: where they lead, by their paths without a slash at the beginning.
    """
    commands = {f"bin/{name}": "busybox" for name in _APPLETS}
    layer = _tar({"bin/busybox": busybox.read_bytes()}, {**commands, **links})
    config = _json(
        {
            "architecture": _ARCHITECTURES.get(machine, "amd64"),
            "os": "linux",
            "config": {"Entrypoint": ["/bin/sleep", "1000000000"], "Env": ["PATH=/bin", *env]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [_descriptor(_LAYER, layer)],
        }
    )
    named = [{**_descriptor(_MANIFEST, manifest), "annotations": {"io.containerd.image.name": name}} for name in names]
    files = {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (manifest, config, layer)}
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = _json({"schemaVersion": 2, "manifests": named})
    return _tar(files)


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _tar(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, blob in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(blob), 0o755
            archive.addfile(member, io.BytesIO(blob))
        for name, target in sorted((links or {}).items()):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
            archive.addfile(member)
    return buffer.getvalue()
