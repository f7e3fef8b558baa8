"""Notices of `status` and `status --check` about criproxy itself; `api.views.status_check` has those about the node."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic

from criproxy import __version__
from criproxy.api import controls
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.devices.plugin.published import NOT_YET, SHORTEST_STALE_S, Published, PublishedCard
from criproxy.devices.usage.rows import grants
from criproxy.devices.usage.values import Grant
from criproxy.model.text.amounts import format_seconds
from criproxy.model.text.bounded import bounded_texts
from criproxy.model.text.notices import Notice, difference, timestamp
from criproxy.model.text.sources import node_policy_of
from criproxy.model.workload import Container, ContainerState
from criproxy.node.cgroups import LEFT_RUNNING
from criproxy.node.controller import Controller
from criproxy.node.sync.ends import LISTS

MAX_NAMED = 3
LOST_S = 10.0
"""How long a cgroup must be gone: that of a container that ends goes before the runtime says so."""


def notices_of_plugin(report: Published) -> Iterator[Notice]:
    """Yield problems of the device plugin as a whole, a resource or a class; those of single cards are elsewhere.

    Args:
        report: the last report of a running device plugin.
    """
    if missing := [each for each in report.resources if not each.registered and not each.starting]:
        known = [f"{each.name} ({each.problem})" if each.problem else each.name for each in missing]
        names = ", ".join(bounded_texts(known, MAX_NAMED))
        yield Notice("not-registered", f"the kubelet has not accepted resources of the device plugin: {names}")
    classes: dict[str, list[PublishedCard]] = {}
    for card in report.cards:
        classes.setdefault(card.device_class, []).append(card)
    for kind, cards in classes.items():
        # Those that are unhealthy without a time are not ready yet, or in use under a former id.
        if not any(card.healthy for card in cards) and any(card.since_s is not None for card in cards):
            reasons = ", ".join(bounded_texts(list(dict.fromkeys(card.reason for card in cards)), MAX_NAMED))
            yield Notice("no-healthy-card", f"no card of the class {kind} is healthy, so pods get none: {reasons}")
    if report.refused:
        text = f"the device plugin does not use its present configuration files, but the former ones: {report.refused}"
        yield Notice("device-plugin-config", text)
    if report.nvml:
        yield Notice("nvml", _nvml_text(report))
    if report.unremoved:
        text = "the device plugin cannot remove what containers have left in directories of vGPUs; remove it as root"
        yield Notice("vgpu-directories", f"{text}: {report.unremoved}")
    if compared := difference(__version__, report.version):
        than = f"and the daemon {__version__}"
        if compared != "different":
            than = f"{compared} than the daemon ({__version__})"
        text = f"the device plugin is version {report.version}, {than}"
        yield Notice("device-plugin-version", f"{text}; each ignores fields that it does not know", wrong=False)


def _nvml_text(report: Published) -> str:
    """Why NVML does not answer, since when, and what is offered meanwhile."""
    at = timestamp(report.nvml_since_s) if report.nvml_since_s is not None else ""
    since = f" since {at}" if at else ""
    kept = "the device plugin offers NVIDIA's cards as NVML described them before"
    if report.nvml_pending:
        offers = any(each.healthy for each in report.resources_of(NVIDIA.name))
        offered = "the device plugin offers NVIDIA's cards according to the files of the driver, as whole cards"
        kept = f"until it does, {offered if offers else 'no card of NVIDIA is offered'}"
    if report.nvml != NOT_YET:  # a report of an older version does not say whether there has been an answer
        otherwise = "" if report.nvml_pending else ", and otherwise none"
        return f"NVML has not worked{since}: {report.nvml.rstrip('.')}; {kept}{otherwise}"
    if report.nvml_pending:
        since = f" since the device plugin first queried it at {at}" if at else ""
    return f"NVML has not answered{since}: {kept}"


def notices_of_usage(
    watched: Sequence[str], without_usage: Sequence[str], unknown: Mapping[str, str], *, silent: bool
) -> Iterator[Notice]:
    """Classes whose quotas nobody checks, beside a device plugin that runs.

    Args:
        watched: the classes whose quotas are to be watched.
        without_usage: those of them for which the policy file has no source.
        unknown: by class, why its use is not known.
        silent: whether the watcher reports nothing.
    """
    for kind in watched:
        reason = unknown.get(kind, "the watcher does not report it" if silent else "")
        if kind in without_usage:
            reason = "devices.plugin.usage has no entry for this class"
        if reason:
            yield Notice("usage-unknown", f"criproxy does not check any quota of the class {kind}: {reason}")


def notices_of_cards(unread: Mapping[tuple[str, str], str]) -> Iterator[Notice]:
    """Single cards on which nobody checks the quotas of containers.

    Args:
        unread: by class and card, why its use is not known.
    """
    for kind in dict.fromkeys(kind for kind, _ in unread):
        cards = [f"{card} ({reason})" for (other, card), reason in sorted(unread.items()) if other == kind]
        names = ", ".join(bounded_texts(cards, MAX_NAMED))
        text = f"criproxy does not check any quota on cards of the class {kind} whose use is unknown: {names}"
        yield Notice("usage-unknown", text)


_KEPT = {
    "different": ("the content of the policy file is different", ", or run 'criproxy reload' to use the file as it is"),
    "invalid": ("the policy file cannot be used", ""),
    "missing": ("there is no policy file", ", or run 'criproxy reload' to go back to running without one"),
}
"""`InForce.policy_file` → what is different from the configuration that was kept, and what else can be done."""


def _has_not_ended(container: Container | None) -> bool:
    return container is not None and container.state is not ContainerState.EXITED


class ControllerNotices:
    """Finds what is wrong with the disk, the runtime, the policy file and other parts of the daemon, at one moment."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller

    def now(self) -> Iterator[Notice]:
        """Yield the notices, those about the daemon as a whole first."""
        yield from self._of_runtime()
        yield from self._of_configuration()
        yield from self._of_trial()
        yield from self._of_plugin()
        yield from controls.notices(self.controller)
        yield from self.controller.agent.notices()
        if cpusets := self.controller.updates.kubelet_cpusets:
            yield Notice("competing-manager", cpusets.sentence())
        for row in self.controller.context.persister.left_out:
            text = f"the state of {row.title} cannot be stored, so criproxy forgets it when it restarts"
            yield Notice("not-stored", f"{text}: {row.reason}")
        yield from self.controller.context.failures.notices()
        yield from self._of_containers()
        if lost := self.controller.context.state.unexplained():
            text = f"{lost} decisions since the start came too fast to note what they were chosen from"
            yield Notice("history", f"{text}; the history has their results", wrong=False)
        yield from self._of_cgroups()

    def _of_runtime(self) -> Iterator[Notice]:
        """Yield notices while the runtime has not listed its containers, or the machine cannot be read."""
        error = self.controller.resync.error
        if not self.controller.ready:
            why = f" ({error})" if error else ""
            asking = "criproxy is asking the runtime which containers are running; held calls wait for the answer"
            yield Notice("resync", f"{asking}{why}")
        elif error:
            yield Notice("runtime", f"criproxy cannot ask the runtime which containers are running: {error}")
        if error := self.controller.hotplug.error:
            yield Notice("machine", f"the machine has changed, and criproxy cannot read its topology: {error}")
        if apart := self.controller.hotplug.apart():
            yield Notice("pods-cgroup", apart)

    def _of_configuration(self) -> Iterator[Notice]:
        """Yield notices while the state on disk, the policy file, or what is known of cards is not that in effect."""
        in_force = self.controller.context.in_force
        if error := self.controller.context.persister.error:
            yield Notice("store", f"the state on disk is out of date, so no container gets exclusive CPUs: {error}")
        if in_force.problem:
            instead = f"; {in_force.instead}" if in_force.instead else ""
            yield Notice("config", f"the policy file is not in effect: {in_force.problem}{instead}")
        if hanging := self.controller.devices.problem:
            yield Notice("devices-hanging", hanging)
        if silent := self.controller.devices.evidence.silence:
            yield Notice("no-evidence", silent)

    def _of_containers(self) -> Iterator[Notice]:
        """Yield notices about containers of which the runtime does not say what became of them."""
        context, containers = self.controller.context, self.controller.node.containers
        unreported = context.cgroups.unreported
        if names := self._titles(unreported):  # one reason is enough
            reason = next(unreported[key] for key in unreported if _has_not_ended(containers.get(key)))
            yield Notice("untold", f"the runtime does not report the state of {names}: {reason}")
        late_s = LISTS * context.settings.unknown_pause_s  # by then, the next lists have shown what became of them
        late = (key for key in context.in_flight.unlisted() if context.in_flight.unlisted_s(key) >= late_s)
        if titles := [containers[key].title for key in late if key in containers]:
            names = ", ".join(bounded_texts(titles, MAX_NAMED))
            text = "have not ended as far as criproxy can see, so they keep their places"
            yield Notice("unlisted", f"the runtime's lists do not have containers that {text}: {names}")

    def _of_cgroups(self) -> Iterator[Notice]:
        """Yield notices about cpusets that other programs change, cgroups that are gone, and processes left in them."""
        cgroups, now_s = self.controller.context.cgroups, monotonic()
        if names := self._titles(key for key, until_s in cgroups.fights.items() if until_s > now_s):
            text = "again and again, so that containers may run on CPUs that are exclusive to others; stop that program"
            yield Notice("drift", f"another program changes the cpuset of {names} {text}")
        if names := self._titles(key for key, since_s in cgroups.lost.items() if now_s - since_s >= LOST_S):
            text = "its cgroup is gone: criproxy cannot see on which CPUs it runs"
            yield Notice("cgroup", f"the runtime reports that {names} is running, but {text}")
        containers = self.controller.node.containers
        if titles := [containers[key].title for key in self.controller.context.in_flight.lost() if key in containers]:
            yield Notice("left-running", f"{LEFT_RUNNING}: {', '.join(titles)}")  # updates without effect on processes

    def _titles(self, keys: Iterable[str]) -> str:
        """Name the containers *keys* that have not ended; empty if there are none."""
        containers = self.controller.node.containers
        titles = [containers[key].title for key in keys if _has_not_ended(containers.get(key))]
        return ", ".join(bounded_texts(titles, MAX_NAMED))

    def _of_trial(self) -> Iterator[Notice]:
        """What is in force in place of the policy file."""
        in_force = self.controller.context.in_force
        if in_force.trial_problem:
            yield Notice("try-problem", in_force.trial_problem)
        if (trial := in_force.trial) is None:
            return
        if not trial.until_s and node_policy_of(in_force.loaded.file):
            return  # the cluster wants it, whatever the policy file of this node says
        if not trial.until_s:
            kept = f"{in_force.loaded.file} (hash {in_force.loaded.hash}) was kept and is in effect"
            mismatch, alternative = _KEPT[in_force.policy_file]
            remedy = "write the kept configuration to the policy file ('criproxy history config' lists it)"
            yield Notice("config-kept", f"{kept}, but {mismatch}: {remedy}{alternative}")
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
        if self.controller.context.state.passes_all and rules and rules.watched:
            text = "while bypass is on, criproxy takes no action on containers over their quota; it does afterwards"
            yield Notice("bypass", text)
        if plugin.runs and plugin.report:
            yield from notices_of_plugin(plugin.report)
            silent = min(usage.silent_s, plugin.runs_s) > SHORTEST_STALE_S and not usage.is_current
            if rules:
                yield from notices_of_usage(rules.watched, rules.without_usage, usage.unknown(), silent=silent)
                if unread := usage.unread():
                    watched = {(one.kind, card) for one, quota in self._vgpus() if quota.watched for card in one.cards}
                    yield from notices_of_cards({key: why for key, why in unread.items() if key in watched})
        elif plugin.refused:
            because = "it cannot use its configuration files, so pods get no cards from it"
            yield Notice(
                "device-plugin-config", f"the device plugin does not start, because {because}: {plugin.refused}"
            )
        elif plugin.has_stopped or (plugin.silent_s > SHORTEST_STALE_S and (plugin.is_due or any(self._vgpus()))):
            since = timestamp(plugin.reported_s) if plugin.reported_s else "the daemon started"
            lost = "pods get no cards from it, and criproxy does not check any quota"
            text = f"the device plugin has not reported since {since}: {lost}; is criproxy device-plugin running?"
            yield Notice("device-plugin-silent", text)
        elif plugin.is_missing and rules:
            stocks = self.controller.devices.stocks
            if kinds := [kind for kind in rules.offered if kind in stocks and stocks[kind].cards]:
                cards = f"although devices.plugin of the policy file is to offer this node's cards ({', '.join(kinds)})"
                text = f"the device plugin has not reported since the daemon started, {cards}: pods get no cards"
                yield Notice("device-plugin-silent", f"{text} from it; is criproxy device-plugin running?")

    def _vgpus(self) -> Iterator[tuple[Grant, Quota]]:
        """Yield the grants of vGPUs: their quotas are what the device plugin's watcher checks."""
        controller, rules = self.controller, self.controller.devices.rules
        found = grants(controller.node, controller.devices.holdings, rules) if rules else ()
        return ((each, each.quota) for each in found if each.quota)
