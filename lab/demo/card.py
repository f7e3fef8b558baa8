"""The simulated card of the demo: its device node, its section of the policy file, and its use by processes."""

import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.kubelet.device_endpoint import write_checkpoint

CARD = "card0"
"""The id of the card: the name of its device node."""
CARD_MIB = 8192
PROFILE = "half-card"
RESOURCE = f"criproxy.io/{PROFILE}"
ALLOWED_MIB = CARD_MIB // 2
CORES_PERCENT = 40
"""The computing units that each process uses, in percent of the card."""
PERIOD_S = 0.5
"""The period of readings of its use."""
AGE_S = 3 * PERIOD_S
"""An older reading is outdated, and the next one is the first again."""
HOST = "host"
"""The root directory, below that of the demo, if containers have no processes: with its own /proc, and our /dev."""
CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"
PODRESOURCES_SOCKET = "pod-resources/kubelet.sock"
"""Below the kubelet's directory."""
_PARENTS = ("/dev", "/dev/shm")
"""The possible directories of the node, since a policy file allows no others. Without root, only the second one."""
_NULL = (1, 3)
"""The major and minor number of /dev/null."""
_POLICY = """\
devices:
  podresources: {{socket: "{kubelet}/{podresources}"}}
  checkpoint: "{kubelet}/{checkpoint}"
  classes:
    - {{name: demo, resources: [example.com/card], idFormat: index, nodes: {{perDevice: ["{folder}/card{{index}}"]}}}}
  plugin:
    advertise: [demo]
    profiles: [{{name: {profile}, class: demo, memory: {allowed_mib}Mi, cores: 50, count: 2}}]
    usage: [{{class: demo, from: file, file: "{usage}"}}]
    quota: {{period: {period_ms}ms, grace: 1s, samples: 3, stopTimeout: 1s}}
"""


@dataclass(frozen=True, slots=True)
class Card:
    """The card; `create_card` creates it."""

    node: Path
    directory: Path
    """The directory of the demo."""

    @property
    def kubelet(self) -> Path:
        """The replacement of /var/lib/kubelet."""
        return self.directory / "kubelet"

    def policy(self, host_root: Path) -> str:
        """Return the section of the policy file; *host_root* is the root directory of the device plugin."""
        return _POLICY.format(
            kubelet=self.kubelet,
            podresources=PODRESOURCES_SOCKET,
            checkpoint=CHECKPOINT,
            folder=self.node.parent,
            profile=PROFILE,
            allowed_mib=ALLOWED_MIB,
            usage=f"/{self._usage.relative_to(host_root)}",
            period_ms=int(PERIOD_S * 1000),
        )

    def use(self, used_mib: Mapping[int, int]) -> None:
        """Report how much memory of the card each process uses, as a vendor's program would."""
        processes = [
            {"pid": pid, "card": CARD, "memory_mib": mib, "cores_percent": CORES_PERCENT}
            for pid, mib in used_mib.items()
        ]
        total = {"memory_mib": sum(used_mib.values()), "total_mib": CARD_MIB}
        card = {"card": CARD, **total, "cores_percent": CORES_PERCENT * len(processes)}
        new = self._usage.with_suffix(".new")
        new.write_text(json.dumps({"processes": processes, "cards": [card]}))
        new.replace(self._usage)

    @property
    def _usage(self) -> Path:
        return self.directory / HOST / "usage.json"


@contextmanager
def create_card(directory: Path) -> Iterator[Card | None]:
    """Create the card's device node, a copy of /dev/null, and remove it afterwards; None if /dev is not writable.

    Args:
        directory: the directory of the demo.
    """
    parent = next((each for each in _PARENTS if os.access(each, os.W_OK)), None)
    if parent is None:
        yield None
        return
    (host := directory / HOST).mkdir()
    (host / "dev").symlink_to("/dev")
    with tempfile.TemporaryDirectory(prefix="criproxy-demo-", dir=parent) as folder:
        node = Path(folder) / CARD
        try:
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(*_NULL))
        except PermissionError:
            node.symlink_to("/dev/null")  # runtimes follow the link
        card = Card(node, directory)
        (checkpoint := card.kubelet / CHECKPOINT).parent.mkdir(parents=True)
        write_checkpoint(checkpoint, {}, {})  # a kubelet has one before any container has a card
        yield card
