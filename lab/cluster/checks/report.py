"""What was checked: a line each, with figures."""

import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from lab.cluster.process import ClusterError

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster

Check = Callable[["Cluster"], Awaitable[str]]
"""Something to be checked, which its docstring names; it returns figures."""


class Report:
    """Prints ``ok`` or ``FAILED``, what was checked, how long it took, and what was found."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.passed = 0
        self._begun = time.monotonic()

    def line(self, good: bool, name: str, found: str, took_s: float | None = None) -> None:
        """Print one."""
        if good:
            self.passed += 1
        else:
            self.failed.append(name)
        spent = f" ({took_s:.1f} s)" if took_s is not None else ""
        print(f"{'ok    ' if good else 'FAILED'} {name}{spent}: {found}", flush=True)

    async def check(self, check: "Check", cluster: "Cluster") -> bool:
        """Do it: what it returns are its figures, what it raises is why it failed; whether it is good."""
        name = (check.__doc__ or check.__name__).strip().splitlines()[0].rstrip(".")
        begun = time.monotonic()
        try:
            found = await check(cluster)
        except (ClusterError, AssertionError, TimeoutError) as error:
            text = str(error).strip() or traceback.format_exc(limit=-2)
            self.line(False, name, text, time.monotonic() - begun)
            return False
        self.line(True, name, found, time.monotonic() - begun)
        return True

    def end(self) -> int:
        """Print how it went; the exit status."""
        spent = time.monotonic() - self._begun
        of = f"{self.passed} of {self.passed + len(self.failed)} checks are ok, {spent:.0f} s"
        print(f"cluster: {of}" + "".join(f"\n  FAILED {name}" for name in self.failed), file=sys.stderr)
        return bool(self.failed)
