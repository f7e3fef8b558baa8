"""The last ten configurations are kept, and what is tried is read as it was written, or not at all."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.errors import StoreError
from criproxy.model.grant import CpuQuota, Grant
from criproxy.model.node import Place
from criproxy.store.configurations import (
    FOLDER,
    LAST_GOOD_NAME,
    MOST,
    TRIED_NAME,
    GoodFile,
    InForceOnce,
    Tried,
    add,
    read_all,
    read_good,
    read_tried,
    write_good,
    write_tried,
)

ONE = InForceOnce(text="policy: none\n", source="/p.yaml", hash="a0", policy="none", at_s=1.5, how="file")
TRIED = Tried(
    good=GoodFile(text="policy: static\n", source="/new.yaml", configuration="x", available="0-3"),
    file_hash="a0",
    begun_s=1.5,
    until_s=2.5,
    before=GoodFile(text="policy: none\n", source="/p.yaml"),
    places={"r1": Place(Grant(frozenset({1}), frozenset({0}), frozenset({1}), "p", quota=CpuQuota.LIFTED), 1000)},
)


def test_the_last_ten_are_kept(tmp_path: Path) -> None:
    """Their numbers go on; all files are private."""
    for number in range(MOST + 3):
        add(tmp_path, replace(ONE, hash=f"a{number}"))

    found = read_all(tmp_path)

    assert [each.number for each in found] == list(range(4, MOST + 4))
    assert found[0] == replace(ONE, hash="a3", number=4)
    places = [tmp_path / FOLDER, *(tmp_path / FOLDER).iterdir()]
    assert {stat.S_IMODE(place.stat().st_mode) & 0o077 for place in places} == {0}


def test_a_restart_adds_nothing(tmp_path: Path) -> None:
    """The same file again is no other configuration, unless it comes in another way."""
    tried = replace(ONE, hash="b0", how="tried")
    for once in (
        ONE,
        ONE,
        tried,
        tried,
        replace(tried, how="kept"),
        replace(tried, how="file"),
        replace(ONE, how="back"),
    ):
        add(tmp_path, once)
    add(tmp_path, ONE)

    assert [(each.hash, each.how) for each in read_all(tmp_path)] == [
        ("a0", "file"),
        ("b0", "tried"),
        ("b0", "kept"),
        ("a0", "back"),
    ]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"text": 1}', "\0"])
def test_a_damaged_one_is_left_out(tmp_path: Path, text: str) -> None:
    """The others are shown, and the next one gets the next number."""
    add(tmp_path, ONE)
    (tmp_path / FOLDER / "000007.json").write_text(text)
    (tmp_path / FOLDER / "other").write_text("")

    add(tmp_path, replace(ONE, hash="b0"))

    assert [each.number for each in read_all(tmp_path)] == [1, 8]


def test_a_directory_of_everybody(tmp_path: Path) -> None:
    """Nothing is written there, and nothing is read."""
    add(tmp_path, ONE)
    write_good(tmp_path, TRIED.good)
    tmp_path.chmod(0o777)
    try:
        with pytest.raises(OSError, match="can be written by every user"):
            add(tmp_path, replace(ONE, hash="b0"))
        with pytest.raises(StoreError, match="can be written by every user"):
            read_all(tmp_path)
        with pytest.raises(OSError, match="can be written by every user"):
            write_good(tmp_path, TRIED.good)
        assert (read_tried(tmp_path), read_good(tmp_path)) == (None, None)
    finally:
        tmp_path.chmod(0o700)


def test_nothing_yet(tmp_path: Path) -> None:
    """A node without a policy file has no configurations; a directory with which criproxy has not run is an error."""
    with pytest.raises(StoreError, match="has no state: criproxy has not run with this directory"):
        read_all(tmp_path)
    (tmp_path / "criproxy.db").touch()
    assert (read_all(tmp_path), read_tried(tmp_path)) == ([], None)
    with pytest.raises(StoreError, match=r"there is no directory .*/none: name the daemon's with --state-dir"):
        read_all(tmp_path / "none")


def test_what_is_tried_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Both files, the times and the places; and removed again."""
    for each in (TRIED, TRIED.kept()):
        write_tried(tmp_path, each)
        assert read_tried(tmp_path) == each
    assert stat.S_IMODE((tmp_path / TRIED_NAME).stat().st_mode) == 0o600

    write_tried(tmp_path, None)
    write_tried(tmp_path, None)

    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "{}", '{"good": 1}', '{"good": {}, "places": {"a": {}}}', "\0", "[" * 9999],
    ids=lambda text: ascii(text[:12]),
)
def test_a_damaged_file_is_none(tmp_path: Path, text: str) -> None:
    """The start uses the policy file."""
    (tmp_path / TRIED_NAME).write_text(text)

    assert read_tried(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"available": "x"}', "\0"])
def test_a_damaged_last_good_file_is_none(tmp_path: Path, text: str) -> None:
    """Whatever is there in its place, a start does not fail by it."""
    (tmp_path / LAST_GOOD_NAME).write_text(text)

    assert read_good(tmp_path) is None
