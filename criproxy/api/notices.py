"""Notices of `status` and `status --check` about criproxy itself; `api.views.status_check` has those about the node."""

from collections.abc import Iterable, Iterator
from time import monotonic

from criproxy import __version__
from criproxy.api.views.devices.device_plugin import (
    notice_of_absence,
    notice_of_silence,
    notice_of_start,
    notices_of_cards,
    notices_of_plugin,
    notices_of_usage,
    notices_of_version,
)
from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.devices.plugin.published import SHORTEST_STALE_S
from criproxy.devices.usage.card_grants import grants
from criproxy.devices.usage.values import Grant
from criproxy.model.text.amounts import format_seconds
from criproxy.model.text.bounded import bounded_texts
from criproxy.model.text.notices import Notice
from criproxy.model.workload import ContainerState
from criproxy.node.containers.cgroups import LEFT_RUNNING
from criproxy.node.controller import Controller
from criproxy.node.sync.ends import LISTS

_KEPT = {
    "different": ("the content of the policy file is different", ", or run 'criproxy reload' to use the file as it is"),
    "invalid": ("the policy file cannot be used", ""),
    "missing": ("there is no policy file", ", or run 'criproxy reload' to go back to running without one"),
}
"""`InForce.policy_file` → what is different from the configuration that was kept, and what else can be done."""


LOST_S = 10.0
"""How long a cgroup must be gone: that of a container that ends goes before the runtime says so."""


class ControllerNotices:
    """Finds what is wrong with the disk, the runtime, the policy file and other parts of the daemon, at one moment."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller

    def now(self) -> Iterator[Notice]:
        """Yield them."""
        controller = self.controller
        context, unasked = controller.context, controller.resync.error
        if not controller.ready:
            why = f" ({unasked})" if unasked else ""
            asking = "criproxy is asking the runtime which containers are running; held calls wait for the answer"
            yield Notice("resync", f"{asking}{why}")
        elif unasked:
            yield Notice("runtime", f"criproxy cannot ask the runtime which containers are running: {unasked}")
        yield from self._of_machine()
        if error := context.persister.error:
            yield Notice("store", f"the state on disk is out of date, so no container gets exclusive CPUs: {error}")
        if problem := context.in_force.problem:
            instead = f"; {context.in_force.instead}" if context.in_force.instead else ""
            yield Notice("config", f"the policy file is not in effect: {problem}{instead}")
        yield from self._of_trial()
        if hanging := controller.devices.problem:
            yield Notice("devices-hanging", hanging)
        if unheard := controller.devices.evidence.unheard:
            yield Notice("no-evidence", unheard)
        yield from self._of_plugin()
        if cpusets := controller.updates.kubelet_cpusets:
            yield Notice("competing-manager", cpusets.sentence())
        for unwritten in context.persister.left_out:
            text = f"the state of {unwritten.title} cannot be stored, so criproxy forgets it when it restarts"
            yield Notice("not-stored", f"{text}: {unwritten.reason}")
        yield from context.failures.notices()
        containers = controller.node.containers
        unreported = ((containers.get(key), why) for key, why in context.cgroups.unreported.items())
        if unknown := [(one.title, why) for one, why in unreported if one and one.state is not ContainerState.EXITED]:
            names = ", ".join(bounded_texts([title for title, _ in unknown], 3))
            yield Notice("untold", f"the runtime does not report the state of {names}: {unknown[0][1]}")
        yield from self._of_unlisted()
        yield from self._of_cgroups()
        if left := [containers[key].title for key in context.in_flight.lost() if key in containers]:
            yield Notice("left-running", f"{LEFT_RUNNING}: {', '.join(left)}")

    def _of_machine(self) -> Iterator[Notice]:
        """What is wrong with the machine, or with the cgroups that divide it."""
        if unread := self.controller.hotplug.error:
            yield Notice("machine", f"the machine has changed, and criproxy cannot read its topology: {unread}")
        if apart := self.controller.hotplug.apart():
            yield Notice("pods-cgroup", apart)

    def _of_unlisted(self) -> Iterator[Notice]:
        """The containers that lists lack for longer than the next lists take to show what became of them."""
        context, containers = self.controller.context, self.controller.node.containers
        late_s = LISTS * context.settings.unknown_pause_s
        late = (key for key in context.in_flight.unlisted() if context.in_flight.unlisted_s(key) >= late_s)
        if titles := [containers[key].title for key in late if key in containers]:
            names = ", ".join(bounded_texts(titles, 3))
            text = "have not ended as far as criproxy can see, so they keep their places"
            yield Notice("unlisted", f"the runtime's lists do not have containers that {text}: {names}")

    def _of_cgroups(self) -> Iterator[Notice]:
        """Cpusets that other programs change, and cgroups that are gone."""
        cgroups, now_s = self.controller.context.cgroups, monotonic()
        if names := self._titles(key for key, until_s in cgroups.fights.items() if until_s > now_s):
            text = "again and again, so that containers may run on CPUs that are exclusive to others; stop that program"
            yield Notice("drift", f"another program changes the cpuset of {names} {text}")
        if names := self._titles(key for key, since_s in cgroups.lost.items() if now_s - since_s >= LOST_S):
            text = "its cgroup is gone: criproxy cannot see on which CPUs it runs"
            yield Notice("cgroup", f"the runtime reports that {names} is running, but {text}")

    def _titles(self, keys: Iterable[str]) -> str:
        """Name the containers *keys* that have not ended; empty if there are none."""
        found = (self.controller.node.containers.get(key) for key in keys)
        return ", ".join(
            bounded_texts([one.title for one in found if one and one.state is not ContainerState.EXITED], 3)
        )

    def _of_trial(self) -> Iterator[Notice]:
        """What is in force in place of the policy file."""
        in_force = self.controller.context.in_force
        if in_force.trial_problem:
            yield Notice("try-problem", in_force.trial_problem)
        if (trial := in_force.trial) is None:
            return
        if not trial.until_s:
            kept = f"{in_force.loaded.file} (hash {in_force.loaded.hash}) was kept and is in effect"
            but, instead = _KEPT[in_force.policy_file]
            remedy = "write the kept configuration to the policy file ('criproxy history config' lists it)"
            yield Notice("config-kept", f"{kept}, but {but}: {remedy}{instead}")
        elif not in_force.trial_problem:
            left = format_seconds(round(trial.left_s))
            back = (
                f"{trial.back_file} (hash {trial.back_hash})" if trial.back_hash else "the state without a policy file"
            )
            text = f"{in_force.loaded.file} (hash {in_force.loaded.hash}) is being tried; in {left}"
            yield Notice("try", f"{text}, {back} comes back unless you run 'criproxy reload --keep'", wrong=False)

    def _of_plugin(self) -> Iterator[Notice]:
        """What is wrong with the device plugin, and with what its watcher reports."""
        plugin, usage, rules = self.controller.device_plugin, self.controller.card_usage, self.controller.devices.rules
        if self.controller.passes_all and rules and rules.watched:
            text = "while bypass is on, criproxy takes no action on containers over their quota; it does afterwards"
            yield Notice("bypass", text)
        if plugin.runs and plugin.report:
            yield from notices_of_plugin(plugin.report)
            yield from notices_of_version(plugin.report, __version__)
            silent = min(usage.silent_s, plugin.runs_s) > SHORTEST_STALE_S and not usage.is_current
            if rules:
                yield from notices_of_usage(rules.watched, rules.without_usage, usage.unknown(), silent=silent)
                if unread := usage.unread():
                    watched = {(one.kind, card) for one, quota in self._vgpus() if quota.watched for card in one.cards}
                    yield from notices_of_cards({key: why for key, why in unread.items() if key in watched})
        elif plugin.refused:
            yield notice_of_start(plugin.refused)
        elif plugin.has_stopped or (plugin.silent_s > SHORTEST_STALE_S and (plugin.is_due or any(self._vgpus()))):
            yield notice_of_silence(plugin.reported_s or None)
        elif plugin.is_missing and rules:
            stocks = self.controller.devices.stocks
            if kinds := [kind for kind in rules.offered if kind in stocks and stocks[kind].cards]:
                yield notice_of_absence(kinds)

    def _vgpus(self) -> Iterator[tuple[Grant, Quota]]:
        """Yield the grants of vGPUs: their quotas are what the device plugin's watcher checks."""
        controller, rules = self.controller, self.controller.devices.rules
        found = grants(controller.node, controller.devices.holdings, rules) if rules else ()
        return ((each, each.quota) for each in found if each.quota)
