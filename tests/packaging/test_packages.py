"""What is in the packages, and that two builds give the same bytes."""

import gzip
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import cyclonedx.schema
import pytest
from jsonschema import Draft7Validator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from criproxy import __version__
from criproxy.cli import COMMANDS
from packager import deb, python
from packager.source import DATE_VARIABLE, date_s
from tests.packaging.building import ROOT, built

PLACES = tuple(
    "./etc/criproxy/ ./opt/criproxy/ ./usr/bin/criproxy ./usr/lib/systemd/system/criproxy ./usr/share/".split()
)
ID = "http://cyclonedx.org/schema/"
"""Of the schemas of CycloneDX, with which they refer to each other."""
UNITS = sorted(path.name for path in (ROOT / "systemd").iterdir() if path.is_file())


@pytest.fixture(scope="module")
def unpacked(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files of the Debian package, and its control files below DEBIAN."""
    root = tmp_path_factory.mktemp("unpacked") / "root"
    subprocess.run(("dpkg-deb", "--raw-extract", package, root), check=True)
    return root


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("wheel", "sdist", "chart"), id="quick"),
        pytest.param(("wheel", "sdist", "deb", "image", "chart", "sbom"), id="all", marks=pytest.mark.thorough),
    ],
)
def test_two_builds_give_the_same_bytes(packages: dict[str, Path], tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """Neither the umask, nor the time zone, nor the language, nor the seed of hashes are in a package."""
    others = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7", DATE_VARIABLE: str(date_s())}
    again = built(tmp_path, *kinds, umask=0o077, **others)

    assert {kind: path.name for kind, path in again.items()} == {kind: packages[kind].name for kind in kinds}
    assert [kind for kind in kinds if again[kind].read_bytes() != packages[kind].read_bytes()] == []


def test_the_wheel_has_the_package_alone(packages: dict[str, Path]) -> None:
    """Tests and tools stay in the repository."""
    with zipfile.ZipFile(packages["wheel"]) as wheel:
        tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert tops == {"criproxy", f"criproxy-{__version__}.dist-info"}


def test_the_sdist_builds_the_same_wheel(packages: dict[str, Path], tmp_path: Path) -> None:
    """It has all sources of the wheel."""
    subprocess.run(("tar", "--extract", "--directory", tmp_path, "--file", packages["sdist"]), check=True)
    python.build(tmp_path / f"criproxy-{__version__}", "build_wheel", tmp_path)
    (again,) = tmp_path.glob("*.whl")
    assert sums(again) == sums(packages["wheel"])


def sums(wheel: Path) -> dict[str, int]:
    """File in a wheel → its checksum."""
    with zipfile.ZipFile(wheel) as files:
        return {info.filename: info.CRC for info in files.infolist()}


def test_the_sdist_has_what_the_other_packages_are_built_from(packages: dict[str, Path]) -> None:
    """Units, policies, the lock file and the templates."""
    with tarfile.open(packages["sdist"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
        owners = {(member.uname, member.gname) for member in sdist}
    assert names >= {"packaging/requirements.lock", "packaging/deb/prerm", "systemd/criproxy.service"}
    assert "policies/default.yaml" in names
    assert owners == {("root", "root")}


def test_all_files_of_the_deb_are_at_places_of_criproxy(package: Path) -> None:
    """They belong to root, and nobody else can write them."""
    listed = subprocess.run(("dpkg-deb", "--contents", package), capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=5) for line in listed.splitlines()]
    files = [row for row in rows if not row[0].startswith("d")]
    assert [row[5] for row in files if not row[5].startswith(PLACES)] == []
    assert {row[1] for row in rows} == {"root/root"}
    assert {row[0] for row in rows} == {"drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx"}


def test_the_deb_has_units_manual_pages_and_completions(unpacked: Path) -> None:
    """Units as in the repository, and a page for each command."""
    share = unpacked / "usr/share"
    for name in UNITS:
        assert (unpacked / "usr/lib/systemd/system" / name).read_bytes() == (ROOT / "systemd" / name).read_bytes()
    pages = {path.name for path in (share / "man/man1").iterdir()}
    assert pages >= {"criproxy.1.gz", *(f"criproxy-{command}.1.gz" for command in COMMANDS)}
    for place in ("bash-completion/completions/criproxy", "zsh/vendor-completions/_criproxy"):
        assert "_CRIPROXY_COMPLETE" in (share / place).read_text()
    assert (unpacked / "DEBIAN/conffiles").read_text() == "/etc/criproxy/policy.yaml\n"


def test_the_deb_does_not_name_the_machine_on_which_it_was_built(unpacked: Path) -> None:
    """All modules are compiled, and name the place at which they are installed."""
    modules = sorted((unpacked / "opt").rglob("*.py"))
    assert [path for path in modules if not list(path.parent.glob(f"__pycache__/{path.stem}.*.pyc"))] == []
    here = re.compile(b"|".join(re.escape(str(place).encode()) for place in (ROOT, sys.prefix, "/tmp/tmp")))
    files = [path for path in unpacked.rglob("*") if path.suffix in (".pyc", ".cfg") or path.parent.name == "bin"]
    assert [path for path in files if not path.is_symlink() and here.search(path.read_bytes())] == []


def test_dpkg_reads_the_changelog_of_the_deb(unpacked: Path) -> None:
    """Without a complaint; its newest version is that of the package, with the changes of CHANGELOG.md."""
    if (parser := shutil.which("dpkg-parsechangelog")) is None:
        pytest.skip("not installed: dpkg-dev")
    file = unpacked / "usr/share/doc/criproxy/changelog.gz"
    text = gzip.decompress(file.read_bytes())
    ended = subprocess.run((parser, "--file", "-"), input=text, capture_output=True, check=True)
    fields = dict(re.findall(r"(?m)^([\w-]+): (.*)$", ended.stdout.decode()))

    assert ended.stderr == b""
    assert (fields["Source"], fields["Version"]) == ("criproxy", deb.debian_version(__version__))
    assert re.search(rf"\b{fields['Date'].split()[3]}\b", (ROOT / "CHANGELOG.md").read_text())
    for bullet in re.findall(r"(?m)^- (.*)$", (ROOT / "CHANGELOG.md").read_text()):
        assert f"  * {bullet}\n" in text.decode()


def test_the_deb_says_where_it_fits(unpacked: Path) -> None:
    """It depends on the Python for which its libraries are compiled, and describes the distribution that has it."""
    control = (unpacked / "DEBIAN/control").read_text()
    (site,) = (unpacked / "opt/criproxy/lib").iterdir()
    link = unpacked / "opt/criproxy/bin/python"
    (name,) = re.findall(r'(?m)^PRETTY_NAME="(.*)"$', Path("/etc/os-release").read_text())

    assert f"\nDepends: {site.name}, " in control
    assert str(link.readlink()) == f"/usr/bin/{site.name}"
    assert f"built on {name}" in " ".join(control.split())


def test_the_sbom_names_all_libraries_with_their_licences(packages: dict[str, Path]) -> None:
    """Each library of the lock file, and whether it is there for criproxy or for another library."""
    bill = json.loads(packages["sbom"].read_text())
    locked = versions(ROOT / "packaging/requirements.lock")
    libraries = [each for each in bill["components"] if each["purl"].startswith("pkg:pypi/")]
    assert {each["name"]: each["version"] for each in libraries} == locked
    assert [each["name"] for each in libraries if not each["licenses"]] == []
    needed = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    assert f"pkg:pypi/grpcio@{locked['grpcio']}" in needed[f"pkg:pypi/criproxy@{__version__}"]
    assert f"pkg:pypi/mdurl@{locked['mdurl']}" in needed[f"pkg:pypi/markdown-it-py@{locked['markdown-it-py']}"]


def test_the_sbom_is_valid(packages: dict[str, Path]) -> None:
    """It follows the schema of CycloneDX."""
    folder = Path(cyclonedx.schema.__file__).parent / "_res"
    known = {file.name: json.loads(file.read_text()) for file in folder.glob("*.schema.json")}
    resources = [(f"{ID}{name}", Resource.from_contents(each, DRAFT7)) for name, each in known.items()]
    judge = Draft7Validator(known["bom-1.6.SNAPSHOT.schema.json"], registry=Registry().with_resources(resources))
    assert [error.message for error in judge.iter_errors(json.loads(packages["sbom"].read_text()))] == []


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param("1.2.3", "1.2.3", id="release"),
        pytest.param("1.2.3rc1", "1.2.3~rc1", id="candidate"),
        pytest.param("1.3.0.dev4", "1.3.0~dev4", id="development"),
    ],
)
def test_versions_are_in_the_order_of_debian(number: str, expected: str) -> None:
    """What is released before 1.2.3 is older than 1.2.3 for dpkg."""
    assert deb.debian_version(number) == expected


def test_packages_have_the_libraries_that_are_tested() -> None:
    """Each library of pyproject.toml is in the lock file of packages, in the version of the one of development."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    locked, tested = versions(ROOT / "packaging/requirements.lock"), versions(ROOT / ".ci/requirements.lock")
    for requirement in map(Requirement, wanted):
        assert locked[canonicalize_name(requirement.name)] in requirement.specifier
    assert locked.items() <= tested.items()


def versions(lock: Path) -> dict[str, str]:
    """Library → the version in a lock file."""
    found = re.findall(r"(?m)^([\w.-]+)(?:\[.*\])?==(\S+)", lock.read_text())
    return {canonicalize_name(name): version for name, version in found}
