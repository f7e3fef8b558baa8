"""The configuration of a private containerd follows its version."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from lab.containerd.cgroups import CgroupDriver
from lab.containerd.containerd_config import Version, render, version_of

FOLDER = Path("/x")


def rendered(version: Version, cgroup_driver: CgroupDriver = "cgroupfs", *, nri: bool = False) -> dict[str, Any]:
    """The file as containerd reads it."""
    text = render(version, FOLDER, pause="pause:1", snapshotter="native", cgroup_driver=cgroup_driver, nri=nri)
    return tomllib.loads(text)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        pytest.param("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", (1, 6), id="1.6"),
        pytest.param("containerd github.com/containerd/containerd/v2 2.1.9+unknown ", (2, 1), id="2.1"),
        pytest.param("containerd github.com/containerd/containerd v1.7.13 7c3aca7a610df76212171d20", (1, 7), id="own"),
    ],
)
def test_the_version_is_read(tmp_path: Path, said: str, version: Version) -> None:
    """As Debian's packages and those of the project say it."""
    program = tmp_path / "containerd"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)

    assert version_of(str(program)) == version


def test_a_program_that_names_no_version_is_told(tmp_path: Path) -> None:
    """With what it said."""
    program = tmp_path / "containerd"
    program.write_text("#!/bin/sh\necho no loader >&2; exit 1\n")
    program.chmod(0o755)

    with pytest.raises(ValueError, match=r"containerd --version says 'no loader'"):
        version_of(str(program))


@pytest.mark.parametrize("version", [(1, 6), (1, 7), (2, 1)], ids=str)
def test_everything_lies_in_the_folder(version: Version) -> None:
    """No path of another containerd is in it: neither of its sockets, nor NRI's, which 1.6 does not know."""
    told = rendered(version)

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
