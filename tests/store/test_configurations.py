"""The last ten configurations are kept, and what is tried is read as it was written, or not at all."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.errors import StoreError
from criproxy.model.grant import CpuQuota, Grant
from criproxy.model.node import Place
from criproxy.store import configurations

ONE = configurations.InForceOnce(
    text="policy: none\n", source="/p.yaml", hash="a0", policy="none", at_s=1.5, how="file"
)
TRIED = configurations.Tried(
    good=configurations.GoodFile(text="policy: static\n", source="/new.yaml", configuration="x", available="0-3"),
    file_hash="a0",
    begun_s=1.5,
    until_s=2.5,
    before=configurations.GoodFile(text="policy: none\n", source="/p.yaml"),
    places={"r1": Place(Grant(frozenset({1}), frozenset({0}), frozenset({1}), "p", quota=CpuQuota.LIFTED), 1000)},
)


def test_the_last_ten_are_kept(tmp_path: Path) -> None:
    """Their numbers go on; all files are private."""
    for number in range(configurations.MOST + 3):
        configurations.add(tmp_path, replace(ONE, hash=f"a{number}"))

    found = configurations.read_all(tmp_path)

    assert [each.number for each in found] == list(range(4, configurations.MOST + 4))
    assert found[0] == replace(ONE, hash="a3", number=4)
    places = [tmp_path / configurations.FOLDER, *(tmp_path / configurations.FOLDER).iterdir()]
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
        configurations.add(tmp_path, once)
    configurations.add(tmp_path, ONE)

    assert [(each.hash, each.how) for each in configurations.read_all(tmp_path)] == [
        ("a0", "file"),
        ("b0", "tried"),
        ("b0", "kept"),
        ("a0", "back"),
    ]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"text": 1}', "\0"])
def test_a_damaged_one_is_left_out(tmp_path: Path, text: str) -> None:
    """The others are shown, and the next one gets the next number."""
    configurations.add(tmp_path, ONE)
    (tmp_path / configurations.FOLDER / "000007.json").write_text(text)
    (tmp_path / configurations.FOLDER / "other").write_text("")

    configurations.add(tmp_path, replace(ONE, hash="b0"))

    assert [each.number for each in configurations.read_all(tmp_path)] == [1, 8]


def test_a_directory_of_everybody(tmp_path: Path) -> None:
    """Nothing is written there, and nothing is read."""
    configurations.add(tmp_path, ONE)
    configurations.write_good(tmp_path, TRIED.good)
    tmp_path.chmod(0o777)
    try:
        with pytest.raises(OSError, match="can be written by every user"):
            configurations.add(tmp_path, replace(ONE, hash="b0"))
        with pytest.raises(StoreError, match="can be written by every user"):
            configurations.read_all(tmp_path)
        with pytest.raises(OSError, match="can be written by every user"):
            configurations.write_good(tmp_path, TRIED.good)
        assert (configurations.read_tried(tmp_path), configurations.read_good(tmp_path)) == (None, None)
    finally:
        tmp_path.chmod(0o700)


def test_nothing_yet(tmp_path: Path) -> None:
    """A node without a policy file has no configurations; a directory with which criproxy has not run is an error."""
    with pytest.raises(StoreError, match="has no state: criproxy has not run with this directory"):
        configurations.read_all(tmp_path)
    (tmp_path / "criproxy.db").touch()
    assert (configurations.read_all(tmp_path), configurations.read_tried(tmp_path)) == ([], None)
    with pytest.raises(StoreError, match=r"there is no directory .*/none: name the daemon's with --state-dir"):
        configurations.read_all(tmp_path / "none")


def test_what_is_tried_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Both files, the times and the places; and removed again."""
    for each in (TRIED, TRIED.kept()):
        configurations.write_tried(tmp_path, each)
        assert configurations.read_tried(tmp_path) == each
    assert stat.S_IMODE((tmp_path / configurations.TRIED_NAME).stat().st_mode) == 0o600

    configurations.write_tried(tmp_path, None)
    configurations.write_tried(tmp_path, None)

    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "{}", '{"good": 1}', '{"good": {}, "places": {"a": {}}}', "\0", "[" * 9999],
    ids=lambda text: ascii(text[:12]),
)
def test_a_damaged_file_is_none(tmp_path: Path, text: str) -> None:
    """The start uses the policy file."""
    (tmp_path / configurations.TRIED_NAME).write_text(text)

    assert configurations.read_tried(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"available": "x"}', "\0"])
def test_a_damaged_last_good_file_is_none(tmp_path: Path, text: str) -> None:
    """Whatever is there in its place, a start does not fail by it."""
    (tmp_path / configurations.LAST_GOOD_NAME).write_text(text)

    assert configurations.read_good(tmp_path) is None
