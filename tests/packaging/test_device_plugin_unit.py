"""What the chart's init container does with the unit of the device plugin, on a made-up node."""

import shutil
import subprocess
from pathlib import Path

import pytest

from packager.source import ROOT

SCRIPT = ROOT / "packaging/image/device-plugin-unit"
UNIT = "criproxy-device-plugin.service"
DEFAULTS, NVIDIA = "etc/default/criproxy-device-plugin", "etc/criproxy/nvidia.yaml"
MARK = "# Written by the Helm chart of criproxy; changes are overwritten.\n"
SYSTEMCTL = """#!/bin/sh
[ "$*" = "${*#--target 1 --mount -- systemctl }" ] && exit 1
echo "${*#--target 1 --mount -- systemctl }" >>"$ASKED"
"""
"""In place of nsenter, with which the script reaches the node: notes what systemctl of the node is asked to do."""


class MadeUpNode:
    """A directory with a node's files, and a systemctl that notes what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.root, self.files, self._asked = (folder / name for name in ("root", "files", "asked"))
        for path in (self.root / "etc/default", self.root / "etc/criproxy", self.files):
            path.mkdir(parents=True)
        self._busybox = shutil.which("busybox") or pytest.skip("busybox is not installed")
        self._nsenter = folder / "nsenter"
        self._nsenter.write_text(SYSTEMCTL)
        self._nsenter.chmod(0o755)

    def switch(self, how: str, **files: str) -> list[str]:
        """Switch the unit with *files* of the chart; returns what systemctl was asked, or what the script said."""
        for name, text in files.items():
            (self.files / name.replace("_", ".")).write_text(text)
        self._asked.write_text("")
        env = {"NSENTER": str(self._nsenter), "ASKED": str(self._asked)}
        command = (self._busybox, "sh", SCRIPT, how, self.root, self.files)
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        return self._asked.read_text().splitlines() if ended.returncode == 0 else [ended.stderr]

    def read(self, name: str) -> str | None:
        """The text of one of the node's files; None if there is none."""
        path = self.root / name
        return path.read_text() if path.exists() else None


@pytest.fixture
def node(tmp_path: Path) -> MadeUpNode:
    """Return a node without a device plugin."""
    return MadeUpNode(tmp_path)


def test_it_is_switched_on_with_its_files(node: MadeUpNode) -> None:
    """Options, variables, and NVIDIA's file."""
    assert node.switch("on", defaults="A=1\n", nvidia_yaml="version: v1\n") == [f"enable {UNIT}", f"restart {UNIT}"]
    assert (node.read(DEFAULTS), node.read(NVIDIA)) == (f"{MARK}A=1\n", f"{MARK}version: v1\n")


def test_nothing_is_restarted_that_has_not_changed(node: MadeUpNode) -> None:
    """A pod that is made anew for another reason disturbs no card."""
    node.switch("on", defaults="A=1\n")
    assert node.switch("on") == [f"enable {UNIT}", f"start {UNIT}"]
    assert node.switch("on", defaults="A=2\n") == [f"enable {UNIT}", f"restart {UNIT}"]


def test_nvidias_file_goes_with_its_value(node: MadeUpNode) -> None:
    """The plugin shall not go on with what the chart no longer says."""
    node.switch("on", defaults="A=1\n", nvidia_yaml="version: v1\n")
    (node.files / "nvidia.yaml").unlink()
    node.switch("on", defaults="A=2\n")
    assert node.read(NVIDIA) is None


def test_it_is_switched_off_and_its_files_removed(node: MadeUpNode) -> None:
    """And off again does nothing."""
    node.switch("on", defaults="A=1\n", nvidia_yaml="version: v1\n")
    assert node.switch("off") == [f"disable --now {UNIT}"]
    assert (node.read(DEFAULTS), node.read(NVIDIA), node.switch("off")) == (None, None, [])


@pytest.mark.parametrize("name", [DEFAULTS, NVIDIA])
def test_the_files_of_people_are_left_alone(node: MadeUpNode, name: str) -> None:
    """Their settings would be lost, so the chart says what to do; and it does not switch off what it has not on."""
    (node.root / name).write_text("by hand\n")
    (said,) = node.switch("on", defaults="A=1\n", nvidia_yaml="version: v1\n")
    assert f"{node.root}/{name} was not written by the chart" in said
    assert (node.switch("off"), node.read(name)) == ([], "by hand\n")
