"""Defects to plant in criproxy once more, each with the case of the matrix that finds it.

A defect that is mended gets a row here: how it is brought back, which case finds it, and by which sentence.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import pytest

from criproxy.api.views import status_check as report
from criproxy.api.views.situation import Situation
from criproxy.config.settings import Settings
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeClient
from criproxy.daemon import start
from criproxy.devices import holdings
from criproxy.devices.boundary import Finding
from criproxy.devices.card_locality import CardLocation
from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.devices.evidence.device_request import DeviceRequest
from criproxy.devices.evidence.evidence import Evidence, Subject
from criproxy.devices.plugin.enforcement import Enforced
from criproxy.devices.usage.values import Grant
from criproxy.errors import StatusCode
from criproxy.model.text.notices import Notice
from criproxy.model.workload import QosClass
from criproxy.node.calls.update import Updates
from criproxy.node.configuration import try_out
from criproxy.node.devices import create_checks, guard
from criproxy.node.devices.create_checks import Vgpus
from criproxy.node.devices.evidence import DevicePublisher, Gathered
from criproxy.node.devices.incidents import Incidents
from criproxy.nri import api_pb2 as nri
from criproxy.nri import messages
from criproxy.placement.rules import ask
from criproxy.wire.calls import Call, Refuse, Verdict
from tests.matrix.cases import Case
from tests.matrix.trying import TryCase

FEW = 8
"""So many cases are tried for a plant at the most."""
GUARANTEED = QosClass.GUARANTEED
OVER = "plugin, and a vGPU is over its quota"


@dataclass(frozen=True, slots=True)
class Plant:
    """A defect, and how it is caught."""

    bring_back: Callable[[pytest.MonkeyPatch], None]
    words: tuple[str, ...]
    """Of the cases with all of these, one of the first few finds it."""
    sentence: str
    """What is found: a regular expression."""

    def cases(self, known: Sequence[Case | TryCase]) -> Sequence[Case | TryCase]:
        """The first few of the *known* cases with all of its words."""
        return [case for case in known if case.features.issuperset(self.words)][:FEW]


def finding_without_kind(patch: pytest.MonkeyPatch) -> None:
    """A finding about the whole container makes a log line raise."""
    count = DevicePublisher._count

    def broken(self: DevicePublisher, done: Any, evidence: Any) -> None:  # noqa: ANN401
        count(self, done, evidence)
        if any(not finding.kind for finding in done.findings):
            raise TypeError("meth() got multiple values for keyword argument 'container'")

    patch.setattr(DevicePublisher, "_count", broken)


def left_alone_on_all_cpus(patch: pytest.MonkeyPatch) -> None:
    """Whom the policy leaves alone gets no place at all, and nobody keeps it off the CPUs that others own."""
    patch.setattr(ask, "is_left_to_itself", lambda node, policy: True)


def shortage_at_a_resize_of_memory(patch: pytest.MonkeyPatch) -> None:
    """A container that shares is placed anew as an owner when it gets more memory, and there is no room."""
    hold = Updates.hold

    async def broken(self: Updates, call: Call, message: bytes) -> Verdict:
        request = api.UpdateContainerResourcesRequest.FromString(message)
        grant = self.context.state.node.grants.get(request.container_id)
        if request.linux.cpu_shares or not grant or grant.exclusive:
            return await hold(self, call, message)
        return Refuse(StatusCode.RESOURCE_EXHAUSTED, "it asks for 1 exclusive CPU, but 0 are available")

    patch.setattr(Updates, "hold", broken)


def who_should_own_is_not_told(patch: pytest.MonkeyPatch) -> None:
    """--check says nothing of Guaranteed containers that share though they ask for whole CPUs."""
    find = report.find

    def broken(situation: Situation) -> report.Found:
        node, found = situation.node, find(situation)
        alone = {key for key, grant in node.grants.items() if grant.exclusive}
        titles = [one.title for key, one in node.containers.items() if one.qos is GUARANTEED and key not in alone]
        return replace(found, problems=[e for e in found.problems if not any(one in e.text for one in titles)])

    patch.setattr(report, "find", broken)


def unhealthy_cards_are_given_out(patch: pytest.MonkeyPatch) -> None:
    """A container is created although its card is unhealthy: it starts, and is stopped."""
    patch.setattr(guard, "unhealthy_card", lambda *_: None)


def every_section_places(patch: pytest.MonkeyPatch) -> None:
    """Another section devices.plugin is another configuration, and ends a release."""

    def broken(self: Settings) -> str:
        return sha256(repr((self.common, self.options)).encode()).hexdigest()[:16]

    patch.setattr(Settings, "digest", broken)


def reasons_of_stops_are_lost(patch: pytest.MonkeyPatch) -> None:
    """The status of a container that was stopped for its card does not say why."""
    patch.setattr(Incidents, "marks", lambda self: [])


def vgpus_have_many_containers(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether another pod's container has the vGPU still."""

    async def broken(self: Vgpus, given: Gathered, subject: Subject) -> None:
        pass

    patch.setattr(Vgpus, "check_free", broken)


def nobody_is_exempt_from_quotas(patch: pytest.MonkeyPatch) -> None:
    """Containers of exempt namespaces are stopped, too."""
    patch.setattr(Grant, "is_only_observed", False)


def quotas_of_the_adopted_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Of a container that came while criproxy was down, the vGPU is known, and not what it may use."""
    facts_of = holdings.facts_of

    def broken(
        findings: Iterable[Finding],
        evidence: Evidence,
        cards: Sequence[CardLocation],
        nodes: Mapping[str, Sequence[str]],
        quota: Quota | None = None,
    ) -> Mapping[str, Any]:
        return facts_of(findings, evidence, cards, nodes)

    patch.setattr(guard, "facts_of", broken)


def pods_switch_limits_off(patch: pytest.MonkeyPatch) -> None:
    """What a pod says of the limit of its vGPU counts."""

    def broken(asked: DeviceRequest, found: Enforced) -> DeviceRequest:
        return asked

    patch.setattr(create_checks, "as_enforced", broken)


def check_says_nothing(patch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong, --check finds nothing."""
    patch.setattr(report, "find", lambda _: report.WELL)


def check_complains(patch: pytest.MonkeyPatch) -> None:
    """--check complains about a container that is where it should be."""
    find = report.find

    def broken(situation: Situation) -> report.Found:
        found, text = find(situation), "default/first/main should be on CPUs 1-2 but is on 1-2"
        return replace(found, problems=[*found.problems, Notice("misplaced", text)])

    patch.setattr(report, "find", broken)


def updates_go_nowhere(patch: pytest.MonkeyPatch) -> None:
    """What criproxy sends to move others never reaches the runtime, which is said to have answered OK."""

    async def broken(self: RuntimeClient, container_id: str, linux: api.LinuxContainerResources) -> None:
        if not linux.cpu_shares and not linux.memory_limit_in_bytes:  # not what the kubelet sends
            return
        await update(self, container_id, linux)

    update = RuntimeClient.update_container_resources
    patch.setattr(RuntimeClient, "update_container_resources", broken)


def answers_to_nri_say_no_place(patch: pytest.MonkeyPatch) -> None:
    """The rules decide, and the runtime hears nothing of it."""
    patch.setattr(messages, "adjustment", lambda *_: nri.ContainerAdjustment())


def places_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Nobody knows where the containers were before a try: they stay where it has put them."""
    patch.setattr(try_out, "places_of", lambda node: {})


def a_start_forgets_tries(patch: pytest.MonkeyPatch) -> None:
    """Each start uses the policy file."""
    patch.setattr(start, "read_tried", lambda state_dir: None)


PLANTS: Mapping[str, Plant] = {
    "finding-without-kind": Plant(
        finding_without_kind,
        ("static", "devices enforce", "in kube-system"),
        r"does not come up: .*INTERNAL|could not be reported: .*multiple values",
    ),
    "left-alone-on-all-cpus": Plant(
        left_alone_on_all_cpus, ("topology-aware", "cpu.preserve"), r"shall own .*, and there are"
    ),
    "shortage-at-a-resize-of-memory": Plant(
        shortage_at_a_resize_of_memory, ("balloons", "adoption", "resize"), "a resize of memory alone is refused"
    ),
    "who-should-own-is-not-told": Plant(
        who_should_own_is_not_told, ("static", "adoption", "disk full"), r"--check is silent: .* shall own 1 CPUs"
    ),
    "unhealthy-cards-are-given-out": Plant(
        unhealthy_cards_are_given_out,
        ("devices report", "plugin, and its card is unhealthy"),
        "card is created although its card is unhealthy",
    ),
    "every-section-places": Plant(
        every_section_places, ("release", "plugin, and its section changes"), "a change of devices.plugin: released was"
    ),
    "reasons-of-stops-are-lost": Plant(
        reasons_of_stops_are_lost,
        ("as a proxy", "devices enforce", "plugin, and its card is unhealthy"),
        "the holder's status says",
    ),
    "vgpus-have-many-containers": Plant(
        vgpus_have_many_containers,
        ("static", "devices enforce", OVER),
        "another pod with the vGPU of card: it is created",
    ),
    "nobody-is-exempt-from-quotas": Plant(
        nobody_is_exempt_from_quotas,
        ("static", "devices enforce", "in kube-system", OVER),
        "the holder's status says 'GPUMemoryQuotaExceeded'",
    ),
    "quotas-of-the-adopted-are-forgotten": Plant(
        quotas_of_the_adopted_are_forgotten, ("adoption", OVER), "what stranger was given is not known"
    ),
    "pods-switch-limits-off": Plant(
        pods_switch_limits_off, ("in default", OVER), "GPU_CORE_UTILIZATION_POLICY of card"
    ),
    "check-says-nothing": Plant(check_says_nothing, ("static", "disk full", "nothing"), "--check is silent"),
    "check-complains": Plant(check_complains, ("static", "nothing"), "--check complains, and nothing is wrong"),
    "answers-to-nri-say-no-place": Plant(
        answers_to_nri_say_no_place,
        ("as a plugin of the runtime", "in default", "devices enforce"),
        "card sees|has no limit",
    ),
    "updates-go-nowhere": Plant(updates_go_nowhere, ("static", "adoption", "nothing"), r"shall own .*, and there are"),
}
"""Found by the cases of the matrix."""
TRY_PLANTS: Mapping[str, Plant] = {
    "places-are-forgotten": Plant(places_are_forgotten, ("its time is over",), "after the try: first was on"),
    "a-start-forgets-tries": Plant(
        a_start_forgets_tries, ("it is kept",), "is not what was kept|no configuration is being tried"
    ),
}
"""Found by the cases of tries."""
