"""Which class a container has: by annotations of ours and of peers, namespace, pool, QoS class; and who may say it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import BadAnnotation
from criproxy.model.controls import KINDS, NO_CONTROLS, CpuTuning
from criproxy.model.machine.controllable import Controllable
from criproxy.model.text.annotations import DOMAINS, OF_PEERS, kept_of_pod
from criproxy.model.workload import ContainerState, QosClass
from criproxy.placement.options.class_rules import ALL_STATES_US, IrqRule, classes_of, lifts_quota
from tests.placement.classes.policy import ALLOW, asked, options, rules

PART = {
    "cpu": "cpu: {weight: 7, minFreq: base}",
    "memory": "memory: {oomGroup: true}",
    "blockIO": "blockIO: {weight: 7}",
    "rdt": "rdt: {l3: 50%}",
    "scheduling": "scheduling: {nice: 1}",
    "irq": "irq: away",
}
WHOLE = ", ".join(PART.values())
CLASSES = f"""
policy: balloons
balloonTypes: [{{name: big, namespaces: ["big-*"]}}, {{name: small, namespaces: [small]}}]
{ALLOW}classes:
  gold: {{{WHOLE}}}
  silver: {{{WHOLE}}}
  of-namespace: {{for: {{namespaces: [team-*]}}, {WHOLE}}}
  of-pool: {{for: {{pools: [big]}}, {WHOLE}}}
  of-qos: {{for: {{qos: [Guaranteed]}}, {PART["memory"]}}}
  fast: {{{PART["cpu"]}}}
"""


def chosen(annotations: dict[str, str] | None = None, text: str = CLASSES, **changes: Any) -> dict[str, str]:  # noqa: ANN401 (fields of a container)
    """The class of each kind."""
    return dict(asked(text, annotations, **changes)[0].classes)


def sentences(annotations: dict[str, str], text: str = CLASSES, **changes: Any) -> str:  # noqa: ANN401 (fields of a container)
    """What is said about that."""
    return "\n".join(asked(text, annotations, **changes)[1])


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("cpu-class", "cpu"),
        ("memory-class", "memory"),
        ("blockio-class", "blockIO"),
        ("blockioclass", "blockIO"),
        ("rdt-class", "rdt"),
        ("rdtclass", "rdt"),
        ("scheduling-class", "scheduling"),
        ("irq-class", "irq"),
    ],
)
def test_annotations_about_one_kind(domain: str, key: str, kind: str) -> None:
    """In each domain and scope; of several, the narrowest counts."""
    names = [f"{key}.{domain}", f"{key}.{domain}/pod", f"{domain}/{key}", f"{key}.{domain}/container.main"]

    assert [chosen({name: "gold"}) for name in names] == [{kind: "gold"}] * 4
    assert chosen({names[0]: "silver", names[3]: "gold"}) == {kind: "gold"}
    assert chosen({f"{key}.{domain}/container.other": "gold"}) == {}
    assert f"shop/web/main has the class gold for {kind}: annotation {names[1]}" in sentences({names[1]: "gold"})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rdt.resources.beta.kubernetes.io/pod", "rdt"),
        ("rdt.resources.beta.kubernetes.io/container.main", "rdt"),
        ("blockio.resources.beta.kubernetes.io/pod", "blockIO"),
        ("blockio.resources.beta.kubernetes.io/container.main", "blockIO"),
        ("class.memory-qos.nri.io", "memory"),
        ("class.memory-qos.nri.io/main", "memory"),
    ],
)
def test_keys_of_peers(name: str, kind: str) -> None:
    """They are kept of a pod, and mean the same."""
    assert kept_of_pod({}, {name: "gold", "other.example.com/pod": "x"})[1] == {name: "gold"}
    assert chosen({name: "gold"}) == {kind: "gold"}


@pytest.mark.parametrize("prefix", ["rdt", "blockio"])
def test_a_class_of_the_runtime_is_left_to_it(prefix: str) -> None:
    """The runtime may have it in its own file: the container is not refused, and has the class that it would have."""
    name = f"{prefix}.resources.beta.kubernetes.io/pod"

    assert chosen({name: "theirs"}) == {}
    assert f"annotation {name} names no class of criproxy" in sentences({name: "theirs"})


def test_the_annotation_class_is_about_all_kinds() -> None:
    """But one about a kind comes before it, and what the class does not set is chosen in other ways."""
    name = "class.criproxy.io/pod"

    assert chosen({name: "gold"}) == dict.fromkeys(KINDS, "gold")
    assert chosen({name: "gold", "cpu-class.criproxy.io/pod": "fast"}) == dict.fromkeys(KINDS, "gold") | {"cpu": "fast"}
    assert chosen({name: "fast"}, namespace="team-a") == dict.fromkeys(KINDS, "of-namespace") | {"cpu": "fast"}


def test_without_an_annotation() -> None:
    """The namespace comes first, then the pool, then the QoS class."""
    guaranteed: dict[str, Any] = {"qos": QosClass.GUARANTEED}

    assert chosen() == {}
    assert chosen(**guaranteed) == {"memory": "of-qos"}
    assert chosen(pool="big[3]", **guaranteed) == dict.fromkeys(KINDS, "of-pool")
    assert chosen(pool="big[3]/left/inner", **guaranteed) == dict.fromkeys(KINDS, "of-pool"), "of a composite balloon"
    assert chosen(pool="bigger[3]") == {}
    assert chosen(pool="big[3]", namespace="team-a", **guaranteed) == dict.fromkeys(KINDS, "of-namespace")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["namespaces: [shop]", "pools: [big]", "qos: [Burstable]"])
def test_each_way_chooses_each_kind(way: str, kind: str) -> None:
    """And nothing of the others."""
    text = f"policy: balloons\nballoonTypes: [{{name: big}}]\nclasses: {{one: {{for: {{{way}}}, {PART[kind]}}}}}\n"

    assert chosen(text=text, pool="big[0]") == {kind: "one"}
    assert chosen(text=text, pool="default", namespace="other", qos=QosClass.BEST_EFFORT) == {}


def test_the_first_of_two_classes_counts() -> None:
    """For each kind the first one in the file that has it."""
    text = f"""
policy: static
classes:
  a: {{for: {{namespaces: [shop]}}, {PART["cpu"]}}}
  b: {{for: {{namespaces: [sh*]}}, {PART["cpu"]}, {PART["memory"]}}}
"""
    assert chosen(text=text) == {"cpu": "a", "memory": "b"}


NAMED = {
    "class.criproxy.io/pod": "gold",
    "rdt.resources.beta.kubernetes.io/pod": "gold",
    "class.memory-qos.nri.io": "gold",
    "cpu-class.resource-policy.nri.io/container.main": "gold",
    "irq-load-balancing.crio.io": "disable",
    "cpu-quota.crio.io": "disable",
}


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param("", id="not-allowed-by-default"),
        pytest.param("annotations: {allow: {prod: [class]}}\n", id="others-may"),
        pytest.param('annotations: {allow: {"*": ["*"]}, deny: {shop: ["*class"]}}\n', id="denied"),
    ],
)
@pytest.mark.parametrize("name", NAMED)
def test_a_tenant_without_the_right(annotations: str, name: str) -> None:
    """Its annotation is ignored unread, with a sentence, whatever it says; it is not refused."""
    text = CLASSES.replace(ALLOW, annotations)

    for value in (NAMED[name], "nonsense", "x" * 20_000):
        controls, reasons = asked(text, {name: value}, qos=QosClass.GUARANTEED)
        assert dict(controls.classes) == {"memory": "of-qos"}
        assert any(f"{name} is ignored: namespace shop may not use" in each for each in reasons)
        assert max(map(len, reasons)) < 300


def test_documents_of_a_tenant_without_the_right_are_not_read() -> None:
    """Of the form of the first releases of CRI-RM: each takes milliseconds, and a pod has room for many."""
    documents = {f"{domain}/cpu-class": "{other: gold}" for domain in DOMAINS}

    said = sentences(documents, CLASSES.replace(ALLOW, ""))

    assert f"annotation {DOMAINS[0]}/cpu-class is ignored: namespace shop may not use cpu-class" in said
    assert "is ignored" not in sentences(documents)


def test_one_key_may_be_allowed() -> None:
    """Also for the keys of peers, which are allowed with ours."""
    text = CLASSES.replace(ALLOW, "annotations: {allow: {shop: [rdt-class]}}\n")

    assert chosen(NAMED, text) == {"rdt": "gold"}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        pytest.param("class.criproxy.io/pod", "golden", "there is no class 'golden'; classes are: gold,", id="unknown"),
        pytest.param("cpu-class.criproxy.io/pod", "of-qos", "there is no class 'of-qos' with cpu", id="without-cpu"),
        pytest.param("class.criproxy.io/pod", "", "there is no class ''", id="empty"),
        pytest.param("class.criproxy.io/pod", "../../etc", "there is no class '../../etc'", id="a-path"),
        pytest.param("rdt-class.criproxy.io/pod", "gold\x1b[31m", "there is no class 'gold\\x1b[31m'", id="escape"),
        pytest.param("class.criproxy.io/pod", "gold+cpu-quota=disable", "there is no class", id="an-anonymous-one"),
        pytest.param("irq-class.criproxy.io/pod", "balloon/big", "there is no class", id="a-balloon-type"),
        pytest.param("class.criproxy.io/pod", "x" * 16_000, "there is no class 'xxx", id="long"),
        pytest.param("cpu-c-states.crio.io", "C6", "must be enable, disable or max_latency:MICRO", id="c-states"),
        pytest.param("cpu-c-states.crio.io", "max_latency:-1", "must be enable, disable or max_latency", id="negative"),
        pytest.param("cpu-c-states.crio.io", f"max_latency:{'9' * 99}", "must be enable, disable or", id="huge"),
        pytest.param("cpu-freq-governor.crio.io", "../x", "must be a governor", id="governor"),
        pytest.param("cpu-freq-governor.crio.io", "a+b=c", "must be a governor", id="governor-like-a-name"),
        pytest.param("cpu-quota.crio.io", "no", "must be disable or enable, not 'no'", id="quota"),
        pytest.param("irq-load-balancing.crio.io", "", "must be disable or enable, not ''", id="irqs"),
    ],
)
def test_what_cannot_be_understood(name: str, value: str, text: str) -> None:
    """A container that is created is refused with a sentence; one that exists keeps what it would have without it."""
    with pytest.raises(BadAnnotation) as refused:
        asked(CLASSES, {name: value})
    controls, reasons = asked(CLASSES, {name: value}, state=ContainerState.RUNNING)

    assert str(refused.value).startswith(f"container shop/web/main: annotation {name} is invalid: ")
    assert text in str(refused.value)
    assert len(str(refused.value)) < 700
    assert str(refused.value).isprintable()
    assert controls.classes == ()
    assert any(f"annotation {name} is ignored" in each for each in reasons)


@pytest.mark.parametrize(
    ("name", "tuning"),
    [
        ("+cpu-c-states=disable", CpuTuning(max_latency_us=0)),
        ("+cpu-c-states=enable", CpuTuning(max_latency_us=ALL_STATES_US)),
        (
            "+cpu-c-states=max_latency:10+cpu-freq-governor=powersave",
            CpuTuning(max_latency_us=10, governor="powersave"),
        ),
        ("fast+cpu-freq-governor=performance", CpuTuning(min_frequency="base", governor="performance")),
        ("+cpu-quota=disable", None),
    ],
)
def test_settings_of_cri_o(name: str, tuning: CpuTuning | None) -> None:
    """They make an anonymous class, whose name says everything about it."""
    beside, *settings = name.split("+")
    annotations = {f"{key}.crio.io": value for key, _, value in (each.partition("=") for each in settings)}
    controls, _ = asked(CLASSES, annotations | ({"cpu-class.criproxy.io": beside} if beside else {}))

    assert controls.class_of("cpu") == name
    assert rules(CLASSES).desired_parts().tuning(name) == tuning
    assert lifts_quota(controls) is ("cpu-quota" in name)
    assert dict(controls.values) == ({"cpu.weight": "7"} if beside else {})


def test_interrupts_of_cri_o() -> None:
    """Disable is the mode away, beside what the class claims."""
    text = CLASSES + "  nic: {irq: {claim: [eth0-*]}}\n"
    annotations = {"irq-load-balancing.crio.io": "disable", "irq-class.criproxy.io": "nic"}

    assert chosen(annotations, text) == {"irq": "nic+irq-load-balancing=disable"}
    parts = rules(text).desired_parts()
    assert parts.irq("nic+irq-load-balancing=disable") == IrqRule(mode="away", claim=("eth0-*",))
    assert parts.irq("+irq-load-balancing=disable") == IrqRule(mode="away")
    assert chosen({"irq-load-balancing.crio.io": "enable"}, text) == {}


def test_a_governor_that_the_machine_has_not() -> None:
    """Is refused with those that there are."""
    machine = Controllable(governors=("performance", "powersave"), c_states=("C6",))
    text = f"policy: static\n{ALLOW}classes: {{a: {{memory: {{oomGroup: true}}}}}}\n"

    with pytest.raises(BadAnnotation, match=r"must be a governor \(performance, powersave\), not 'ondemand'"):
        asked(text, {"cpu-freq-governor.crio.io": "ondemand"}, machine=machine)


def test_what_only_cri_o_can_do() -> None:
    """Is said, and nothing else comes of it."""
    assert "cpu-load-balancing.crio.io has no effect" in sentences({"cpu-load-balancing.crio.io": "disable"})


def test_options_of_balloon_types() -> None:
    """Those of nri-plugins give a class of one kind to the containers of a type."""
    text = """
policy: balloons
cpuClasses:
  turbo: {minFreq: 2000000, freqGovernor: performance, disabledCstates: [C6], energyPerformancePreference: 0}
schedulingClasses: [{name: rt, policy: rr, priority: 5, nice: 0}]
controllableInterrupts: [eth*]
balloonTypes:
- {name: big, namespaces: [big], cpuClass: turbo, schedulingClass: rt, irqMode: isolate, irqClaim: [eth0, 33]}
- {name: sinks, namespaces: [sinks], irqMode: sink}
"""
    assert chosen(text=text, pool="big[0]") == {"cpu": "turbo", "scheduling": "rt", "irq": "balloon/big"}
    assert chosen(text=text, pool="sinks[0]") == {"irq": "balloon/sinks"}
    parts = rules(text).desired_parts()
    assert parts.irqs == {
        "balloon/big": IrqRule(mode="away", claim=("eth0", "33")),
        "balloon/sinks": IrqRule(mode="sink"),
    }
    assert parts.controllable == ("eth*",)
    assert parts.tunings == {
        "turbo": CpuTuning(min_frequency="2000000", governor="performance", disabled_c_states=("C6",))
    }


def test_options_of_topology_aware() -> None:
    """The scheduling classes of namespaces and QoS classes, and the classes of CPUs by their role."""
    text = """
policy: topology-aware
schedulingClasses: [{name: rt, policy: fifo, priority: 5}, {name: low, policy: other, nice: 5}]
namespaceSchedulingClasses: {"team-*": rt}
podQoSSchedulingClasses: {BestEffort: low}
cpuClasses: [{name: slow, maxFreq: min}]
sharedPoolCPUClass: slow
"""
    assert chosen(text=text, namespace="team-a", qos=QosClass.BEST_EFFORT) == {"scheduling": "rt"}
    assert chosen(text=text, qos=QosClass.BEST_EFFORT) == {"scheduling": "low"}
    assert rules(text).desired_parts().roles == {"shared": "slow"}


def test_files_without_classes_have_none() -> None:
    """And import no models of them: a start is not slower."""
    by = options("policy: topology-aware\n")

    assert type(by).__mro__[1].__name__ == "Options"
    assert classes_of(type("Policy", (), {"options": by})()) is None


TEXTS = st.text(max_size=40) | st.sampled_from(["gold", "fast", "disable", "enable", "max_latency:3", "{main: gold}"])
NAMES = st.sampled_from(
    [
        *OF_PEERS,
        *(f"{prefix}/pod" for prefix in OF_PEERS),
        *(f"{prefix}/container.main" for prefix in OF_PEERS),
        *(f"{key}.criproxy.io" for key in ("class", "cpu-class", "rdtclass")),
        *(f"criproxy.io/{key}" for key in ("class", "cpu-class", "rdtclass")),
    ]
)


@given(annotations=st.dictionaries(NAMES, TEXTS, max_size=6), running=st.booleans())
def test_whatever_pods_say(annotations: dict[str, str], running: bool) -> None:
    """Either the container is refused, which a running one never is, or each class exists, and all is printable."""
    state = ContainerState.RUNNING if running else ContainerState.CREATING
    refusal, controls = "", NO_CONTROLS
    reasons: tuple[str, ...] = ()
    try:
        controls, reasons = asked(CLASSES, annotations, state=state)
    except BadAnnotation as error:
        refusal = str(error)

    assert refusal.isprintable()
    assert not refusal or not running
    parts = rules(CLASSES).desired_parts()
    for kind, name in controls.classes:
        assert kind in KINDS
        assert name.partition("+")[0] in ("", "gold", "fast")
        assert kind != "cpu" or parts.tuning(name) is not None or "cpu-quota" in name
    assert all(reason.isprintable() for reason in reasons)
