"""The container image: criproxy with its own Python, as the DaemonSet of the chart copies it to nodes."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from packager import debian, oci, runtime, venv, wheels
from packager.source import ROOT, normalise, version

_FILES = ROOT / "packaging/image"
_PROGRAM = f"/{venv.HOME}/bin/criproxy"
_PATH = f"/{venv.HOME}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""In this image, and for what `criproxy install` runs on the node."""
_SCRIPT = "usr/local/bin/criproxy-device-plugin-unit"
_FOLDERS = ("dev", "etc/criproxy", "host", "proc", "run", "sys", "tmp", "usr/lib", "var/lib/dpkg/status.d")
_OF_A_RELEASE = ("etc/criproxy", "usr/lib/systemd", "usr/local", f"{venv.HOME}/bin")
"""What changes with criproxy, and not with its libraries, is a layer of its own."""


def build(target: Path) -> Path:
    """Write the image to the folder *target*.

    Raises:
        BuildError: a tool, a wheel or a package of Debian is missing, or a step failed.
    """
    architecture = debian.architecture()
    archive = target / f"criproxy-{version()}-{architecture}.oci.tar"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        _fill(root)
        oci.write(archive, _image(architecture), root, _layers(root))
    return archive


def _image(architecture: str) -> oci.Image:
    number = version()
    return oci.Image(
        name=f"localhost/criproxy:{number}",
        architecture=architecture,
        config={
            "User": "0:0",
            "Env": [f"PATH={_PATH}"],
            "Entrypoint": [_PROGRAM],
            "Cmd": ["--help"],
            "WorkingDir": "/",
        },
        annotations={
            "org.opencontainers.image.title": "criproxy",
            "org.opencontainers.image.description": "CRI proxy that places containers on CPUs, memory and devices",
            "org.opencontainers.image.version": number,
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    )


def _layers(root: Path) -> tuple[list[Path], list[Path]]:
    """All files of the image: first those that many releases share."""
    site = f"{venv.HOME}/lib/python{wheels.minor()}/site-packages/criproxy"
    paths = [path for path in root.rglob("*") if path.is_symlink() or not path.is_dir() or not any(path.iterdir())]
    own = [path for path in paths if str(path.relative_to(root)).startswith((*_OF_A_RELEASE, site))]
    return sorted({*paths} - {*own}), own


def _fill(root: Path) -> None:
    """Put all files at their places below *root*."""
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True)
    runtime.make(root)
    venv.make(root, runtime.python())
    _debian(root)
    shutil.copytree(ROOT / "systemd", root / "usr/lib/systemd/system", ignore=shutil.ignore_patterns("kubelet.*"))
    shutil.copy(ROOT / "policies/default.yaml", root / "etc/criproxy/policy.yaml")
    for name in ("passwd", "group"):
        shutil.copy(_FILES / name, root / "etc")
    (root / _SCRIPT).parent.mkdir(parents=True)
    shutil.copy(_FILES / "device-plugin-unit", root / _SCRIPT)
    (root / _SCRIPT).chmod(0o755)
    normalise(root)
    (root / "tmp").chmod(0o1777)


def _debian(root: Path) -> None:
    """Busybox as the shell, and what programs that look for vulnerable packages read: the release and the packages."""
    with tempfile.TemporaryDirectory() as scratch:
        unpacked = Path(scratch)
        debian.unpack(unpacked, "busybox-static", "base-files")
        shutil.copy(unpacked / "usr/lib/os-release", root / "etc")
        (root / "bin").mkdir()
        shutil.copy(unpacked / "bin/busybox", root / "bin")
    for applet in subprocess.check_output((root / "bin/busybox", "--list"), text=True).split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    for name, control in debian.described().items():
        (root / "var/lib/dpkg/status.d" / name).write_text(control)
