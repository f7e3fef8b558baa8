"""The error for updates that the runtime has answered OK but not applied."""

from typing import Self

from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import StatusCode
from criproxy.model.cpuset import format_cpuset, numbered
from criproxy.model.grant import Applied
from criproxy.node.containers.cgroups import LEFT_RUNNING
from criproxy.placement.records.history import quota_text


class UpdateLost(RuntimeCallError):
    """The runtime answered OK to an update, but the cgroup shows other values."""

    @classmethod
    def of(cls, has: Applied, wanted: Applied, *, is_lost: bool) -> Self:
        """Return the error for a container that *has* other values than *wanted*.

        *is_lost*: the runtime has lost its processes, and reports that it does not run.
        """
        text = (
            f"answered OK, but the cgroup has {numbered('CPU', has.cpus)} and memory nodes "
            f"{format_cpuset(has.mems)}{quota_text(has, wanted)} instead of {format_cpuset(wanted.cpus)} and "
            f"{format_cpuset(wanted.mems)}"
        )
        why = f": {LEFT_RUNNING}" if is_lost else ""
        return cls("UpdateContainerResources", StatusCode.ABORTED, text + why)
