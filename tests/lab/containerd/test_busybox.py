"""The image that is made on the spot."""

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
