"""What NRI cannot do, as `docs/nri.md` says it: the only reasons for which a test may expect something else of it."""

import re

from tests.conftest import ROOT

CHANGED_ANNOTATIONS = "Pod annotations that change after the pod was created"
PRIVILEGED = "`devices.privileged`, and exceptions for images"
ON_ERROR = "`onError: refuse`"
IMAGES = "Variables of an image"
REASONS = "Reasons of quotas and of unhealthy cards in the status of containers"
QUOTAS = "Quotas in `kubectl get pod -o yaml`"
OTHER_CALLS = "Calls about images, exec and statistics"
OLD_PODS = "The end of pods from before a restart of containerd"
OTHER_CLASSES = "RDT and block I/O classes of the runtime's own configuration"
ENDS_OF_PODS = "The end of pods from before a restart of containerd"
_ROW = re.compile(r"^\| (?!Feature )(.+?) \| (.+?) \|$", re.MULTILINE)


def table() -> dict[str, str]:
    """What is with NRI, by feature."""
    text = (ROOT / "docs/nri.md").read_text()
    section = text.partition("\n## What NRI cannot do\n")[2].partition("\n## ")[0]
    return dict(_ROW.findall(section))


def cannot(feature: str) -> str:
    """Return the row of a *feature*, as the reason why a test expects something else; without that row, nothing is."""
    return f"{feature}: {table()[feature]} (docs/nri.md, What NRI cannot do)"
