"""What CDI specifications say of the variable by which a vendor's hook shows cards."""

import json
from pathlib import Path

import pytest

from criproxy.devices.classes.builtin import NVIDIA
from criproxy.host.cards import CdiSpecs

VISIBLE = "NVIDIA_VISIBLE_DEVICES=void"


def spec(*names: str, of_all: str = "", own: str = "", kind: str = "nvidia.com/gpu") -> str:
    """A specification of these devices."""
    return json.dumps(
        {
            "cdiVersion": "0.5.0",
            "kind": kind,
            "devices": [{"name": name, "containerEdits": {"env": [own] if own else []}} for name in names],
            "containerEdits": {"env": [of_all]} if of_all else {},
        }
    )


@pytest.mark.parametrize(
    ("files", "sets"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"etc/cdi/a.json": spec("0")}, {"nvidia.com/gpu=0": False}, id="silent"),
        pytest.param({"etc/cdi/a.yaml": spec("0", of_all=VISIBLE)}, {"nvidia.com/gpu=0": True}, id="for-all"),
        pytest.param({"var/run/cdi/a.json": spec("0", own=VISIBLE)}, {"nvidia.com/gpu=0": True}, id="its-own"),
        pytest.param(
            {"etc/cdi/a.json": spec("0"), "var/run/cdi/b.json": spec("0", own=VISIBLE)},
            {"nvidia.com/gpu=0": True},
            id="the-later-folder",
        ),
        pytest.param({"etc/cdi/a.json": spec("0", kind="vendor.example/x")}, {}, id="foreign"),
        pytest.param({"etc/cdi/a.json": "{"}, {}, id="no-json"),
        pytest.param({"etc/cdi/a.yaml": "a: [\n"}, {}, id="no-yaml"),
        pytest.param({"etc/cdi/a.json": '["x"]'}, {}, id="no-spec"),
        pytest.param({"etc/cdi/a.json": '{"kind": "nvidia.com/gpu", "devices": 7}'}, {}, id="no-devices"),
        pytest.param({"etc/cdi/a.txt": spec("0")}, {}, id="another-file"),
    ],
)
def test_what_is_set(tmp_path: Path, files: dict[str, str], sets: dict[str, bool]) -> None:
    """Edits of all devices and of one count; what cannot be read says nothing, and is not read again."""
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    specs = CdiSpecs()

    assert specs.sets(NVIDIA, tmp_path) == specs.sets(NVIDIA, tmp_path) == sets


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    """As a driver for claims writes one for each."""
    path = tmp_path / "var/run/cdi/a.json"
    path.parent.mkdir(parents=True)
    path.write_text(spec("0"))
    specs = CdiSpecs()
    specs.sets(NVIDIA, tmp_path)

    path.write_text(spec("0", "11"))

    assert specs.sets(NVIDIA, tmp_path).keys() == {"nvidia.com/gpu=0", "nvidia.com/gpu=11"}
