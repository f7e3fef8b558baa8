"""What follows from several entries of the runtime's lists."""

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.stamp import ANNOTATION, Stamp, never_to_start, pod_totals, stamped
from criproxy.model.resources import MAX_MACHINE_MILLI


def ours(name: str, *, pod_cpu_milli: int = 0, created_at: int = 0) -> api.Container:
    """A container of ours in the sandbox s, created under the reservation r-NAME."""
    stamp = Stamp(f"r-{name}", "Guaranteed", pod_cpu_milli=pod_cpu_milli).to_text()
    return api.Container(id=name, pod_sandbox_id="s", created_at=created_at, annotations={ANNOTATION: stamp})


FOREIGN = api.Container(id="foreign", pod_sandbox_id="s")


@pytest.mark.parametrize(
    ("sandbox", "container", "expected"),
    [
        pytest.param(api.SANDBOX_NOTREADY, api.CONTAINER_CREATED, {"c"}, id="left-by-a-reboot"),
        pytest.param(api.SANDBOX_READY, api.CONTAINER_CREATED, set(), id="about-to-start"),
        pytest.param(api.SANDBOX_NOTREADY, api.CONTAINER_RUNNING, set(), id="runs"),
    ],
)
def test_what_was_created_in_an_ended_sandbox_never_starts(sandbox: int, container: int, expected: set[str]) -> None:
    """Only that: what runs ends by itself."""
    sandboxes = [api.PodSandbox(id="s", state=sandbox)]  # type: ignore[arg-type]
    items = [api.Container(id="c", pod_sandbox_id="s", state=container)]  # type: ignore[arg-type]

    assert never_to_start(sandboxes, items) == expected


def test_a_container_of_ours_is_found_by_its_reservation() -> None:
    """Among those of others and other ones of ours."""
    items = [FOREIGN, ours("a"), ours("b")]

    assert stamped(items, "r-b") is items[2]
    assert stamped(items, "r-c") is None


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([FOREIGN, ours("a")], {}, id="nobody-says"),
        pytest.param(
            [ours("late", pod_cpu_milli=3000, created_at=2), ours("early", pod_cpu_milli=2000, created_at=1)],
            {"s": 3000},
            id="the-last-one-counts",
        ),
        pytest.param([ours("a", pod_cpu_milli=1 << 60)], {"s": MAX_MACHINE_MILLI}, id="more-than-any-machine-has"),
    ],
)
def test_the_cpu_of_a_pod_is_that_of_its_last_stamp(items: list[api.Container], expected: dict[str, int]) -> None:
    """An older container was created before a resize of the pod."""
    assert pod_totals(items) == expected
