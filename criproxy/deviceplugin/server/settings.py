"""Timeouts, limits, counters and states of the device plugin."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

LARGEST_LIST_BYTES = (4 << 20) - 1024
"""The kubelet accepts messages of 4 MiB, and drops a plugin that sends a larger one."""
MANY_IDS = 10_000
"""With more IDs, the kubelet becomes slow: it goes through all of them for each pod."""

Way = Literal["kubelet.sock", "plugins_registry"]
"""How plugins register: the plugin calls the kubelet, or the kubelet finds the plugin's socket in a directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Timeouts and pauses of all parts."""

    preference_s: float = 0.2
    """After this time, the kubelet gets IDs in plain order."""
    register_s: float = 5.0
    """Timeout for the registration call, during which the kubelet dials back."""
    stream_s: float = 10.0
    """Time after a registration within which the kubelet must have opened the stream."""
    first_pause_s: float = 1.0
    """Pause before the kubelet, or a directory with a problem, is tried again; it doubles each time."""
    longest_pause_s: float = 30.0
    settle_s: float = 0.3
    """Time after the end of a stream in which it becomes clear whether the kubelet stops, too."""
    replaced_pauses_s: tuple[float, ...] = (30.0, 300.0)
    """Pauses before a plugin registers again that another one may have replaced; the last one repeats. The other may
    have been a previous process that ended soon after; if it still runs, each attempt takes the resource from it."""
    poll_s: float = 0.4
    """How often a directory is polled that the kernel does not watch."""
    beside_events_s: float = 10.0
    """How often a directory is polled that the kernel watches: a file system may not report everything."""
    flush_s: float = 1.0
    """How long a plugin that ends waits for the kubelet to receive its last list."""
    in_use_s: float = 5.0
    """How often the kubelet is queried for the IDs in use while IDs are listed only because they are in use."""
    learn_s: float = 1.0
    """How long startup waits for the kubelet to report the IDs in use."""
    first_answer_s: float = 2.0
    """How much longer IDs wait for it once there is a kubelet: until then, none of them is healthy."""
    in_use_soon_s: float = 0.1
    """Delay between a change and the first query."""


class State(Enum):
    """The states of one resource's plugin."""

    STARTING = "starting"
    NO_SOCKET = "no socket"
    """There is a problem with the directory, or another process has the socket."""
    NO_KUBELET = "no kubelet"
    """Served; there is no kubelet."""
    REFUSED = "refused"
    """Served; the kubelet rejects it."""
    REPLACED = "replaced"
    """Served; the kubelet has ended the stream: another plugin may have registered the resource."""
    UNREGISTERED = "unregistered"
    """Served; the kubelet has not connected yet."""
    REGISTERED = "registered"
    """The kubelet has its list."""
    ENDED = "ended"


@dataclass(slots=True)
class Counts:
    """Counters of one resource since startup."""

    served: int = 0
    """Sockets created: one, and one more for each that was removed."""
    registered: int = 0
    refused: int = 0
    replaced: int = 0
    """How often the kubelet ended the stream but kept running."""
    lists: int = 0
    """Lists sent."""
    allocated: int = 0
    """Containers for which Allocate succeeded."""
    allocations_refused: int = 0
    preferred: int = 0
    preferences_late: int = 0
    preferences_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of one resource's plugin."""

    resource: str
    state: State
    text: str = ""
    """One sentence about what is wrong; empty if nothing is."""
    since_s: float = 0.0
    """Time of the last change of *state*, in seconds since the epoch."""
    socket: str = ""
    devices: int = 0
    healthy: int = 0
    held: int = 0
    """Devices that are gone and listed only because containers have them."""
    left_out: int = 0
    """Devices for which a message to the kubelet has no room."""
    counts: Counts = field(default_factory=Counts)
