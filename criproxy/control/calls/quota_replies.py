"""Replies about containers whose CFS quota was lifted, said as the kubelet asked: it compares that with what it wants.

Edits are synchronous and ask nothing: all that they need is in the node, or in the container's stamp.
"""

from dataclasses import dataclass

from criproxy.control.calls.failure_notices import note_failed
from criproxy.control.context import Context
from criproxy.cri import api_pb2 as api
from criproxy.cri.methods import paths
from criproxy.cri.sizes import stamped_quota
from criproxy.cri.stamp import read_stamp
from criproxy.cri.statuses import STATUSES, as_asked
from criproxy.model.resources import CfsQuota
from criproxy.wire.calls import Call, EditHandler, Rule, Table


@dataclass(frozen=True, slots=True)
class Replies:
    """The handlers of edited replies."""

    context: Context

    def table(self) -> Table:
        """The rules of all methods that report the resources of containers, in both packages of CRI."""
        return {path: Rule(edit=self._editor(name)) for name in STATUSES for path in paths(name)}

    def _editor(self, name: str) -> EditHandler:
        def edit(call: Call, message: bytes) -> bytes | None:
            try:
                return as_asked(name, message, self._asked)
            except Exception as error:
                note_failed(self.context, call, error, message=message)
                raise  # the data plane counts and logs it

        return edit

    def _asked(self, status: api.ContainerStatus) -> CfsQuota | None:
        """The quota that the kubelet asked for, if the container is ours: only then may we have lifted it."""
        if known := self.context.state.node.containers.get(status.id):
            return known.asked_quota if known.reservation else None
        stamp = read_stamp(status.annotations)
        return stamped_quota(stamp) if stamp else None
