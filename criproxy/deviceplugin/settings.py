"""How patient the device plugin is, what it counts, and what it says of itself."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

LARGEST_LIST_BYTES = (4 << 20) - 1024
"""The kubelet takes messages of 4 MiB, and drops a plugin that sends a larger one."""
MANY_IDS = 10_000
"""With more the kubelet gets slow: at each pod it goes through all of them."""

Way = Literal["kubelet.sock", "plugins_registry"]
"""How the kubelet comes to know a plugin: the plugin calls it, or it finds the plugin's socket in a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Limits and pauses of all parts."""

    preference_s: float = 0.2
    """After so long the kubelet gets ids in plain order."""
    register_s: float = 5.0
    """How long a call of the kubelet may take, which dials back meanwhile."""
    stream_s: float = 10.0
    """So long after it registered a plugin the kubelet has to have asked for its list."""
    first_pause_s: float = 1.0
    """Before the kubelet, or a folder with which something is wrong, is tried again; it doubles each time."""
    longest_pause_s: float = 30.0
    settle_s: float = 0.3
    """So long after it ended a stream it shows whether the kubelet ends, too."""
    replaced_pauses_s: tuple[float, ...] = (30.0, 300.0)
    """Before a plugin registers again that another one may have replaced; the last one repeats. The other may have been
    a former process that ended soon after; if it goes on, each try takes the resource away from it."""
    poll_s: float = 0.4
    """How often a folder is looked at that the kernel does not watch for us."""
    beside_events_s: float = 10.0
    """The same where it does: a file system may not report everything."""
    flush_s: float = 1.0
    """How long the end of a plugin waits until the kubelet has its last list."""
    in_use_s: float = 5.0
    """How often the kubelet is asked which ids are in use, while ids are listed only because they are."""
    learn_s: float = 1.0
    """How long a start waits for the kubelet to say which ids are in use."""
    first_answer_s: float = 2.0
    """So long ids wait for it after that, as soon as there is a kubelet: until then none of them is healthy."""
    in_use_soon_s: float = 0.1
    """How long after a change it is asked first."""


class State(Enum):
    """How far one resource's plugin has come."""

    STARTING = "starting"
    NO_SOCKET = "no socket"
    """Something is wrong with the folder, or another process has the socket."""
    NO_KUBELET = "no kubelet"
    """Served; the kubelet is not there."""
    REFUSED = "refused"
    """Served; the kubelet does not take it."""
    REPLACED = "replaced"
    """Served; the kubelet has ended the stream: another plugin may have registered the resource."""
    UNREGISTERED = "unregistered"
    """Served; the kubelet has not come yet."""
    REGISTERED = "registered"
    """The kubelet has its list."""
    ENDED = "ended"


@dataclass(slots=True)
class Counts:
    """Of one resource, since the start."""

    served: int = 0
    """Sockets made: one, and one more for each that was removed."""
    registered: int = 0
    refused: int = 0
    replaced: int = 0
    """How often the kubelet ended the stream and went on itself."""
    lists: int = 0
    """Lists sent."""
    allocated: int = 0
    """Containers that were answered."""
    allocations_refused: int = 0
    preferred: int = 0
    preferences_late: int = 0
    preferences_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What one resource's plugin says of itself."""

    resource: str
    state: State
    text: str = ""
    """Why it has not come further: one sentence; empty where all is well."""
    since_s: float = 0.0
    """Since when, in seconds since the epoch."""
    socket: str = ""
    devices: int = 0
    healthy: int = 0
    held: int = 0
    """Those of them that are gone, and listed only because containers have them."""
    left_out: int = 0
    """Those of them for which a message to the kubelet has no room."""
    counts: Counts = field(default_factory=Counts)
