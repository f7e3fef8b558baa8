"""The settings of the controller."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from criproxy.devices.rules import DeviceRules


class OnError(Enum):
    """What becomes of a held call when our own code fails."""

    SHARED = "shared"
    """A new container goes on with the last known shared set; everything else that is held is refused."""
    PASS = "pass"  # noqa: S105 (no password)
    """A create or a resize goes on as the kubelet sent it; its container gets its CPUs before it starts."""
    REFUSE = "refuse"


class Promote(Enum):
    """Which Guaranteed containers that share, and should have exclusive CPUs, get them when there is room."""

    DEFAULT = ""
    """Those that came while criproxy failed or was bypassed."""
    OFF = "off"
    """None."""
    WHEN_FREE = "when-free"
    """All: also those that were found running, and those that shared before the policy changed."""


class Adopt(Enum):
    """What becomes of a container that is found and that criproxy did not place."""

    PIN = "pin"
    """It gets a place like any other: it stays where it is, but for exclusive CPUs of others."""
    WATCH = "watch"
    """It is left alone, and no CPU that it is on becomes exclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """How patient we are with the disk."""

    timeout_s: float = 2.0
    """After so long a write counts as failed; it may still succeed, and none is begun before it ends."""
    retry_pause_s: float = 1.0
    """Pause before a failing disk is tried again; it doubles up to `retry_limit_s`."""
    retry_limit_s: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits:
    """How long a create, or an adoption, waits for what tells of cards; each of these may hang for ever."""

    look_s: float = 1.0
    """For a scan of the machine's cards, a file or folder of the kubelet or of MPS, and the runtime's answer."""
    drivers_s: float = 0.5
    """For all files of a driver together, within a scan."""
    source_s: float = 1.5
    """For all that the kubelet tells; that ends before by a bound of its own, to report what it has."""
    adoption_s: float = 2.0
    """How long the containers of one list may wait for the kubelet, which knows where the cards of unknown ones are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits and switches of one controller."""

    policy_name: str = ""
    """Of the policy in force, as in the policy file; for people."""
    on_error: OnError = OnError.SHARED
    adopt: Adopt = Adopt.PIN
    promote: Promote = Promote.DEFAULT
    promote_pause_s: float = 1.0
    """How long a container that should have more waits at the most before it is looked again whether it may have it."""
    promote_quiet_s: float = 0.1
    """How long after one look the next one comes at the earliest: on a busy node everything changes all the time."""
    resize_silence_s: float = 600.0
    """The kubelet repeats a refused resize every second, a few minutes apart at the most: after so long it does not."""
    apply_all: bool = False
    """Whether another configuration places all containers anew, or new ones only."""
    devices: DeviceRules | None = None
    """What containers may see of accelerators; None: devices are left alone."""
    device_limits: DeviceLimits = DeviceLimits()
    configuration: str = ""
    """A digest of the configuration: another one than the node's last ends a release."""
    barrier_timeout_s: float = 10.0
    """How long StartContainer waits for others to give up CPUs, and a call of the kubelet for what is in flight at its
    container."""
    resync_timeout_s: float = 30.0
    """How long a held call waits for the first resync."""
    handler_timeout_s: float = 60.0
    """What a held call may take with us before it is answered as `on_error` says: more than all our own waits
    together, and less than the two minutes after which the kubelet gives up."""
    bypass_timeout_s: float = 2.0
    """The same for creates while the bypass has switched itself on."""
    resync_interval_s: float = 60.0
    """How often the runtime is asked what runs, beside the times when something has happened to it."""
    unknown_pause_s: float = 5.0
    """Pause before each of the two lists that settle a create without an answer, or show what cut removals left."""
    concurrent_updates: int = 16
    """Updates of ours that the runtime gets at once."""
    retry_pause_s: float = 0.2
    """Pause after the first failed update; it doubles up to `retry_limit_s`."""
    retry_limit_s: float = 30.0
    store: StoreLimits = StoreLimits()
    exit_list_s: float = 10.0
    """How often the runtime is asked which containers have exited, where it sends no events."""
    exit_list_beside_events_s: float = 60.0
    """The same where it does: runtimes drop events that are not fetched in time."""
    drift_period_s: float = 5.0
    """How long it takes to read the cgroups of all containers once; then it begins again."""
    lost_after_s: float = 3.0
    """So long after the runtime calls a container exited its processes may still end by themselves; after a cut start
    that takes 0.3 to 1.4 s. Only then `status` says that the runtime has lost them; the place stays from the first."""
    host_root: Path = Path("/")
    """Prefix of /proc and /sys/fs/cgroup."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The policy file in effect, for people who compare nodes."""

    file: str = ""
    """Empty where none is in effect."""
    hash: str = ""
    """The first `HASH_DIGITS` digits of the file's SHA-256 digest."""
    at_s: float = 0.0
    """When it came into effect, in seconds since the epoch."""


HASH_DIGITS = 12
"""Enough to tell the files of a cluster apart; ``sha256sum`` prints the same digits first."""


@dataclass(slots=True)
class InForce:
    """Which configuration is in force at this moment."""

    settings: Settings
    problem: str | None = None
    """Why the configuration in the file is not the one in force; None where it is."""
    instead: str = ""
    """What is in force in its place, in a sentence."""
    loaded: Loaded = Loaded()
