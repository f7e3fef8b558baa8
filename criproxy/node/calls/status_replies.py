"""Edits of replies about containers: show the CFS quota that the kubelet requested, and why criproxy stopped one.

The kubelet compares the quota with the one that it wants, and shows why a container has ended. Edits are synchronous:
they use only the node and the container's stamp.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from criproxy.cri import api_pb2 as api
from criproxy.cri.methods import METHODS, paths
from criproxy.cri.rewrite import STATUSES, as_asked, changed
from criproxy.cri.sizes import stamped_quota
from criproxy.cri.stamp import read_stamp
from criproxy.cri.translate import UnreadableMessage
from criproxy.model.grant import Applied, CpuQuota, Grant
from criproxy.model.node import changed_keys
from criproxy.model.resources import CfsQuota
from criproxy.node.calls.on_error import note_failed
from criproxy.node.context import Context
from criproxy.node.devices.incidents import Incidents
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.rules.attributes.idle_burst import idle_bursts
from criproxy.wire.calls import Call, EditHandler, Rule, Table
from criproxy.wire.message import MessageError


@dataclass(slots=True)
class Replies:
    """The handlers of edited replies."""

    context: Context
    incidents: Incidents
    changed: Callable[[], None]
    """Called when `shows_quotas` changes."""
    shows_quotas: bool = False
    """Whether quotas are shown: only while one is lifted, is not known to be restored, or may be lifted at any time."""
    _lifted: set[str] = field(default_factory=set)
    """Containers with another quota than the kubelet requested, of the node with these grants and applied states."""
    _grants: Mapping[str, Grant] = field(default_factory=dict)
    _applied: Mapping[str, Applied] = field(default_factory=dict)

    def update(self) -> None:
        """Update `shows_quotas`, at a cost that depends only on what has changed: a look at each change of the node.

        Quotas are shown from before the first update that lifts one until after the last one that restores it.
        """
        shown, node = self.shows_quotas, self.context.state.node
        for key in {*changed_keys(self._grants, node.grants), *changed_keys(self._applied, node.applied)}:
            differs = _differs(node.grants.get(key), node.applied.get(key))
            (self._lifted.add if differs else self._lifted.discard)(key)
        self._grants, self._applied = node.grants, node.applied
        policy = self.context.state.policy
        may_lift = options_of(policy).cpu_quota == "lift" or bool(idle_bursts(policy))
        self.shows_quotas = bool(self._lifted) or (may_lift and not node.released)
        if self.shows_quotas is not shown:
            self.changed()

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


def _differs(grant: Grant | None, applied: Applied | None) -> bool:
    if grant is None or grant.quota is CpuQuota.LEFT:
        return False
    return grant.quota is CpuQuota.LIFTED or applied is None or applied.lifted is not False
