"""``criproxy`` that loses patience soon, for tests from outside: ``python -m tests.hasty serve …``.

With ``BLIND`` in the environment, what looks for problems has a defect.
"""

import os

from criproxy.__main__ import run
from criproxy.api.page import stream
from criproxy.api.views import status_check
from criproxy.api.views.situation import Situation
from criproxy.daemon import behind, problems
from criproxy.node.settings import Settings

SILENT_S = 3.0
"""How long a kubelet may be silent."""


def fail(situation: Situation) -> status_check.Found:
    """Find nothing."""
    raise TypeError(f"planted, at {len(situation.node.containers)} containers")


if __name__ == "__main__":
    if os.environ.get("BLIND"):
        status_check.find = fail
    problems.SILENT_S, problems.NEVER_S = SILENT_S, 0.0
    stream.TICK_S = behind.FILES_S = 0.2
    defaults = Settings.__init__.__kwdefaults__ or {}
    defaults["drift_period_s"] = 0.2
    run()
