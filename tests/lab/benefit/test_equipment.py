"""What the workloads need is found, or told to be missing."""

from pathlib import Path

import pytest

from lab.benefit.equipment import Equipment, cache_directory

FOLDER = Path("/cache/benefit")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("libcudnn.so.9 => not found", True, id="nowhere"),
        pytest.param("libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x0000)", False, id="of-the-system"),
        pytest.param("libgomp.so.1 => /cache/benefit/venv/lib/libgomp.so.1 (0x0000)", False, id="ours"),
        pytest.param(
            "libcudart.so.13 => /usr/local/cuda/lib/libcudart.so.13 (0x0000)", True, id="by-the-loader's-cache"
        ),
        pytest.param("libcuda.so.1 => /opt/cuda/libcuda.so.1 (0x0000)", True, id="not-mounted"),
        pytest.param("linux-vdso.so.1 (0x0000)", False, id="of-the-kernel"),
        pytest.param("/lib64/ld-linux-x86-64.so.2 (0x0000)", False, id="the-loader"),
    ],
)
def test_a_library_is_missing_where_containers_do_not_find_it(line: str, *, expected: bool) -> None:
    """They have the folders of the system and ours, but not the cache of the machine's loader."""
    assert Equipment(FOLDER).is_missing(line.strip()) is expected


def test_nothing_is_complete_without_a_stamp(tmp_path: Path) -> None:
    """An environment that was half made is made again; until then, the rig's own interpreter serves."""
    equipment = Equipment(tmp_path)
    assert not equipment.complete
    assert equipment.python.exists()


def test_a_module_that_is_missing_is_told(tmp_path: Path) -> None:
    """With the words of the interpreter."""
    assert "no_such_module" in Equipment(tmp_path).imports("no_such_module")
    assert Equipment(tmp_path).imports("json") == ""


def test_the_cache_can_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a variable of its own, or that of all caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "criproxy/benefit"
    monkeypatch.setenv("CRIPROXY_BENEFIT_CACHE", str(tmp_path / "mine"))
    assert cache_directory() == tmp_path / "mine"
