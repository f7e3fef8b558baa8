"""Updates that the runtime has answered OK and that are not in force, as errors of their own."""

from typing import Self

from criproxy.control.containers.cgroups import LEFT_RUNNING
from criproxy.cri.runtime import RuntimeCallError
from criproxy.engine.history import told_quota
from criproxy.errors import StatusCode
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Applied


class UpdateLost(RuntimeCallError):
    """The runtime answered OK to an update, and the cgroup says otherwise."""

    @classmethod
    def of(cls, has: Applied, wanted: Applied, *, is_lost: bool) -> Self:
        """A container *has* something else than was *wanted*; *is_lost*: the runtime believes that it does not run."""
        text = (
            f"answered OK, but the cgroup has CPUs {format_cpuset(has.cpus)} and memory nodes "
            f"{format_cpuset(has.mems)}{told_quota(has, wanted)} instead of {format_cpuset(wanted.cpus)} and "
            f"{format_cpuset(wanted.mems)}"
        )
        why = f": {LEFT_RUNNING}" if is_lost else ""
        return cls("UpdateContainerResources", StatusCode.ABORTED, text + why)
