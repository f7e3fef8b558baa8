"""Small kernel files are read whatever state they are in."""

from pathlib import Path

import pytest

from criproxy.errors import CriproxyError
from criproxy.host.files import mounts, numbered, parse_mask, read_ids, read_number, read_text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(b"0-3\n", "0-3", id="line"),
        pytest.param(b"\0\0\n", "", id="nul-bytes"),
        pytest.param(b"\xff", "\ufffd", id="no-text"),
    ],
)
def test_read_text(tmp_path: Path, content: bytes, text: str) -> None:
    """White space and NUL bytes around the text are dropped."""
    (tmp_path / "f").write_bytes(content)

    assert read_text(tmp_path / "f") == text


def test_what_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    """Missing files, folders and (null) are no answer, and the next file is asked."""
    (tmp_path / "null").write_text("(null)\n")
    (tmp_path / "next").write_text("1,3\n")

    assert read_text(tmp_path) is None
    assert read_ids(tmp_path / "missing", tmp_path / "null") is None
    assert read_ids(tmp_path / "missing", tmp_path / "null", tmp_path / "next") == frozenset({1, 3})
    assert read_ids(masks=[tmp_path / "missing"]) is None
    assert numbered(tmp_path / "missing", "cpu") == frozenset()


def test_masks(tmp_path: Path) -> None:
    """They are groups of 32 bits, the highest first, and are read if there is no list."""
    (tmp_path / "mask").write_text("00000001,80000000,00000005\n")
    (tmp_path / "list").write_text("7\n")

    assert read_ids(tmp_path / "missing", masks=[tmp_path / "mask"]) == frozenset({0, 2, 63, 64})
    assert read_ids(tmp_path / "list", masks=[tmp_path / "mask"]) == frozenset({7})


@pytest.mark.parametrize("is_mask", [False, True])
def test_nonsense_is_named(tmp_path: Path, is_mask: bool) -> None:
    """A file with something else in it is an error that names it."""
    odd = tmp_path / "odd"
    odd.write_text("zero\n")

    with pytest.raises(CriproxyError, match=f"cannot read {odd}: 'zero'"):
        read_ids(masks=[odd]) if is_mask else read_ids(odd)


@pytest.mark.parametrize(
    ("content", "number"), [("42\n", 42), ("-1\n", -1), ("", None), ("four", None), ("4.2", None), ("9" * 30, None)]
)
def test_read_number(tmp_path: Path, content: str, number: int | None) -> None:
    """A decimal number, or nothing."""
    (tmp_path / "f").write_text(content)

    assert read_number(tmp_path / "f") == number
    assert read_number(tmp_path / "missing") is None


@pytest.mark.parametrize("text", ["-1", "1" + "0" * 1024])
def test_masks_beyond_every_cpu(text: str) -> None:
    """A mask of CPUs that cannot be is refused, not expanded."""
    with pytest.raises(ValueError, match="beyond the largest id, 4095"):
        parse_mask(text)


def test_long_files(tmp_path: Path) -> None:
    """A file is read to its end, /proc/mounts can be long."""
    (tmp_path / "long").write_text("x" * 200_000)

    assert len(read_text(tmp_path / "long") or "") == 200_000


def test_the_name_of_a_mount_forges_no_other_one(tmp_path: Path) -> None:
    """Pods can mount servers with such names: what the kernel does not escape ends no line and no word."""
    name = "server:/a\f\v\x1c\x85\u2028\rx\x1f/evil\x1fcgroup\x1frw,cpuset"
    line = f"{name} /pods/1 nfs4 rw,hard 0 0\n".encode() + b"\xff:/ /pods/2 nfs4 ro 0 0\n"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_bytes(line + b"resctrl /sys/fs/resctrl resctrl rw 0 0\n")

    assert [*mounts(tmp_path)] == [
        (tmp_path / "pods/1", "nfs4", frozenset({"rw", "hard"})),
        (tmp_path / "pods/2", "nfs4", frozenset({"ro"})),
        (tmp_path / "sys/fs/resctrl", "resctrl", frozenset({"rw"})),
    ]
