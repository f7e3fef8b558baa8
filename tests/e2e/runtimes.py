"""The containerds that tests run on: the machine's own in full, newer ones where they could differ."""

from dataclasses import dataclass
from pathlib import Path

from lab.containerd.cgroups import CgroupDriver
from lab.containerd.containerd import PrivateContainerd, available
from tests.runtimes import store


@dataclass(frozen=True, slots=True)
class Runtime:
    """A containerd; its name is the id of the tests on it."""

    name: str
    series: str = ""
    """Of `store.NEWER`; empty is the machine's own."""
    nri: bool = False
    """Whether it takes NRI plugins."""
    is_front: bool = False
    """Whether criproxy is such a plugin, and not between the kubelet and this runtime."""

    def __str__(self) -> str:
        return self.name

    def unavailable(self) -> str | None:
        """Why it cannot run on this machine; None if it can."""
        if self.series and not self.programs():
            return available() or store.missing(store.by_series(self.series))
        return available()

    def prepare(self, cgroup_driver: CgroupDriver = "cgroupfs") -> PrivateContainerd:
        """A private one, which is yet to be started."""
        return PrivateContainerd(cgroup_driver, self.programs(), nri=self.nri, is_front=self.is_front)

    def programs(self) -> Path | None:
        """The folder of its programs; None for the machine's own, or if they were not fetched."""
        return store.find(store.cache_directory(), store.by_series(self.series)) if self.series else None


OWN = Runtime("1.6")
"""Debian 12's; another one where the machine has another."""
PLUGIN = Runtime("1.7-plugin", "1.7", nri=True, is_front=True)
IN_MAKE_TEST = (OWN, Runtime("1.7", "1.7"), PLUGIN)
IN_MAKE_RUNTIMES = (
    Runtime("2", "2"),
    Runtime("2-nri", "2", nri=True),
    Runtime("2-plugin", "2", nri=True, is_front=True),
)
BY_NAME = {runtime.name: runtime for runtime in (*IN_MAKE_TEST, *IN_MAKE_RUNTIMES)}
DIFFERING = (
    *("test_placement", "test_devices", "test_device_plugin", "test_watched_quota"),
    *("test_survival", "test_reboot", "test_unseen", "test_parity"),
)
"""What a newer runtime could change for a proxy: where containers run, what they see, what restarts leave, and what is
answered. As a plugin, criproxy is tried with all files."""
ONLY_PLUGIN = ("test_switch", "test_second_plugin", "test_hanging_handler", "test_long_stop")
"""What only an NRI plugin has."""
ONLY_OWN = ("test_embedded",)
"""What holds of one runtime only: what the embedded one says is what containerd 1.6 says."""
IN_SHORT = (
    "test_a_handler_that_hangs",
    "test_everything_is_remembered_over_a_restart",
    "test_cpusets_that_somebody_else_writes_are_put_back",
    "test_updates_of_the_kubelet_keep_our_cpuset",
    "test_a_container_sees_the_card_that_it_was_given",
    "test_a_card_survives_updates_of_the_cpuset",
    "test_a_restart_of_containerd",
    "test_a_lost_store_is_rebuilt",
    "test_one_that_is_created_past_criproxy",
    "test_one_that_is_created_while_criproxy_is_dead",
    "test_every_method_answers_as_without_the_proxy",
    "test_switching_moves_no_container",
    "test_both_at_once",
    "test_a_second_plugin_that_sets_cpus",
)
"""The tests of these files that `make test` has time for on 1.7; `make thorough` runs the others."""
IN_SHORT_AS_PLUGIN = (
    *IN_SHORT,
    "test_a_life",
    "test_criproxy_is_taken_out",
    "test_a_reload_changes_the_class",
    "test_a_release_puts_everything_back_and_a_bypass_leaves_it",
    "test_an_owner_has_no_quota_until_it_shares",
    "test_watched",
)
"""The same where criproxy is a plugin, which runs the tests of all files."""
GUESTS = (
    "(four-nodes-systemd and (an_owner_gets or a_restart or systemd_puts or no_quota))"
    " or (four-nodes-static and (an_owner_gets or put_right))"
)
"""The checks in guests that `make runtimes` repeats: both cgroup drivers on cgroup v2."""


def tried_on(file: str) -> tuple[Runtime, ...]:
    """The runtimes that the tests of a file run on; those of `make runtimes` come by --runtime."""
    if file in ONLY_PLUGIN:
        return (PLUGIN,)
    if file in ONLY_OWN:
        return (OWN,)
    return IN_MAKE_TEST if file in DIFFERING else (OWN, PLUGIN)


def not_tried(runtime: Runtime, file: str) -> str:
    """Why the tests of a file are not for that runtime; empty if they are."""
    return f"only for containerd {OWN}" if file in ONLY_OWN and runtime != OWN else ""


def files_of(runtime: Runtime) -> tuple[str, ...]:
    """The files that `make runtimes` runs on one of its runtimes."""
    if not runtime.is_front:
        return DIFFERING
    return tuple(sorted({file.stem for file in Path(__file__).parent.glob("test_*.py")} - {*ONLY_OWN}))


def takes_long(runtime: Runtime, test: str) -> bool:
    """Whether the test of that name is left to `make thorough` on that runtime."""
    return runtime != OWN and test not in (IN_SHORT_AS_PLUGIN if runtime.is_front else IN_SHORT)
