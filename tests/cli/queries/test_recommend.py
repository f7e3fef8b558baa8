"""``criproxy recommend``: how many replicas and vGPUs the use asks for, by the daemon or by recorded metrics."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from criproxy.api.metrics.moment import Moment
from criproxy.api.metrics.proxy_metrics import of_controller
from criproxy.process.http.metrics import Registry
from tests.api.test_usage import OFFERED, asked, report
from tests.asking import criproxy
from tests.node.devices.test_create_checks_vgpu import pod_with

METRICS = """
# TYPE criproxy_node_cpu_utilization_ratio gauge
criproxy_node_cpu_utilization_ratio {cpu}
# TYPE criproxy_node_memory_utilization_ratio gauge
criproxy_node_memory_utilization_ratio 0.5
# TYPE criproxy_vgpu_memory_used_bytes gauge
criproxy_vgpu_memory_used_bytes{{namespace="shop",pod="web-1",container="main",profile="gpu-8g",card="a"}} {used}
# TYPE criproxy_vgpu_memory_limit_bytes gauge
criproxy_vgpu_memory_limit_bytes{{namespace="shop",pod="web-1",container="main",profile="gpu-8g",card="a"}} 100
criproxy_vgpu_memory_limit_bytes{{namespace="lab",pod="test-1",container="main",profile="gpu-8g",card="b"}} 100
# TYPE criproxy_vgpu_free gauge
criproxy_vgpu_free{{device_class="nvidia",profile="gpu-8g"}} 1
"""


def run(*arguments: str) -> Result:
    """Run the command."""
    return criproxy("recommend", *arguments)


def recorded(directory: Path, cpu: float = 0.7, used: float = 80, name: str = "metrics") -> str:
    """A file with the metrics of a node with two pods, of one of which nothing is known."""
    path = directory / name
    path.write_text(METRICS.format(cpu=cpu, used=used))
    return str(path)


def values(*arguments: str) -> dict[str, Any]:
    """What it says as JSON."""
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_text(tmp_path: Path) -> None:
    """A line for each metric with both thresholds, one for the replicas, one for the vGPUs of each profile."""
    result = run("--metrics", recorded(tmp_path, cpu=0.9, used=95), "-n", "shop", "--current", "3", "-t", "cpu=60")

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "cpu: 90 %, above the threshold (scale up above 66 %, down below 54 %); requests 5 replicas",
        "replicas: 3 now, 5 recommended",
        "vGPUs of gpu-8g: 2 allocated, mean usage 95 %, 1 free, 2 needed",
    ]


NOBODY = {
    "namespace": (("-n", "nope"), "Note: no pod with a vGPU matches --namespace nope"),
    "pattern": (("-n", "shop", "--pods", "api-*"), "Note: no pod with a vGPU matches --namespace shop --pods api-*"),
}


@pytest.mark.parametrize(("options", "said"), NOBODY.values(), ids=NOBODY)
def test_nobody_matches(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    """A name may be mistyped."""
    result = run("--metrics", recorded(tmp_path), *options)

    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, said)
    assert "Note:" not in run("--metrics", recorded(tmp_path), "-n", "shop").stdout


def test_no_replicas(tmp_path: Path) -> None:
    """The autoscaler compares no metric then, so the text says where the values are, and wants nothing."""
    result = run("--metrics", recorded(tmp_path, cpu=0.05), "--current", "0", "-t", "cpu=80")

    assert result.stdout.splitlines()[:2] == [
        "cpu: 5 %, below the threshold (scale up above 88 %, down below 72 %)",
        "replicas: 0 now, 0 recommended (with 0 replicas the autoscaler does nothing)",
    ]


RECORDED = {
    "double": (["--current", "2", "-t", "cpu=35"], 4, ""),
    "limit": (
        ["--current", "2", "-t", "cpu=35", "--max", "3"],
        3,
        "the metrics call for 4; at least 1 and at most 3 are allowed",
    ),
    "percent-sign": (["--current", "4", "-t", "memory=100%"], 2, ""),
    "rounded-up": (["--current", "4", "-t", "cpu=75", "--tolerance-down", "5"], 4, ""),
    "pattern": (["-n", "shop", "--pods", "web-*", "-t", "vgpu-memory=80"], 1, ""),
    "nobody": (["-n", "shop", "--pods", "api-*"], 0, "with 0 replicas the autoscaler does nothing"),
    "not-known": (
        ["--current", "4", "-t", "memory=100", "-t", "vgpu-cores=50"],
        4,
        "no scale-down while unknown: vgpu-cores",
    ),
    "nothing-known": (["--current", "4", "-t", "vgpu-cores=50"], 4, "no metric has a value"),
    "defaults": (["--current", "3"], 3, ""),
}


@pytest.mark.parametrize(("options", "desired", "note"), RECORDED.values(), ids=RECORDED)
def test_recorded_metrics(tmp_path: Path, options: list[str], desired: int, note: str) -> None:
    """The number of replicas by the metrics of a node: CPU 70 %, memory 50 %, one vGPU 80 %, the other not known."""
    found = values("--metrics", recorded(tmp_path), *options)

    assert (found["desired"], found["note"]) == (desired, note)


@pytest.mark.parametrize("options", [["-t", "vgpu-memory=0.01"], ["-t", "cpu=0.01"], []])
def test_values_beyond_all_measure(tmp_path: Path, options: list[str]) -> None:
    """They want as many replicas as are allowed."""
    found = values("--metrics", recorded(tmp_path, cpu=1.7e308, used=1.7e308), "--current", "1000000", *options)

    assert found["desired"] == 10


def not_known(found: dict[str, Any]) -> list[str]:
    """The metrics that have no value."""
    return [each["name"] for each in found["metrics"] if each["value"] is None]


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        pytest.param("criproxy_node_cpu_utilization_ratio", "cpu", id="cpu"),
        pytest.param("criproxy_vgpu_memory_used_bytes", "vgpu-memory", id="use"),
        pytest.param("criproxy_vgpu_memory_limit_bytes", "vgpu-memory", id="quota"),
    ],
)
@pytest.mark.parametrize("number", ["NaN", "+Inf"])
def test_a_metric_that_is_not_a_number(tmp_path: Path, line: str, unknown: str, number: str) -> None:
    """It is a metric without a value, while which the number of replicas does not decrease."""
    lines = METRICS.format(cpu=0.1, used=80).splitlines()
    told = [f"{each.rpartition(' ')[0]} {number}" if each.startswith(line) else each for each in lines]
    (tmp_path / "metrics").write_text("\n".join(told) + "\n")
    found = values("--metrics", str(tmp_path / "metrics"), "--current", "5", "-n", "shop")

    assert (found["desired"], not_known(found)) == (5, [unknown])


def test_a_silent_device_plugin(tmp_path: Path) -> None:
    """While nobody says what vGPUs with a quota use, the number does not decrease, whatever the node's CPUs say."""
    lines = METRICS.format(cpu=0.1, used=80).splitlines()
    (tmp_path / "metrics").write_text("\n".join(each for each in lines if "used_bytes" not in each) + "\n")
    found = values("--metrics", str(tmp_path / "metrics"), "--current", "5")

    assert (found["desired"], found["note"]) == (5, "no scale-down while unknown: vgpu-memory")


async def test_a_silent_device_plugin_by_the_daemon(tmp_path: Path) -> None:
    """The daemon's answer has the quotas of containers of whose use nobody has told it."""
    async with asked(tmp_path) as node:
        await node("device-inventory", **OFFERED)
        for number in range(2):
            await node.world.run(pod_with(f"GPU-a/gpu-8g/{number}", f"web-{number}"))
        found = await asyncio.to_thread(values, "--control-socket", str(tmp_path / "control.sock"))

    assert {"vgpu-memory", "vgpu-cores"} & set(not_known(found)) == {"vgpu-memory", "vgpu-cores"}


def test_several_nodes(tmp_path: Path) -> None:
    """The use of nodes is their mean, and all their pods are replicas."""
    files = [recorded(tmp_path, cpu, name=str(cpu)) for cpu in (0.2, 0.6)]
    found = values("--metrics", files[0], "--metrics", files[1], "-t", "cpu=40", "-n", "shop")

    assert found["metrics"][0]["value"] == pytest.approx(0.4)
    assert found["vgpus"][0]["free"] == 2


def test_renamed_labels(tmp_path: Path) -> None:
    """What Prometheus renames because its target has the same label, is the pod's."""
    path = tmp_path / "renamed"
    text = METRICS.format(cpu=0.1, used=80).replace("{namespace=", '{namespace="mon",pod="agent",exported_namespace=')
    path.write_text(text.replace(',pod="web-1"', ',exported_pod="web-1"').replace(',pod="test-1"', ',exported_pod="t"'))

    assert values("--metrics", str(path), "-n", "shop", "--pods", "web-*")["current"] == 1


def test_vgpus_that_are_lacking(tmp_path: Path) -> None:
    """More vGPUs than are given and free are a sentence."""
    path = tmp_path / "metrics"
    path.write_text(METRICS.format(cpu=0.1, used=400))
    result = run("--metrics", str(path))

    assert "2 allocated, mean usage 400 %, 1 free, 5 needed; 2 more than exist: divide another card" in result.stdout


def test_free_vgpus_that_nobody_knows(tmp_path: Path) -> None:
    """While the device plugin does not run they are not none."""
    path = tmp_path / "metrics"
    lines = METRICS.format(cpu=0.1, used=400).splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "vgpu_free" not in line))

    said = "2 allocated, mean usage 400 %, free: unknown (the device plugin does not report), 5 needed\n"
    assert said in run("--metrics", str(path)).stdout
    (vgpus,) = values("--metrics", str(path))["vgpus"]
    assert (vgpus["free"], vgpus["lacking"]) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        pytest.param(["-t", "gpu=50"], 2, "'gpu' is not one of cpu, memory, vgpu-memory, vgpu-cores", id="metric"),
        pytest.param(["-t", "cpu"], 2, "cpu needs a percentage of at least 0.01, such as cpu=70", id="no-target"),
        pytest.param(["-t", "cpu=1e-320"], 2, "cpu needs a percentage of at least 0.01", id="nearly-zero"),
        pytest.param(["--current", "9" * 20], 2, "is not in the range 0<=x<=1000000", id="too-many"),
        pytest.param(["-t", "cpu=70%%"], 2, "cpu needs a percentage of at least 0.01", id="two-signs"),
        pytest.param(["-t", "cpu=70", "-t", "memory=1", "-t", "cpu=80"], 2, "cpu has two targets", id="twice"),
        pytest.param(["-t", "cpu=nan"], 2, "cpu needs a percentage of at least 0.01", id="nan"),
        pytest.param(["--min", "5", "--max", "3"], 2, "--min 5 is more than --max 3", id="limits"),
        pytest.param(["--metrics", "/nonexistent/metrics"], 1, "No such file or directory", id="no-file"),
        pytest.param(["--control-socket", "/nonexistent.sock"], 1, "no criproxy daemon listens on", id="no-daemon"),
    ],
)
def test_wrong_use(arguments: list[str], status: int, said: str) -> None:
    """It is a sentence, and exit status 2 for wrong use, 1 for what is not there."""
    result = run(*arguments)

    assert result.exit_code == status
    assert said in result.output


@pytest.mark.parametrize("content", [b"this is { no metric", b"\xff\xfe", b"criproxy_vgpu_free{} x\n"])
def test_a_file_that_has_no_metrics(tmp_path: Path, content: bytes) -> None:
    """It is one sentence with the name of the file."""
    (tmp_path / "metrics").write_bytes(content)
    result = run("--metrics", str(tmp_path / "metrics"))

    assert result.exit_code == 1
    assert "metrics: these are not metrics in the Prometheus text format" in result.output


@pytest.mark.parametrize("content", ["", "\n", "# TYPE up gauge\n", "node_load1 0.5\n", "# EOF\n"])
def test_a_file_with_no_metrics_of_ours(tmp_path: Path, content: str) -> None:
    """It is an error, also beside one that has some: a node would be missing without anybody noticing."""
    (tmp_path / "empty").write_text(content)
    result = run("--metrics", recorded(tmp_path), "--metrics", str(tmp_path / "empty"))

    assert result.exit_code == 1
    assert f"{tmp_path}/empty: has no metrics of criproxy" in result.output.replace("\n", "")


async def test_daemon_and_metrics_say_the_same(tmp_path: Path) -> None:
    """Of the same moment, the daemon's answer and its metrics give the same recommendation."""
    async with asked(tmp_path) as node:
        await node("device-inventory", **OFFERED)
        keys = [await node.world.run(pod_with(f"GPU-a/gpu-8g/{number}", f"web-{number}")) for number in range(2)]
        uses = [{"container_id": key, "kind": "nvidia", "card": "GPU-a", "cores_percent": 25.0} for key in keys]
        await node("device-usage", **report(containers=[{**each, "memory_mib": 8000} for each in uses]))
        body, _ = Registry(lambda: of_controller(Moment(node.world.controller))).render("")
        (tmp_path / "recorded").write_bytes(body)
        options = ["-t", "vgpu-memory=50", "-t", "vgpu-cores=60", "--pods", "web-*"]
        socket = str(tmp_path / "control.sock")
        asked_now = await asyncio.to_thread(values, "--control-socket", socket, *options)
        recorded_then = values("--metrics", str(tmp_path / "recorded"), *options)

    assert asked_now == recorded_then
    assert (asked_now["current"], asked_now["desired"]) == (2, 4)
    assert asked_now["vgpus"] == [{"profile": "gpu-8g", "given": 2, "free": 1, "wanted": 4, "lacking": 1, "use": 1.0}]
