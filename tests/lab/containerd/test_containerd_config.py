"""The configuration of a private containerd follows its version."""

import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from lab.containerd.containerd_config import Version, render, version_of

FOLDER = Path("/x")


@pytest.mark.parametrize(
    ("said", "version"),
    [
        pytest.param("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", (1, 6), id="1.6"),
        pytest.param("containerd github.com/containerd/containerd/v2 2.1.9+unknown ", (2, 1), id="2.1"),
        pytest.param("containerd github.com/containerd/containerd v1.7.13 7c3aca7a610df76212171d20", (1, 7), id="own"),
        pytest.param("no loader", None, id="another-program"),
    ],
)
def test_the_version_is_read(tmp_path: Path, said: str, version: Version | None) -> None:
    """As Debian's packages and those of the project say it; of a program that names none, it is told what it said."""
    program = tmp_path / "containerd"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    wrong = pytest.raises(ValueError, match="containerd --version says 'no loader'")

    with nullcontext() if version else wrong:
        assert version_of(str(program)) == version


@pytest.mark.parametrize("version", [(1, 6), (1, 7), (2, 1)], ids=str)
def test_everything_lies_in_the_folder(version: Version) -> None:
    """No path of another containerd is in it: neither of its sockets, nor NRI's, which 1.6 does not know."""
    text = render(version, FOLDER, pause="pause:1", snapshotter="native", cgroup_driver="cgroupfs", nri=False)
    told = tomllib.loads(text)

    assert told["version"] == (3 if version >= (2, 0) else 2)
    assert ("io.containerd.nri.v1.nri" in told["plugins"]) == (version >= (1, 7))
    paths = [value for value in _strings(told) if value.startswith("/")]
    assert len(paths) >= 6
    assert [path for path in paths if not path.startswith("/x/")] == []


def _strings(value: Any) -> list[str]:  # noqa: ANN401 (TOML)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [found for each in value for found in _strings(each)]
    return [value] if isinstance(value, str) else []
