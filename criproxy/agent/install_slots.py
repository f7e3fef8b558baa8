"""The gate before a first installation: not more nodes than allowed install criproxy at the same time.

A DaemonSet makes the pods of all new nodes at once, and each installation restarts a kubelet. So the first container of
the pod waits for one of a few Leases, and the agent, the pod's last one, gives it up once all is well on its node. A
node on which something is wrong thus keeps the others waiting, as in a rollout of the DaemonSet.

A Lease has no end in time: its holder is a pod, and it is free when this pod no longer exists.
"""

import asyncio
import random
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from criproxy.agent.kubernetes.client import LEASES, PODS, ApiClient
from criproxy.agent.kubernetes.credentials import credentials_of
from criproxy.agent.kubernetes.request import ApiError, Conflict, Object, Unreachable
from criproxy.agent.node_view import NodeView
from criproxy.agent.options import AgentOptions
from criproxy.agent.rollout.situation import problems_of
from criproxy.agent.troubles import Troubles
from criproxy.process.control_client import ControlClient, DaemonRefuses, NoDaemon
from criproxy.process.logger import Log
from criproxy.process.tasks import Backoff

PREFIX = "criproxy-install-"
LABEL, NODE = "criproxy.io/lease", "criproxy.io/node"
SELECTOR = f"{LABEL}=install"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 30.0
"""Between two looks at the Leases."""
_PATIENCE_S = 10.0
"""With a daemon on this node."""


@dataclass(frozen=True, slots=True)
class InstallSlots:
    """The Leases, as one pod uses them.

    Args:
        client: of the API server.
        namespace: of the Leases and of the pods.
        pod: this pod's name.
        node: that of its node, for people.
        log: gets a line whenever the pod waits for another one.
        first_pause_s: between the first two looks.
    """

    client: ApiClient
    namespace: str
    pod: str
    node: str
    log: Log
    first_pause_s: float = FIRST_PAUSE_S

    @classmethod
    def of(cls, client: ApiClient, options: AgentOptions, log: Log) -> Self:
        """Return what the pod of *options* uses."""
        return cls(client, options.namespace, options.pod_name or options.node_name, options.node_name, log)

    async def take(self, count: int) -> None:
        """Return once this pod has one of *count* Leases; faults of the API server only prolong the wait."""
        pauses, told = Backoff(self.first_pause_s, LONGEST_PAUSE_S, least=0.5), ""
        while True:
            try:
                waits_for = await self._tried(count)
            except (ApiError, Unreachable) as error:
                waits_for = f"the API server: {error}"
            if not waits_for:
                self.log.info("this node may install criproxy", node=self.node)
                return
            if waits_for != told:
                self.log.info("this node waits before it installs criproxy", node=self.node, waits_for=waits_for)
                told = waits_for
            await asyncio.sleep(pauses.pause_s())

    async def give_up(self) -> None:
        """Delete what this pod holds.

        Raises:
            ApiError, Unreachable: it may still hold it.
        """
        leases, _ = await self.client.list(LEASES, self.namespace, label_selector=SELECTOR)
        for lease in leases:
            if _holder(lease) == self.pod:
                metadata = lease["metadata"]
                await self.client.delete(LEASES, metadata["name"], self.namespace, uid=str(metadata.get("uid", "")))
                self.log.info("the next node may install criproxy", lease=metadata["name"])

    async def _tried(self, count: int) -> str:
        """Take a Lease that is free; return for what this pod waits, empty if it has one."""
        holders = []
        for name in [f"{PREFIX}{number}" for number in range(count)]:
            lease = await self.client.get(LEASES, name, self.namespace)
            holder = _holder(lease) if lease else ""
            if holder == self.pod:
                return ""
            if holder and await self.client.get(PODS, holder, self.namespace, metadata_only=True) is not None:
                holders.append(f"{_node(lease)} (Lease {name}, pod {holder})")
                continue
            try:
                await self._write(name, lease)
            except Conflict:  # another pod was faster
                holders.append(f"another pod that has just taken Lease {name}")
            else:
                return ""
        return f"criproxy on {' and '.join(sorted(holders))}; deleting a Lease lets one more node begin"

    async def _write(self, name: str, former: Object | None) -> None:
        metadata = (former or {}).get("metadata") or {"name": name, "namespace": self.namespace}
        labels, annotations = {LABEL: "install"}, {NODE: self.node}
        lease = {"metadata": metadata | {"labels": labels, "annotations": annotations}}
        lease["spec"] = {"holderIdentity": self.pod}
        await (self.client.replace if former else self.client.create)(LEASES, lease)


def _holder(lease: Object) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _node(lease: Object | None) -> str:
    return str(((lease or {}).get("metadata", {}).get("annotations") or {}).get(NODE, "an unknown node"))


async def give_up_when_well(
    slots: InstallSlots, view: NodeView, troubles: Troubles, pause_s: float = LONGEST_PAUSE_S
) -> None:
    """Give the Lease of this pod up as soon as all is well on the node, once, and wait for ever; a part of the agent.

    Args:
        slots: the Leases.
        view: the daemon's.
        troubles: told while the Lease cannot be given up.
        pause_s: before it is tried again.
    """

    def is_well() -> bool:
        last = view.last
        return last is not None and not view.problem and not last.get("ready") and not problems_of(last)

    async def problem() -> str:
        try:
            await slots.give_up()
        except (ApiError, Unreachable) as error:
            return f"other nodes may wait before they install criproxy, until this one gives up its Lease: {error}"
        return ""

    while not is_well():
        await view.changed(view.version)
    while text := await problem():
        troubles.set("install-slot", text)
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
    troubles.set("install-slot", "")
    await asyncio.Event().wait()


async def wait_to_install(options: AgentOptions, log: Log) -> None:
    """Return once this node may install criproxy: at once if its daemon answers, since then it has it already.

    Raises:
        CriproxyError: there is no way to reach the API server.
    """
    if await _answers(options.control_socket):
        log.info("criproxy is installed on this node, so it need not wait", node=options.node_name)
        return
    spread_s = options.first_contact_s
    async with ApiClient(
        credentials_of(options.kubeconfig), node=options.node_name, first_contact_s=spread_s
    ) as client:
        await InstallSlots.of(client, options, log).take(options.wait_to_install)


async def _answers(control_socket: str) -> bool:
    with closing(ControlClient(control_socket, _PATIENCE_S)) as client:
        try:
            await client.ask("status", {})
        except NoDaemon:
            return False
        except DaemonRefuses:
            pass
    return True
