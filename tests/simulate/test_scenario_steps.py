"""The steps of scenario files, and what is wrong with those that cannot be taken."""

import pytest

from criproxy.model.planned import Amounts
from criproxy.simulate.scenario.steps import Advance, Create, Delete, Resize, Start, Step
from tests.simulate.scenes import mistakes, vector


def taken(steps: str) -> list[Step]:
    """The steps of a case."""
    return list(vector(steps).steps)


def test_one_of_each_kind() -> None:
    """Each becomes a value with its line; notes are left out, and a numbered create is several."""
    steps = taken("""
- start: {config: {reserved: "1"}, expect: ok}
- note: nothing happens here
- create: {pod: p, expect: error, error: no room, note: as it should}
- create_n: {n: 2, prefix: q, count: 2}
- expect: [{equal: [q0c0, q1c1], what: cpus}]
- delete: [q0, q1]
- delete: all
- advance: 1.5s
  only: nri
""")

    kinds = [type(step.action).__name__ for step in steps]
    assert kinds == ["Start", "Create", "Create", "Create", "Expect", "Delete", "Delete", "Advance"]
    assert [step.line for step in steps] == [11, 13, 14, 14, 15, 16, 17, 18]
    assert [step.only for step in steps] == [""] * 7 + ["nri"]
    start, refused, first, second, _, some, everybody, later = (step.action for step in steps)
    assert isinstance(start, Start)
    assert not start.fails
    assert isinstance(refused, Create)
    assert (refused.fails, refused.error) == (True, "no room")
    assert isinstance(first, Create)
    assert isinstance(second, Create)
    assert [pod.name for pod in (first.pod, second.pod)] == ["q0", "q1"]
    assert [c.name for c in second.pod.containers] == ["q1c0", "q1c1"]
    assert (some, everybody, later) == (Delete(("q0", "q1")), Delete(()), Advance(1.5))


def test_resizes_follow_each_other() -> None:
    """What a resize does not name stays as it was before; one that should be refused changes nothing."""
    steps = taken("""
- create: {pod: p, qos: burstable, cpu_req: 1, mem: 200M}
- resize: {c: pc0, cpu_req: 2, cpu_lim: 3}
- resize: {c: pc0, cpu_req: 99, expect: error, error: room}
- resize: {c: pc0, mem_lim: 300M}
""")[1:]

    found = [step.action for step in steps if isinstance(step.action, Resize)]
    assert [(each.container, each.fails, each.error) for each in found] == [
        ("pc0", False, ""),
        ("pc0", True, "room"),
        ("pc0", False, ""),
    ]
    assert found[0].amounts == Amounts(2000, 3000, 200_000_000, 200_000_000)
    assert found[2].amounts == Amounts(2000, 3000, 200_000_000, 300_000_000)


def test_only_may_stand_within_the_step() -> None:
    """The rules by which a step is taken are beside its kind or among its entries."""
    [step] = taken("- create: {pod: p, only: crirm}")

    assert step.only == "crirm"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("- crate: {pod: p}", "expect, advance, note, and this is 'crate'; did you mean 'create'?"),
        ("- create: {pod: p}\n  delete: all", "and this is 'create' and 'delete'"),
        ("- create", "11: vectors[0].steps[0]: must be a group such as {name: value}, not 'create'"),
        ("- {}", "and this is nothing"),
        ("- create: {pod: p}\n- create: {pod: p}", "12: vectors[0].steps[1].create: there is a pod p already"),
        ("- create: {pod: p, containers: [{name: a}]}\n- create: {pod: q, containers: [{name: a}]}",
         "the pod p has a container a, too: names must differ"),
        ("- delete: [p]", "there is no pod 'p' now"),
        ("- create: {pod: p}\n- delete: all\n- delete: p", "13: vectors[0].steps[2].delete: there is no pod 'p' now"),
        ("- create: {pod: p}\n- start: {config: {}}\n- delete: p", "there is no pod 'p' now"),
        ("- expect: [{c: pc0, cpus: 1}]", "no step so far creates a container 'pc0'"),
        ("- create: {pod: p}\n- expect: {c: p0, cpus: 1}", "did you mean 'pc0'?"),
        ("- create: {pod: p}\n- delete: p\n- resize: {c: pc0, cpu: 2}", "there is no container 'pc0' now"),
        ("- create: {pod: p, qos: burstable}\n- resize: {c: pc0}", "needs a new size: cpu, cpu_req, cpu_lim, mem, "),
        ("- create: {pod: p}\n- resize: {c: pc0, cpu: 2}", "a besteffort pod asks for nothing"),
        ("- create: {pod: p, qos: guaranteed, cpu: 1}\n- resize: {c: pc0, cpu_req: 2}", "every request equal to its"),
        ("- advance: soon", "'soon' must be a duration such as 500ms, 11s, 2m or 168h"),
        ("- start: {config: {}, expect: maybe}", "must be one of ok, error"),
        ("- create_n: {n: 0, prefix: p}", "must be a whole number from 1 on, not 0"),
        ("- create_n: {prefix: p}", "'n' is missing"),
        ("- create: {pod: p}\n  only: cri", "must be one of crirm, nri"),
    ],
)  # fmt: skip
def test_steps_that_cannot_be_taken(steps: str, expected: str) -> None:
    """Each is a sentence with its line, found before anything runs."""
    [wrong] = mistakes(steps)

    assert expected in wrong


def test_a_pod_may_come_again() -> None:
    """After it was deleted, or after a start, the name is free."""
    assert len(taken("- create: {pod: p}\n- delete: p\n- create: {pod: p}\n- start: {}\n- create: {pod: p}")) == 5
