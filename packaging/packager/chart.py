"""The Helm chart, with our version, and with the schema of policy files in that of its values."""

import gzip
import io
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from packager.source import ROOT, date_s, version

_SOURCE = ROOT / "deploy/chart"
_NAME = "criproxy"
_MONITORING = ("alerts.yaml", "dashboard.json")
"""What a PrometheusRule and a ConfigMap of the chart have in them."""


def build(target: Path) -> Path:
    """Write the chart to the folder *target*."""
    archive = target / f"{_NAME}-{semantic_version(version())}.tgz"
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=date_s(), fileobj=raw) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as written,
    ):
        for name, text in files():
            data = text.encode()
            member = tarfile.TarInfo(f"{_NAME}/{name}")
            member.size, member.mtime, member.mode = len(data), date_s(), 0o644
            written.addfile(member, io.BytesIO(data))
    return archive


def files() -> Iterator[tuple[str, str]]:
    """The name and the text of each file of the chart; Helm wants Chart.yaml first."""
    yield "Chart.yaml", _versioned((_SOURCE / "Chart.yaml").read_text())
    yield "values.schema.json", _schema()
    yield "LICENSE", (ROOT / "LICENSE").read_text()
    for name in _MONITORING:
        yield f"files/{name}", (ROOT / "docs/monitoring" / name).read_text()
    for path in sorted(_SOURCE.rglob("*")):
        name = str(path.relative_to(_SOURCE))
        if path.is_file() and name not in ("Chart.yaml", "values.schema.json"):
            yield name, path.read_text()


def semantic_version(number: str) -> str:
    """Our version *number* as Helm wants it, where 1.0.0-rc.1 is before 1.0.0."""
    return re.sub(r"\.?(dev|a|b|rc)(\d+)", r"-\1.\2", number)


def _versioned(text: str) -> str:
    """The chart's description with our version: `appVersion` is the tag of the image."""
    text = re.sub(r"(?m)^version: .*", f"version: {semantic_version(version())}", text)
    return re.sub(r"(?m)^appVersion: .*", f'appVersion: "{version()}"', text)


def _schema() -> str:
    """The schema of the values: a policy has to be one that criproxy takes."""
    schema = json.loads((_SOURCE / "values.schema.json").read_text())
    policy = json.loads((ROOT / "policies/policy.schema.json").read_text())
    del policy["$schema"]
    definitions = policy.pop("definitions")  # to which its references lead, from the top
    schema["definitions"] = definitions | {"policy": policy}
    schema["properties"]["policy"] = {"anyOf": [{"type": "null"}, {"$ref": "#/definitions/policy"}]}
    schema["properties"]["nodePolicies"]["items"]["properties"]["policy"] = {"$ref": "#/definitions/policy"}
    return json.dumps(schema, indent=1) + "\n"
