"""The image that is made on the spot."""

import io
import json
import tarfile
from pathlib import Path

from lab.containerd import busybox


def test_an_image_is_the_same_every_time(tmp_path: Path) -> None:
    """The same program gives the same digests, another program others."""
    program = tmp_path / "busybox"
    program.write_bytes(b"one")
    first, second = (busybox.build(program, "x86_64") for _ in range(2))
    program.write_bytes(b"two")

    assert first == second
    assert busybox.build(program, "x86_64").manifest != first.manifest


def test_every_digest_in_the_archive_is_right(tmp_path: Path) -> None:
    """The index names the manifest under each name, the manifest names config and layer, and all are there."""
    program = tmp_path / "busybox"
    program.write_bytes(b"program")
    archive = busybox.build(program, "aarch64").archive("reg.test/a:1", "reg.test/b:1")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {member.name: _read(tar, member) for member in tar}
    index = json.loads(files["index.json"])
    blobs = {name.rpartition("/")[2]: blob for name, blob in files.items() if name.startswith("blobs/")}
    manifest = json.loads(blobs[index["manifests"][0]["digest"].partition(":")[2]])
    config = json.loads(blobs[manifest["config"]["digest"].partition(":")[2]])

    names = [entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]]
    assert names == ["reg.test/a:1", "reg.test/b:1"]
    assert {f"sha256:{name}" for name in blobs} == {busybox.digest(blob) for blob in blobs.values()}
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
    assert config["architecture"] == "arm64"


def test_the_layer_has_the_program_and_its_links(tmp_path: Path) -> None:
    """``/bin/sh`` and others lead to the one program, which can be run."""
    program = tmp_path / "busybox"
    program.write_bytes(b"program")
    with tarfile.open(fileobj=io.BytesIO(busybox.build(program, "x86_64").layer)) as tar:
        assert _read(tar, tar.getmember("bin/busybox")) == b"program"
        assert tar.getmember("bin/busybox").mode == 0o755
        assert tar.getmember("bin/sh").linkname == "busybox"


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file
    return file.read()
