"""The software bill of materials (CycloneDX, JSON): what the packages contain besides criproxy.

That is the libraries, with their licences, and Debian's packages, which only the image contains.
"""

import hashlib
import json
import tempfile
import uuid
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import Message
from email.parser import Parser
from pathlib import Path

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from packager import debian, python, wheels
from packager.source import LOCK, date_s, version

_NAMESPACE = uuid.UUID("a5b1b0e6-6d4c-4f0e-9f1b-3a9a3c1f7d52")
_OF_IMAGE = Property(name="criproxy:package", value="image")
"""Marks what only the image contains."""


def build(target: Path) -> Path:
    """Write the bill to the folder *target*, always the same for the same libraries and the same commit."""
    wheels.fetch()
    with tempfile.TemporaryDirectory() as scratch:
        bom = _bill((python.wheel(Path(scratch)), *wheels.files()))
    written = target / f"criproxy-{version()}.sbom.json"
    written.write_text(json.dumps(json.loads(JsonV1Dot6(bom).output_as_string()), indent=1) + "\n")
    return written


def _bill(files: tuple[Path, ...]) -> Bom:
    """The bill of our wheel, which is the first of *files*, and of the others."""
    found = {file: _metadata(file) for file in files}
    components = {_name(about): _component(wheel, about) for wheel, about in found.items()}
    root = components["criproxy"]
    libraries = [each for each in components.values() if each is not root]
    serial = _serial(files[0], LOCK, *debian.packages().values())
    bom = Bom(components=[*libraries, *_of_debian()], serial_number=serial)
    bom.metadata = BomMetaData(timestamp=datetime.fromtimestamp(date_s(), UTC), component=root)
    for about in found.values():
        needed = (components[name] for name in _needs(about) & set(components))
        bom.register_dependency(components[_name(about)], needed)
    return bom


def _component(wheel: Path, about: Message) -> Component:
    name = _name(about)
    url = PackageURL("pypi", None, name, about["Version"])
    return Component(
        name=name,
        version=about["Version"],
        type=ComponentType.APPLICATION if name == "criproxy" else ComponentType.LIBRARY,
        bom_ref=str(url),
        purl=url,
        description=about["Summary"],
        licenses=[LicenseFactory().make_from_string(_licence(about))],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=_sum(wheel))],
    )


def _of_debian() -> Iterator[Component]:
    """The packages of which the image is made."""
    release, controls = debian.release(), debian.described()
    for name, deb in debian.packages().items():
        about = Parser().parsestr(controls[name])
        where = {"arch": about["Architecture"], "distro": f"{release['ID']}-{release['VERSION_ID']}"}
        url = PackageURL("deb", release["ID"], name, about["Version"], where)
        yield Component(
            name=name,
            version=about["Version"],
            type=ComponentType.LIBRARY,
            bom_ref=str(url),
            purl=url,
            description=about["Description"].partition("\n")[0],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=_sum(deb))],
            properties=[_OF_IMAGE],
        )


def _licence(about: Message) -> str:
    """What the library says, in the newest of the ways in which it can."""
    classified = (each.rpartition(":: ")[2] for each in about.get_all("Classifier", []) if "License ::" in each)
    return str(about["License-Expression"] or about["License"] or next(classified, ""))


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1)
        return Parser().parsestr(files.read(name).decode())


def _name(about: Message) -> str:
    return canonicalize_name(about["Name"])


def _needs(about: Message) -> set[str]:
    """The names of the libraries that a library needs here, without its extras."""
    requirements = map(Requirement, about.get_all("Requires-Dist", []))
    here = {"python_version": wheels.minor(), "extra": ""}
    return {canonicalize_name(each.name) for each in requirements if each.marker is None or each.marker.evaluate(here)}


def _serial(*files: Path) -> uuid.UUID:
    return uuid.uuid5(_NAMESPACE, " ".join(map(_sum, files)))


def _sum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
