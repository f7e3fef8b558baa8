"""What a tenant may write into a pod, and what none should: names, labels, annotations, environment, sizes, devices."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from hypothesis import strategies as st

from criproxy.cri import api_pb2 as api
from criproxy.model.text.annotations import DOMAINS, OF_PEERS
from criproxy.placement.options.annotation_keys import CLASS_KEYS, KEYS
from lab.emulator.runtime import IMAGE
from lab.properties.wishes import SAMPLES, WRONG
from tests.cli.test_hostile_text import HOSTILE

LONG = ("x", "\u0300", "[", "\x1b[31m", "a/", "\n", "9", "- a\n", "é")
BOMBS = (
    "[" * 5000, "{a: " * 3000, "&a [*a, *a]", "9" * 5000, "2020-99-99", "!!python/object/apply:os.system [ls]", ": :",
    "\t", "0x", "1e999", ".nan", "? [a]\n: b", "<<: {a: b}", "duration: 99999999999999999999s", "duration: -1s", "null",
    "[]", "{}", "c: {}", '{"c": [{"match": 1}]}', "c: [" + "d, " * 3000, "- scope: {operator: In}\n", "true\x00",
    "c: [{match: {key: a, operator: Nope, values: [1]}, weight: 99999999999}]", "TRUE ", "0", "-1", "dram," * 2000,
    "reserved", "default", "dram,pmem,hbm,mixed",
    "c: [2020-01-01]", "c: {2020-01-01: x}", "c: !!binary aGk=", "c: !!set {a, b}", "c: 0x" + "f" * 6000,
    "c: " + "9" * 6000, "c: [.nan]", "main: [2020-01-01]", "web: !!set {a}", "kube-system: 2020-01-01",
    "c: {2020-01-01T00:00:00Z: 1:30}", "2020-01-01: [c]", "- 2020-01-01", "? c\n: !!omap [a: 2020-01-01]",
)  # fmt: skip
INT64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(
    [0, 1, -1, 2, 1024, 4096, 100_000, 1 << 31, 1 << 44, 1 << 62, (1 << 63) - 1, -(1 << 63)]
)
PARENTS = (
    "", "/kubepods/pod1", "/kubepods/burstable/pod1", "/kubepods/besteffort/pod1", "kubepods-burstable-pod1.slice",
)  # fmt: skip
NAMES = ("c", "main", "web", "kube-system", "reserved")
NAMESPACES = ("team", "team", "default", "kube-system", "gpu-operator", "*", "")
ENVIRONMENT = (
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "ASCEND_VISIBLE_DEVICES", "PATH", "LD_PRELOAD", "",
)  # fmt: skip
SEEN = ("all", "void", "none", "0", "0,1", "GPU-0000", "GPU-0000,GPU-0001", "MIG-1", "-1", "0:0", "../../etc")
_CARDS = "/var/run/nvidia-container-devices"
MOUNTS = (
    f"{_CARDS}/all", f"{_CARDS}/GPU-0000", f"{_CARDS}all", f"{_CARDS}/../x", f"{_CARDS}/cdi/a/b", "/dev",
    "/", "", "relative",
)  # fmt: skip
DEVICES = (
    "/dev/nvidia0", "/dev/nvidia7", "/dev/nvidiactl", "/dev/../dev/nvidia0", "/dev/null", "", "nvidia0", "/dev/nvidia*",
)  # fmt: skip
CDI = ("nvidia.com/gpu=0", "nvidia.com/gpu=all", "k8s.device-plugin.nvidia.com/gpu=GPU-0000", "=", "", "a/b=c")
CPUSETS = ("", "", "0", "0-3", "9999999", "a", "-", "0-" + "9" * 400)
CLASS_VALUES = (
    "gold", "batch", "c: gold", "disable", "enable", "max_latency:10", "performance", "gold+cpu-quota=disable",
    "system/default", "criproxy.gold", "../gold",
)  # fmt: skip
MOST_ANNOTATIONS = 8000


@dataclass(frozen=True, slots=True)
class Attempt:
    """A pod with one container, and what it is to be resized to while it runs."""

    sandbox: api.PodSandboxConfig
    container: api.ContainerConfig
    resize: api.LinuxContainerResources


def _cut(text: str) -> str:
    return text[:70_000]


TEXTS = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from([_cut(text) for text in HOSTILE]),
    st.text(max_size=30),
    st.builds(lambda part, count: _cut(part * count), st.sampled_from(LONG), st.sampled_from([253, 5000, 70_000])),
)


@st.composite
def values(draw: st.DrawFn, key: str) -> str:
    """A value of an annotation: right, nearly right, or nothing of the kind."""
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(TEXTS)
    if kind == 1:
        return draw(st.sampled_from(BOMBS))
    right = SAMPLES.get(key) or (CLASS_VALUES if key in CLASS_KEYS or key in OF_PEERS else ("true", "false"))
    value = draw(st.sampled_from([*right, *WRONG]))
    if kind == 2:
        place = draw(st.integers(0, len(value)))
        return value[:place] + draw(st.text(max_size=2)) + value[place + draw(st.integers(0, 2)) :]
    return value


@st.composite
def annotations(draw: st.DrawFn, container: str) -> Mapping[str, str]:
    """Some of every kind that criproxy reads, and now and then as many as fit into a pod."""
    found: dict[str, str] = {}
    for key in draw(st.lists(st.sampled_from(sorted(OF_PEERS)), max_size=2)):
        scope = draw(st.sampled_from(["", "/pod", f"/container.{container}", f"/{container}"]))
        found[f"{key}{scope}"] = draw(values(key))
    for key in draw(st.lists(st.sampled_from([*sorted({*KEYS, *CLASS_KEYS}), "no-such-key"]), max_size=5)):
        domain = draw(st.sampled_from(DOMAINS))
        scope = draw(st.sampled_from(["", "/pod", f"/container.{container}", "/container.", "/"]))
        name = f"{domain}/{key}" if not draw(st.integers(0, 5)) else f"{key}.{domain}{scope}"
        found[name] = draw(values(key))
    if not draw(st.integers(0, 9)):
        found[draw(TEXTS)] = draw(TEXTS)
    if not draw(st.integers(0, 59)):
        count = draw(st.sampled_from([100, MOST_ANNOTATIONS]))
        found |= {f"k{number:05d}.{DOMAINS[0]}/pod": "v" for number in range(count)}
    return found


@st.composite
def resources(draw: st.DrawFn) -> api.LinuxContainerResources:
    """Usual sizes as often as any that a message can say."""
    if draw(st.booleans()):
        cpus = draw(st.integers(0, 4))
        return api.LinuxContainerResources(
            cpu_shares=max(2, 1024 * cpus), cpu_quota=100_000 * cpus, cpu_period=100_000,
            memory_limit_in_bytes=draw(st.sampled_from([0, 1 << 20, 1 << 30])),
            oom_score_adj=draw(st.sampled_from([-997, 1000, 500])),
        )  # fmt: skip
    return api.LinuxContainerResources(
        cpu_shares=draw(INT64), cpu_quota=draw(INT64), cpu_period=draw(INT64), memory_limit_in_bytes=draw(INT64),
        oom_score_adj=draw(INT64), cpuset_cpus=draw(st.sampled_from(CPUSETS)),
        cpuset_mems=draw(st.sampled_from(["", "", "0", "64", "x"])),
    )  # fmt: skip


@st.composite
def attempts(draw: st.DrawFn) -> Attempt:
    """A pod as only a kubelet that is somebody else's would send it."""
    name, container = draw(TEXTS), draw(TEXTS)
    namespace = draw(st.sampled_from(NAMESPACES) | TEXTS)
    labels = draw(st.dictionaries(TEXTS, TEXTS, max_size=2))
    uid = str(uuid4())  # two pods of one name at a time are not what is tried here
    sandbox = api.PodSandboxConfig(
        metadata=api.PodSandboxMetadata(name=name, namespace=namespace, uid=uid, attempt=draw(st.integers(0, 3))),
        labels={**labels, "io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": namespace},
        annotations=draw(annotations(container)),
        linux=api.LinuxPodSandboxConfig(cgroup_parent=draw(st.sampled_from(PARENTS))),
    )
    config = api.ContainerConfig(
        metadata=api.ContainerMetadata(name=container, attempt=draw(st.sampled_from([0, 1, (1 << 32) - 1]))),
        image=api.ImageSpec(image=draw(st.sampled_from([IMAGE] * 9 + ["", "x" * 5000]))),
        labels={**labels, "io.kubernetes.container.name": container, "io.kubernetes.pod.namespace": namespace},
        linux=api.LinuxContainerConfig(
            resources=draw(resources()),
            security_context=api.LinuxContainerSecurityContext(privileged=not draw(st.integers(0, 5))),
        ),
    )
    _devices(draw, config)
    return Attempt(sandbox, config, draw(resources()))


def _devices(draw: st.DrawFn, config: api.ContainerConfig) -> None:
    """What asks for cards that nobody allocated."""
    for key in draw(st.lists(st.sampled_from(ENVIRONMENT) | TEXTS, max_size=2)):
        value = draw((st.sampled_from(SEEN) | TEXTS).map(str.encode) | st.binary(max_size=20))
        config.envs.add(key=key, value=value)
    for path in draw(st.lists(st.sampled_from(MOUNTS) | TEXTS, max_size=2)):
        config.mounts.add(container_path=path, host_path=draw(st.sampled_from(["/dev/null", "", "/"]) | TEXTS))
    for path in draw(st.lists(st.sampled_from(DEVICES) | TEXTS, max_size=2)):
        config.devices.add(container_path=path, host_path=path, permissions=draw(st.sampled_from(["rwm", "", "x"])))
    for name in draw(st.lists(st.sampled_from(CDI) | TEXTS, max_size=1)):
        config.CDI_devices.add(name=name)
    if not draw(st.integers(0, 5)):
        config.annotations["criproxy/placement"] = draw(values(""))
        config.annotations["cdi.k8s.io/x"] = draw(st.sampled_from(CDI) | TEXTS)
