"""The Debian package, written by dpkg-deb: virtual environment, units, manual pages, completions, policy file."""

import gzip
import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from datetime import datetime
from email.utils import format_datetime
from pathlib import Path

from click.testing import CliRunner

from criproxy.cli import main
from packager import manual, venv, wheels
from packager.source import DATE_VARIABLE, ROOT, BuildError, date_s, normalise, run, version

_TEMPLATES = ROOT / "packaging/deb"
_SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
_CONFFILES = ("etc/criproxy/policy.yaml",)
_COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/criproxy",
    "zsh": "usr/share/zsh/vendor-completions/_criproxy",
    "fish": "usr/share/fish/vendor_completions.d/criproxy.fish",
}
_DOC = "usr/share/doc/criproxy"


def build(target: Path) -> Path:
    """Write the package to the folder *target*.

    Raises:
        BuildError: a tool or a wheel is missing, or a step failed.
    """
    if shutil.which("dpkg-deb") is None:
        raise BuildError("dpkg-deb is missing: a Debian package is built on Debian or one of its relatives")
    architecture = _printed("dpkg", "--print-architecture")
    package = target / f"criproxy_{debian_version(version())}_{architecture}.deb"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        _fill(root)
        _control(root, architecture)
        pack(root, package)
    return package


def pack(root: Path, package: Path) -> None:
    """Write *package* from the tree *root*, always the same bytes from the same tree."""
    pressed = ("-Zxz", "-z1", "--threads-max=1")
    run("dpkg-deb", "--root-owner-group", *pressed, "--build", root, package, **{DATE_VARIABLE: str(date_s())})


def debian_version(number: str) -> str:
    """Our version *number* in Debian's order, where 1.0~rc1 is before 1.0."""
    return re.sub(r"\.?(dev|a|b|rc)(\d+)", r"~\1\2", number)


def _fill(root: Path) -> None:
    """Put all files at their places below *root*."""
    venv.make(root)
    shutil.copytree(ROOT / "systemd", root / "usr/lib/systemd/system", ignore=shutil.ignore_patterns("kubelet.*"))
    shutil.copytree(ROOT / "policies", root / _DOC / "examples/policies")
    shutil.copytree(ROOT / "systemd/kubelet.service.d", root / _DOC / "examples/kubelet.service.d")
    _place(root / "etc/criproxy/policy.yaml", (ROOT / "policies/default.yaml").read_text())
    _place(root / _DOC / "copyright", (_TEMPLATES / "copyright").read_text())
    _place(root / _DOC / "requirements.lock", (ROOT / "packaging/requirements.lock").read_text())
    (root / _DOC / "changelog.gz").write_bytes(gzip.compress(_changelog().encode(), mtime=0))
    manual.write(root / "usr/share/man/man1")
    for shell, place in _COMPLETIONS.items():
        _place(root / place, _completion(shell))
    (root / "usr/bin").mkdir()
    (root / "usr/bin/criproxy").symlink_to(f"/{venv.HOME}/bin/criproxy")


def _control(root: Path, architecture: str) -> None:
    """Write what dpkg is to know: the fields, the sums of all files, configuration files, and scripts."""
    normalise(root)
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    folder = root / "DEBIAN"
    conffiles = [root / name for name in _CONFFILES]
    sums = (f"{_md5(path)}  {path.relative_to(root)}\n" for path in files if path not in conffiles)
    _place(folder / "md5sums", "".join(sums))
    _place(folder / "conffiles", "".join(f"/{name}\n" for name in _CONFFILES))
    fields = {
        "version": debian_version(version()),
        "architecture": architecture,
        "python": wheels.distribution_python().name,
        "distribution": platform.freedesktop_os_release()["PRETTY_NAME"],
        "kib": sum(-(-path.stat().st_size // 1024) for path in files),
    }
    _place(folder / "control", (_TEMPLATES / "control").read_text().format(**fields))
    for name in _SCRIPTS:
        shutil.copy(_TEMPLATES / name, folder)
        (folder / name).chmod(0o755)
    normalise(root)


def _changelog() -> str:
    """CHANGELOG.md as dpkg reads it; what is not released yet belongs to the version of this package."""
    newest, *releases = re.split(r"(?m)^## ", (ROOT / "CHANGELOG.md").read_text())[1:]
    unreleased = newest.partition("\n")[2]
    entries = []
    for release in releases:
        heading, _, changes = release.partition("\n")
        number, date = re.findall(r"\[(.+)\] - (\S+)", heading)[0]
        lines = f"{unreleased}\n{changes}".strip().splitlines()
        body = "\n".join(_changelog_line(line) for line in lines if line)
        day = format_datetime(datetime.fromisoformat(f"{date}T00:00:00+00:00"))
        head = f"criproxy ({debian_version(number)}) unstable; urgency=medium"
        entries.append(f"{head}\n\n{body}\n\n -- criproxy maintainers <criproxy@localhost>  {day}\n")
        unreleased = ""
    return "\n".join(entries)


def _changelog_line(line: str) -> str:
    """A heading in brackets, an item with an asterisk, and other lines indented."""
    if heading := re.fullmatch(r"#+ (.*)", line):
        return f"  [ {heading[1]} ]"
    return f"  * {line[2:]}" if line.startswith("- ") else f"  {line}"


def _place(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _completion(shell: str) -> str:
    """What `criproxy completion SHELL` prints."""
    return CliRunner().invoke(main, ["completion", shell], catch_exceptions=False).output


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
