"""Edits of replies about containers: show the CFS quota that the kubelet requested, and why criproxy stopped one.

The kubelet compares the quota with the one that it wants, and shows why a container has ended. Edits are synchronous:
they use only the node and the container's stamp.
"""

from dataclasses import dataclass

from criproxy.cri import api_pb2 as api
from criproxy.cri.messages.sizes import stamped_quota
from criproxy.cri.messages.stamp import read_stamp
from criproxy.cri.messages.statuses import STATUSES, as_asked, changed
from criproxy.cri.messages.translate import UnreadableMessage
from criproxy.cri.methods.methods import METHODS, paths
from criproxy.model.resources import CfsQuota
from criproxy.node.calls.failure_notices import note_failed
from criproxy.node.context import Context
from criproxy.node.devices.incidents import Incidents
from criproxy.wire.calls import Call, EditHandler, Rule, Table
from criproxy.wire.message import MessageError


@dataclass(frozen=True, slots=True)
class Replies:
    """The handlers of edited replies."""

    context: Context
    incidents: Incidents

    def table(self, *, streams_only: bool = False) -> Table:
        """Return the rules of the methods that report statuses of containers, in both packages of CRI.

        Args:
            streams_only: only streams, because there is nothing to edit now; a stream may last until there is.
        """
        names = [name for name in STATUSES if METHODS[name].server_streaming or not streams_only]
        return {path: Rule(edit=self._editor(name)) for name in names for path in paths(name)}

    def _editor(self, name: str) -> EditHandler:
        def edit(call: Call, message: bytes) -> bytes | None:
            try:
                asked = as_asked(name, message, self._asked)
                edited = changed(name, asked or message, self.incidents.marks(), self.incidents.edit)
            except UnreadableMessage as error:  # the runtime's fault: counted, and passed on as it is
                raise MessageError(str(error)) from error
            except Exception as error:
                note_failed(self.context, call, error, message=message)
                raise  # the data plane counts and logs it
            return edited or asked

        return edit

    def _asked(self, status: api.ContainerStatus) -> CfsQuota | None:
        """Return the quota that the kubelet requested, if criproxy placed the container and so may have lifted it."""
        if known := self.context.state.node.containers.get(status.id):
            return known.asked_quota if known.reservation else None
        stamp = read_stamp(status.annotations)
        return stamped_quota(stamp) if stamp else None
