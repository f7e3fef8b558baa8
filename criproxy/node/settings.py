"""The settings of the controller."""

import time
from dataclasses import dataclass
from enum import Enum
from math import inf
from pathlib import Path

from criproxy.devices.device_rules import DeviceRules
from criproxy.model.text.notices import Values, timestamp


class OnError(Enum):
    """How criproxy continues with a held call when its own code fails."""

    SHARED = "shared"
    """A new container gets the last known shared CPUs; all other held calls are refused."""
    PASS = "pass"  # noqa: S105 (no password)
    """A create or a resize continues as the kubelet sent it; its container gets its CPUs before it starts."""
    REFUSE = "refuse"


class Promote(Enum):
    """Which shared Guaranteed containers that should have exclusive CPUs get them when there is room."""

    DEFAULT = ""
    """Those created while criproxy failed or was bypassed."""
    OFF = "off"
    """None."""
    WHEN_FREE = "when-free"
    """All, including adopted containers and those that shared before the policy changed."""


class Adopt(Enum):
    """How criproxy treats a running container that it did not place."""

    PIN = "pin"
    """It gets a place like any other: it stays where it is, except on exclusive CPUs of others."""
    WATCH = "watch"
    """It is left alone, and none of its CPUs becomes exclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Timeouts and retries of writes to the disk."""

    timeout_s: float = 2.0
    """When a write counts as failed; it may still succeed, and no other write begins before it ends."""
    retry_pause_s: float = 1.0
    """Pause before a failed write is retried; it doubles up to `retry_limit_s`."""
    retry_limit_s: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits:
    """How long a create, or an adoption, waits for the sources of evidence about cards; each may hang for ever."""

    scan_s: float = 1.0
    """For a scan of the machine's cards, a file or folder of the kubelet or of MPS, and the runtime's answer."""
    drivers_s: float = 0.5
    """For all files of a driver together, within a scan."""
    source_s: float = 1.5
    """For all queries to the kubelet; they have a shorter limit themselves, to report what they have so far."""
    adoption_s: float = 2.0
    """How long the containers of one list may wait for the kubelet, which knows the cards of unknown containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits and switches of one controller."""

    policy_name: str = ""
    """The name of the policy in force, as in the policy file; for people."""
    on_error: OnError = OnError.SHARED
    adopt: Adopt = Adopt.PIN
    promote: Promote = Promote.DEFAULT
    promote_pause_s: float = 1.0
    """The longest wait until a container that should have more is checked again."""
    promote_quiet_s: float = 0.1
    """The shortest pause between two such checks: a busy node changes all the time."""
    resize_silence_s: float = 600.0
    """When a refused resize counts as taken back: the kubelet repeats one every second to every few minutes."""
    apply_all: bool = False
    """Whether a new configuration places all containers again, or only new ones."""
    devices: DeviceRules | None = None
    """Which cards containers may see; None: criproxy leaves devices alone."""
    device_limits: DeviceLimits = DeviceLimits()
    configuration: str = ""
    """A digest of the configuration: if it differs from the node's last one, a release ends."""
    moves_created: bool = True
    """Whether containers are moved that were not started. Not with NRI: the runtime holds a lock while it asks about a
    start, so no update ends meanwhile, and one that meets a start is lost."""
    barrier_timeout_s: float = 10.0
    """How long StartContainer waits for others to give up CPUs, and a call of the kubelet for other calls about its
    container that are in flight."""
    resync_timeout_s: float = 30.0
    """How long a held call waits for the first resync."""
    handler_timeout_s: float = 60.0
    """How long criproxy may hold a call before `on_error` applies: longer than all waits of criproxy together, and
    shorter than the two minutes after which the kubelet gives up."""
    bypass_timeout_s: float = 2.0
    """The same for creates during an automatic bypass."""
    durable_s: float = inf
    """How long a call waits until what was decided about it is on disk; afterwards, it continues without."""
    resync_interval_s: float = 60.0
    """How often criproxy lists the runtime's containers, in addition to the times after it was unavailable."""
    answer_check_s: float = 20.0
    """How often the runtime is asked in between whether it answers at all."""
    unknown_pause_s: float = 5.0
    """Pause before each of the two lists that resolve a create without an answer, or show what cut removals left."""
    create_pause_s: float = inf
    """The longest pause before one that resolves a create or resize without an answer. Short with NRI: if the runtime
    makes the container after all, with CPUs that others have got by then, its start is refused."""
    concurrent_updates: int = 16
    """Updates that criproxy sends to the runtime at the same time."""
    retry_pause_s: float = 0.2
    """Pause after the first failed update; it doubles up to `retry_limit_s`."""
    retry_limit_s: float = 30.0
    store: StoreLimits = StoreLimits()
    exit_list_s: float = 10.0
    """How often criproxy lists the exited containers if the runtime sends no events."""
    exit_list_beside_events_s: float = 60.0
    """The same if it sends events: runtimes drop events that are not fetched in time."""
    drift_period_s: float = 5.0
    """The period in which the cgroups of all containers are read once."""
    lost_after_s: float = 3.0
    """How long the processes of a container may take to end after the runtime reports that it has exited; after a cut
    start that takes 0.3 to 1.4 s. Only then `status` reports that the runtime has lost them; the container keeps its
    place from the beginning."""
    host_root: Path = Path("/")
    """Prefix of /proc and /sys/fs/cgroup."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The policy file in effect, for people who compare nodes."""

    file: str = ""
    """Empty where none is in effect."""
    hash: str = ""
    """The hash of its text, see `sources.hash_of`."""
    at_s: float = 0.0
    """When it came into effect, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A configuration in effect that is not the policy file's."""

    back_file: str = ""
    """The policy file that comes back, or that is not in effect."""
    back_hash: str = ""
    """As `Loaded.hash`; empty if there is none."""
    until_s: float = 0.0
    """When it comes back, in seconds since the epoch; 0: the configuration in effect was kept."""
    latest_s: float = inf
    """When it comes back at the latest, by `time.monotonic`: also if somebody sets the machine's clock back."""

    @property
    def remaining_s(self) -> float:
        """In how many seconds the former configuration comes back; negative if it should be back already.

        0 if the present one was kept.
        """
        return min(self.until_s - time.time(), self.latest_s - time.monotonic()) if self.until_s else 0.0

    @property
    def left_s(self) -> float:
        """The same, but never negative."""
        return max(0.0, self.remaining_s)

    @property
    def ends_s(self) -> float:
        """When that is on the machine's clock as it is now, in seconds since the epoch; 0 if never."""
        set_back_s = self.until_s - time.time() - self.left_s
        return self.until_s - set_back_s if set_back_s > CLOCK_SET_S else self.until_s


CLOCK_SET_S = 1.0
"""A machine's clock that differs by more from the running time was set."""


@dataclass(slots=True)
class InForce:
    """The configuration in force."""

    settings: Settings
    problem: str | None = None
    """Why the configuration in the file is not in force; None if it is."""
    instead: str = ""
    """Which configuration is in force instead, in a sentence."""
    loaded: Loaded = Loaded()
    trial: Trial | None = None
    """Set while the configuration in force was brought by ``criproxy reload --try``, and not by the policy file."""
    trial_problem: str = ""
    """Why the former configuration could not come back in time, or what else is wrong with the trial; empty if nothing
    is."""

    def said(self) -> Values:
        """Return which file is in effect, and whether it is tried or kept, for the answers of commands.

        ``until`` is when the former configuration comes back; None if the file is not tried.
        """
        trial = self.trial
        until = timestamp(trial.ends_s) if trial and trial.until_s else None
        kept = trial is not None and until is None
        return {"file": self.loaded.file, "until": until, "kept": kept, "policy_file": self.policy_file}

    @property
    def policy_file(self) -> str:
        """How the policy file compares with what is in effect: ``same``, ``different``, ``missing`` or ``invalid``."""
        if self.problem is not None:
            return "invalid"
        if self.trial is None:
            return "same"
        return "different" if self.trial.back_hash else "missing"
