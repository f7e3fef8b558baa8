"""The cases of the matrix: for each policy, rows in which every two features meet."""

from collections.abc import Mapping
from dataclasses import dataclass

from criproxy.placement.options.annotation_keys import CLASS_KEYS, KEYS
from tests.matrix.covering import covering
from tests.matrix.moments import MOMENTS, POLICIES

VALUES: Mapping[str, str] = {
    "prefer-cpu-priority": "high",
    "unlimited-burstable": "system",
    "topologyhints": "false",
    "memory-type": "dram",
    "cold-start": "duration: 10s",
    "affinity": "main: [first]",
    "anti-affinity": "main: [shares]",
    "pool.podpools": "alone",
    "balloon.balloons": "database",
}
"""Values of annotations by key; ``true`` for all others."""
ASKS = [key for key in KEYS if key not in CLASS_KEYS]
"""Keys of annotations without those that name classes: no class changes CPUs, which is what the oracle judges, and with
another key there are more than 200 cases. Hostile pods beside normal ones have them (`lab.tenant.hostile`)."""
DEVICES = tuple(f"devices {word}" for word in ("absent", "off", "report", "enforce"))
PRIVILEGED = ("unprivileged", *(f"privileged: {word}" for word in ("allow", "report", "deny")))
PLUGINS = (
    "no plugin",
    "plugin, and a vGPU is over its quota",
    "plugin, and its card is unhealthy",
    "plugin, and its section changes",
    "plugin with vGPUs, and the checkpoint hangs",
)
"""Whether cards come from criproxy's own device plugin, and what becomes of it."""
NAMESPACES = ("in default", "in kube-system")
APPLY = ("apply: new", "apply: all")
PROXY, PLUGIN = FRONTS = ("as a proxy", "as a plugin of the runtime")
"""What takes the calls."""


@dataclass(frozen=True, slots=True)
class Case:
    """What meets in one case, in the words of the slots."""

    number: int
    policy: str
    moments: tuple[str, ...]
    """In this order, each within those before."""
    keys: tuple[str, ...]
    """Of annotations, each of a pod of its own."""
    devices: str
    privileged: str
    namespace: str
    apply: str
    front: str
    plugin: str

    @property
    def id(self) -> str:
        """Short, and stable as long as the slots stay."""
        return f"{self.policy}-{self.number:02}"

    @property
    def words(self) -> str:
        """All of it, for people."""
        return f"{self.id}: {', '.join((*self.moments, *self.keys, *self.said))}"

    @property
    def features(self) -> frozenset[str]:
        """The words that a plant may name."""
        return frozenset((self.policy, *self.moments, *self.keys, *self.said))

    @property
    def has_vgpus(self) -> bool:
        """Whether the plugin's cards are vGPUs; else they are shared."""
        return "vGPU" in self.plugin

    @property
    def said(self) -> tuple[str, ...]:
        """What the policy file says, the front, and the device plugin."""
        return self.devices, self.privileged, self.namespace, self.apply, self.front, self.plugin

    @property
    def is_plugin(self) -> bool:
        """Whether criproxy is one of the runtime: what NRI cannot do (`tests.nri.cannot`) is not expected."""
        return self.front == PLUGIN


def cases(policy: str) -> list[Case]:
    """The cases of one policy; 40 where nothing has changed."""
    moments = [word for word in MOMENTS if word != f"reload to {policy}"]
    rows = covering([moments] * 3 + [ASKS] * 4 + [DEVICES, PRIVILEGED, NAMESPACES, APPLY, FRONTS, PLUGINS])
    return [Case(number, policy, row[:3], row[3:7], *row[7:]) for number, row in enumerate(rows, 1)]


ALL = [case for policy in POLICIES for case in cases(policy)]
