"""Scenarios as they run: real events, a real policy, and the first thing that is not as expected."""

from dataclasses import replace

import pytest

from criproxy.config.settings import Settings
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Change, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies import Entry
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.simulate.hosts import shaped
from criproxy.simulate.scenario.runner import Instead, Result, run, runs
from criproxy.simulate.scenario.settings import Configuration, settings
from tests.simulate.scenes import CASE, outcome, vector

WITHOUT_START = CASE.replace('    config: {reserved: "cpuset:0"}\n', "")


def placed(result: Result) -> dict[str, str]:
    """Where everybody is: CPUs, with ! for their own."""
    places = result.placement.items()
    return {name: format_cpuset(place.cpus) + "!" * bool(place.exclusive) for name, place in places}


def test_pods_come_and_go() -> None:
    """An owner takes CPUs from those who share, and gives them back when its pod is deleted."""
    result = outcome("""
- create: {pod: p}
- create: {pod: q, qos: guaranteed, cpu: 2}
- expect: [{c: pc0, excludes: 2-3}, {c: qc0, n_cores: 1, n_cpus: 2}, {unshared: qc0, n: 2}]
- delete: [q]
- expect: [{c: pc0, cpus: 0-7}]
""")

    assert not result.failure
    assert (result.checked, placed(result)) == (5, {"pc0": "0-7"})


def test_the_first_failure_ends_a_run() -> None:
    """What is expected and what is, its line, and who is where at that moment."""
    result = outcome("""
- create: {pod: p, qos: guaranteed, cpu: 2}
- expect: [{c: pc0, n_cpus: 2}, {c: pc0, n_cpus: 3}]
- delete: all
""")

    assert (result.failure, result.line) == ("pc0: cpus should be 3 in number, are 2 (CPUs 2-3)", 12)
    assert placed(result) == {"pc0": "2-3!"}


def test_init_containers_end_before_others_come() -> None:
    """Each gives its CPUs back, so that all of them fit one after the other."""
    result = outcome("- create: {pod: p, qos: guaranteed, cpu: 6, init: 3}\n- expect: [{c: pc0, n_cpus: 6}]")

    assert not result.failure
    assert list(result.placement) == ["pc0"]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("- create: {pod: p, qos: guaranteed, cpu: 8}", "p should be placed, and is refused: container default/p/pc0"),
        ("- create: {pod: p, expect: error}", "p should be refused, and is placed"),
        ("- create: {pod: p, qos: guaranteed, cpu: 8, expect: error, error: Too Big}",
         "p should be refused with 'Too Big', and the sentence is: container"),
        ("- create: {pod: p, qos: guaranteed, cpu: 8, expect: error}\n- expect: {c: pc0, n_cpus: 8}", "pc0 is not"),
        ("- create: {pod: p, qos: guaranteed, cpu: 2}\n- resize: {c: pc0, cpu: 9}", "pc0 should be resized, and is"),
        ("- create: {pod: p, qos: guaranteed, cpu: 2}\n- resize: {c: pc0, cpu: 3, expect: error}",
         "pc0 should be refused, and is resized"),
        ("- create: {pod: p, qos: burstable, only: crirm}\n- resize: {c: pc0, cpu: 2}", "there is no container pc0"),
        ("- create: {pod: p, only: crirm}\n- delete: [p]", "there is no pod p to delete"),
        ("- start: {config: {reserved: 9}, expect: ok}", "the policy does not start: reservedResources.cpu: "),
        ("- start: {config: {reserved: 1}, expect: error}", "the policy should not start with this config"),
        ("- start: {config: {reserved: 9}, expect: error}\n- create: {pod: p}", "there is no policy: it did not start"),
    ],
)  # fmt: skip
def test_steps_that_fail(steps: str, expected: str) -> None:
    """Refusals and starts that are not as expected end a run as assertions do."""
    result = outcome(steps)

    assert result.failure.startswith(expected)
    assert result.line > 10


def test_a_policy_that_fails() -> None:
    """It is a failure of the case, with the place in the policy."""

    class Broken(StaticPolicy):
        """Divides by nothing."""

        def place(self, node: Node, container: Container) -> Change:
            """Fail."""
            return Change({}, (str(1 // 0),))

    class Careless(StaticPolicy):
        """Gives everybody the same CPU."""

        def place(self, node: Node, container: Container) -> Change:
            """One CPU, for its own."""
            one = frozenset({1})
            return Change({container.key: Grant(one, one, exclusive=one)})

    case = vector("- create: {pod: p}\n- create: {pod: q}")
    options = StaticOptions()

    def by(policy: type[StaticPolicy]) -> Instead:
        def built(configuration: Configuration, rules: str, topology: Topology) -> Settings:
            return replace(settings(configuration, rules, topology), entry=Entry(Options, lambda _: policy(options)))

        return Instead(settings_of=built)

    broken, careless = run(case, "nri", by(Broken)), run(case, "nri", by(Careless))

    start = "the policy is at fault at ContainerCreating: ZeroDivisionError in "
    assert broken.failure.startswith(f"{start}{__file__}:")
    assert careless.failure.startswith("after ContainerCreating the placement is broken: CPU 1 is exclusive to both")


def test_a_refusal_as_expected() -> None:
    """Its sentence has the words that are looked for, whatever their case."""
    result = outcome(
        """
- create: {pod: p, qos: guaranteed, cpu: 8, expect: error, error: "8 Exclusive CPUs"}
- expect: {c: qc0, n_cpus: 8}
""".replace("- expect", "- create: {pod: q}\n- expect")
    )

    assert not result.failure
    assert [told.line for told in result.told] == [11, 12]
    assert result.told[0].reasons[0].startswith("refused: container default/p/pc0 asks for 8 exclusive CPUs")


def test_a_start_forgets_everybody() -> None:
    """The new policy has new options, and no containers; the first step may be the first start."""
    steps = """
- start: {config: {reserved: "cpuset:0,9"}, expect: error}
- start: {config: {reserved: "cpuset:1"}}
- create: {pod: p, qos: guaranteed, cpu: 7}
- expect: [{c: pc0, cpus: '0,2-7'}]
- start: {config: {reserved: "cpuset:0"}}
- create: {pod: p, qos: guaranteed, cpu: 7}
- expect: [{c: pc0, cpus: 1-7}]
"""
    for case in (CASE, WITHOUT_START):
        assert not outcome(steps, case).failure


def test_a_mistake_in_the_configuration_has_its_line() -> None:
    """The case fails, and says where the option is."""
    result = outcome("- create: {pod: p}", CASE.replace("reserved:", "reserv:"))

    assert result.failure.startswith("the policy does not start: unknown option 'reserv'; did you mean")
    assert result.line == 9


def test_rules_choose_steps_and_assertions() -> None:
    """What is for the other rules only is left out, and the policy is told by which it decides."""
    steps = """
- create: {pod: p, only: crirm}
- expect: [{c: pc0, cpus: 0-7}]
  only: crirm
- create: {pod: q}
- expect: [{c: qc0, n_cpus: 1, only: crirm}, {c: qc0, n_cpus: 8, only: nri}]
"""

    assert not outcome(steps, rules="nri").failure
    assert outcome(steps, rules="crirm").failure == "qc0: cpus should be 1 in number, are 8 (CPUs 0-7)"
    assert placed(outcome(steps, rules="nri")) == {"qc0": "0-7"}


def test_a_case_is_run_by_each_of_its_rules() -> None:
    """A unit vector has none."""
    both = vector("- create: {pod: p}", CASE.replace("topology:", "applies: [crirm, nri]\n    topology:"))
    unit = replace(both, unit=True)

    assert [rules for _, rules in runs([both])] == ["crirm", "nri"]
    assert [rules for _, rules in runs([both], Instead(rules=("nri",)))] == ["nri"]
    assert [rules for _, rules in runs([unit])] == [""]
    assert not run(unit, "").failure


def test_another_machine_and_another_policy() -> None:
    """They take the place of what the case says; nobody expects of a start that it fails then."""
    case = vector(
        """
- start: {config: {reserved: 99}, expect: error}
- create: {pod: p, qos: guaranteed, cpu: 2}
""",
        WITHOUT_START,
    )
    seen: list[str] = []

    def fixed(configuration: Configuration, rules: str, topology: Topology) -> Settings:
        seen.append(f"{rules} {len(topology.cpus)}")
        return settings(replace(configuration, options=None), rules, topology)

    result = run(case, "crirm", Instead(shaped("1s/1n/2c/2t"), fixed))

    assert not result.failure
    assert (placed(result), seen) == ({"pc0": "0,2!"}, ["crirm 4"])


def test_time_ends_cold_starts() -> None:
    """The container is placed anew when its time is over, not before."""
    steps = "- create: {pod: p, ann: {cold-start: 'duration: 10s'}}\n- advance: 9s\n"
    before = outcome(steps)
    after = outcome(f"{steps}- advance: 1s\n- advance: 1h\n")

    assert ([told.line for told in before.told], [told.line for told in after.told]) == ([11], [11, 13])


def test_pools_that_a_policy_does_not_have() -> None:
    """They are looked at once it has started."""
    result = outcome(
        "- create: {pod: p}", CASE.replace("steps:", "pools_expected: {a: [{cpus: 0, mems: 0}]}\n    steps:")
    )

    assert (result.failure, result.line) == ("the policy has no fixed pools", 10)
