"""The container image: other programs can read it, it runs, and its program runs on any host."""

import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
from contextlib import chdir
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from criproxy import __version__
from tests.install.nodes import FILES

PROGRAM = "/opt/criproxy/bin/criproxy"
SMALL_BYTES = 5 << 20
IMPORT_ALL = """
import importlib, pathlib, sys
folder = next(pathlib.Path(path) for path in sys.path if path.endswith("lib-dynload"))
names = {path.name.partition(".")[0] for path in folder.iterdir() if not path.name.startswith("_test")}
for name in sorted(names | set(sys.argv[1:])):
    importlib.import_module(name)
print(sys.prefix)
"""
"""Loads all modules with machine code: those of Python, and those whose names are given."""
LIBRARIES = ("aiohttp", "google.protobuf", "grpc", "pydantic_core", "pynvml", "uvloop", "yaml")


@pytest.fixture(scope="module")
def layout(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the unpacked archive: blobs, and an index."""
    folder = tmp_path_factory.mktemp("layout")
    subprocess.run(("tar", "--extract", "--directory", folder, "--file", packages["image"]), check=True)
    return folder


@pytest.fixture(scope="module")
def manifest(layout: Path) -> dict[str, Any]:
    """Return the manifest of the image."""
    index = json.loads((layout / "index.json").read_text())
    found: dict[str, Any] = blob(layout, index["manifests"][0])
    return found


@pytest.fixture(scope="module")
def bundle(layout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files of the image with a configuration for runc, as umoci makes them; it checks all sums."""
    if shutil.which("umoci") is None or os.geteuid() != 0:
        pytest.skip("umoci is not installed, or this is not root")
    folder = tmp_path_factory.mktemp("unpacked") / "bundle"
    image = f"{layout}:{__version__}"
    subprocess.run(("umoci", "unpack", "--image", image, folder), check=True, capture_output=True)
    return folder


def blob(layout: Path, described: dict[str, Any]) -> Any:  # noqa: ANN401 (JSON)
    """Return what a descriptor refers to."""
    return json.loads((layout / "blobs/sha256" / described["digest"].removeprefix("sha256:")).read_text())


def inside(root: Path, *command: str, path: str = "/bin") -> str:
    """What a command prints that has *root* as its root directory, and nothing of the machine's environment."""
    chroot = (shutil.which("chroot") or "chroot", str(root), *command)
    return subprocess.check_output(chroot, text=True, env={"PATH": path})


def test_the_image_starts_criproxy_as_root(layout: Path, manifest: dict[str, Any]) -> None:
    """Root, because the daemon and the installer have to be; what it is for, and its version, are in it."""
    config = blob(layout, manifest["config"])
    assert (config["config"]["Entrypoint"], config["config"]["User"]) == ([PROGRAM], "0:0")
    assert config["os"] == "linux"
    assert config["config"]["Labels"]["org.opencontainers.image.version"] == __version__
    assert len(config["rootfs"]["diff_ids"]) == len(manifest["layers"]) == 2


def test_releases_share_a_layer(layout: Path, manifest: dict[str, Any]) -> None:
    """What nodes fetch for another version of criproxy alone is small, and has nothing but criproxy."""
    shared, own = manifest["layers"]
    assert own["size"] < SMALL_BYTES < shared["size"]
    names = {digest: listed(layout, each) for digest, each in (("shared", shared), ("own", own))}
    assert not any("site-packages/criproxy" in name for name in names["shared"])
    files = [name for name in names["own"] if name.endswith((".py", ".so"))]
    assert files
    assert [name for name in files if "site-packages/criproxy/" not in name] == []


def listed(layout: Path, layer: dict[str, Any]) -> list[str]:
    """The names of all files in a layer, which belong to root."""
    with tarfile.open(layout / "blobs/sha256" / layer["digest"].removeprefix("sha256:")) as files:
        members = files.getmembers()
    assert {(member.uid, member.gid) for member in members} == {(0, 0)}
    assert {member.name for member in members if member.mode & 0o022 and not member.issym()} <= {"tmp"}
    return [member.name for member in members]


def test_runc_runs_the_image(bundle: Path) -> None:
    """As its configuration says, with a read-only root directory and no network."""
    config = json.loads((bundle / "config.json").read_text())
    assert config["process"]["args"] == [PROGRAM, "--help"]
    config["process"] |= {"args": [PROGRAM, "--version"], "terminal": False}
    config["root"]["readonly"] = True
    (bundle / "config.json").write_text(json.dumps(config))
    name = f"criproxy-image-{os.getpid()}"
    ended = subprocess.run(
        ("runc", "run", "--bundle", bundle, name), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert ended.stdout == f"criproxy, version {__version__}\n", ended.stderr


def test_the_image_has_what_an_installation_needs(bundle: Path) -> None:
    """A policy that is valid, the units, programs to reach the node, and the commands."""
    root = bundle / "rootfs"
    assert "topology-aware" in inside(root, PROGRAM, "check", "--no-machine", "/etc/criproxy/policy.yaml")
    assert {path.name for path in (root / "usr/lib/systemd/system").iterdir()} >= {
        "criproxy.service",
        "criproxy.socket",
        "criproxy-agent.service",
        "criproxy-controls.service",
        "criproxy-device-plugin.service",
    }
    assert "nsenter" in inside(root, "busybox", "--list")
    assert inside(root, "sh", "-c", "echo $((6 * 7))") == "42\n"


def test_the_program_needs_nothing_of_its_host(bundle: Path, tmp_path: Path) -> None:
    """A copy of its directory is enough: Python, all libraries, and the C library are in it."""
    shutil.copytree(bundle / "rootfs/opt/criproxy", tmp_path / "opt/criproxy", symlinks=True)
    assert inside(tmp_path, PROGRAM, "--version") == f"criproxy, version {__version__}\n"
    assert inside(tmp_path, "/opt/criproxy/bin/python", "-c", IMPORT_ALL, *LIBRARIES) == "/opt/criproxy\n"


def test_it_would_install_itself_on_a_node(bundle: Path) -> None:
    """On a node without Python and without a package, it brings the program, the units and a policy."""
    host, programs = bundle / "rootfs/host", bundle / "rootfs/run/programs"
    for name, text in FILES["kubeadm"].items():
        file = host / name.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (host / "run/containerd").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as runtime, chdir(host / "run/containerd"):  # a path of the test is too long
        runtime.bind("containerd.sock")
    programs.mkdir()
    (programs / "nsenter").write_text("#!/bin/sh\nexit 1\n")  # nothing runs yet, and nothing shall reach this machine
    (programs / "nsenter").chmod(0o755)
    said = inside(bundle / "rootfs", PROGRAM, "install", "--dry-run", "--host-root=/host", path="/run/programs:/bin")
    assert "copy /opt/criproxy to the node's /opt/criproxy" in said
    for name in ("criproxy.service", "criproxy.socket", "criproxy-device-plugin.service"):
        assert f"write /etc/systemd/system/{name}: a unit of criproxy" in said
    assert "write /etc/criproxy/policy.yaml: the policy" in said
    assert "restart the kubelet" in said


def test_scanners_find_the_packages_of_debian(bundle: Path) -> None:
    """The release, and each package with its version; the licences are there, too."""
    root = bundle / "rootfs"
    assert "ID=debian\n" in (root / "etc/os-release").read_text()
    packages = {path.name: path.read_text() for path in (root / "var/lib/dpkg/status.d").iterdir()}
    assert {"libc6", "busybox-static"} <= set(packages)
    for name, control in packages.items():
        assert f"Package: {name}\n" in control
        assert "\nVersion: " in control
        assert (root / "opt/criproxy/runtime/share/doc" / name / "copyright").exists()


def test_the_sbom_names_the_packages_of_debian(
    layout: Path, manifest: dict[str, Any], packages: dict[str, Path]
) -> None:
    """Those that the image has, in its first layer, each with its version and its address for scanners."""
    with tarfile.open(layout / "blobs/sha256" / manifest["layers"][0]["digest"].removeprefix("sha256:")) as files:
        controls = [files.extractfile(each) for each in files if each.isfile() and "dpkg/status.d/" in each.name]
        texts = [control.read().decode() for control in controls if control is not None]
        release = files.extractfile("etc/os-release")
        assert release is not None
        (number,) = re.findall(r'VERSION_ID="(\d+)"', release.read().decode())
    inside = {field(text, "Package"): (field(text, "Version"), field(text, "Architecture")) for text in texts}
    bill = json.loads(packages["sbom"].read_text())["components"]
    of_debian = [each for each in bill if each["purl"].startswith("pkg:deb/")]

    assert len(inside) > 10
    assert {each["name"]: each["version"] for each in of_debian} == {name: about[0] for name, about in inside.items()}
    for each in of_debian:
        version, architecture = inside[each["name"]]
        named = f"pkg:deb/debian/{each['name']}@{version}?arch={architecture}&distro=debian-{number}"
        assert unquote(each["purl"]) == named
        assert each["properties"] == [{"name": "criproxy:package", "value": "image"}]


def field(control: str, name: str) -> str:
    """Return a field of a control file."""
    (value,) = re.findall(rf"(?m)^{name}: (.*)$", control)
    return str(value)
