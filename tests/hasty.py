"""``criproxy`` that loses patience soon, for tests from outside: ``python -m tests.hasty serve …``."""

from criproxy.__main__ import run
from criproxy.api.page import stream
from criproxy.control.settings import Settings
from criproxy.daemon import behind, problems

SILENT_S = 3.0
"""How long a kubelet may be silent."""


if __name__ == "__main__":
    problems.SILENT_S, problems.NEVER_S = SILENT_S, 0.0
    stream.TICK_S = behind.FILES_S = 0.2
    defaults = Settings.__init__.__kwdefaults__ or {}
    defaults["drift_period_s"] = 0.2
    run()
