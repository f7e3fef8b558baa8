"""What an update of a container's resources says of its sizes."""

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.sizes import sizes_after, sizes_of_either
from criproxy.model.resources import CfsQuota, Interval, milli_to_quota, milli_to_shares, request_to_oom_score_adj
from criproxy.model.workload import Container, QosClass, Sizes

GIB = 1 << 30

BURSTABLE = Container(
    key="k",
    pod="s",
    name="c",
    qos=QosClass.BURSTABLE,
    cpu_milli=500,
    cpu_limit_milli=1000,
    memory_limit_bytes=GIB,
    memory_request_bytes=Interval(1000, 2000),
)


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"cpuset_cpus": "0-3"}, {}, id="cpuset-only"),
        pytest.param({"cpu_shares": milli_to_shares(750)}, {"cpu_milli": 750}, id="request"),
        pytest.param(
            {"cpu_quota": milli_to_quota(1500), "cpu_period": 100_000}, {"cpu_limit_milli": 1500}, id="cpu-limit"
        ),
        pytest.param({"cpu_quota": 150_000}, {"cpu_limit_milli": 1500}, id="quota-only"),
        pytest.param({"cpu_quota": -1}, {"cpu_limit_milli": None}, id="cpu-limit-lifted"),
        pytest.param({"memory_limit_in_bytes": 2 * GIB}, {"memory_limit_bytes": 2 * GIB}, id="memory-limit"),
        pytest.param(
            {"memory_limit_in_bytes": 1500}, {"memory_limit_bytes": 1500, "high": 1500}, id="below-the-known-request"
        ),
    ],
)
def test_an_update_keeps_what_it_does_not_name(fields: dict[str, int], changed: dict[str, int | None]) -> None:
    """As in the runtime, 0 and empty leave a size as it is."""
    high = changed.pop("high", 2000)
    assert high
    expected = {"cpu_milli": 500, "cpu_limit_milli": 1000, "memory_limit_bytes": GIB} | changed

    found = sizes_after(api.LinuxContainerResources(**fields), BURSTABLE, 8 * GIB)  # type: ignore[arg-type]

    quota = CfsQuota.of_limit(expected["cpu_limit_milli"])
    assert found == Sizes(memory_request_bytes=Interval(1000, high), cpu_quota=quota, **expected)  # type: ignore[arg-type]


def test_an_update_tells_a_new_memory_request() -> None:
    """The kubelet sends the score of the new request with it."""
    resources = api.LinuxContainerResources(oom_score_adj=request_to_oom_score_adj(GIB // 2, 8 * GIB))

    found = sizes_after(resources, BURSTABLE, 8 * GIB).memory_request_bytes

    assert found is not None
    assert found.low <= GIB // 2 <= found.high


def of_limit(milli: int) -> Sizes:
    """A request and a limit of *milli*, as the kubelet sends them."""
    return Sizes(cpu_milli=milli, cpu_limit_milli=milli, cpu_quota=CfsQuota.of_limit(milli))


@pytest.mark.parametrize(
    ("shares_milli", "quota_us", "expected"),
    [
        pytest.param(2000, milli_to_quota(2000), of_limit(2000), id="the-new-ones"),
        pytest.param(1000, milli_to_quota(1000), of_limit(1000), id="the-old-ones"),
        pytest.param(2000, -1, of_limit(2000), id="the-new-ones-with-a-lifted-quota"),
        pytest.param(1000, -1, of_limit(1000), id="the-old-ones-with-a-lifted-quota"),
    ],
)
def test_a_status_tells_whether_a_resize_took_effect(shares_milli: int, quota_us: int, expected: Sizes) -> None:
    """A lifted quota says nothing of either size; the shares do."""
    asked = Container(key="k", pod="s", name="c", qos=QosClass.BURSTABLE).resized(of_limit(2000))
    resources = api.LinuxContainerResources(
        cpu_shares=milli_to_shares(shares_milli), cpu_quota=quota_us, cpu_period=100_000
    )

    assert (sizes_of_either(resources, asked, of_limit(1000)), resources.cpu_quota) == (expected, quota_us)
