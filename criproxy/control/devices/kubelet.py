"""Evidence from the kubelet: its podresources, and the checkpoint of its device manager where that says more.

Podresources knows pods by their names, so that a pod made anew may be taken for the former one of its name; the
checkpoint has UIDs. So both are asked at the same time, as soon as a pod's sandbox is there: by then the kubelet has
allocated. What a pod was given stays for as long as it lives, and so does the answer.
"""

import asyncio
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from criproxy.control.devices.pod_names import PodNames
from criproxy.control.settings import DeviceLimits
from criproxy.cri.podresources import Devices, PodresourcesClient, PodresourcesError
from criproxy.devices.checkpoint import Checkpoint
from criproxy.devices.device_rules import KubeletFiles
from criproxy.devices.evidence import Known, Subject
from criproxy.discovery.checkpoint import CheckpointFile, Reading
from criproxy.discovery.patience import Patience
from criproxy.errors import StatusCode
from criproxy.observe.counters import Counters
from criproxy.observe.ending import PART_S
from criproxy.observe.logger import Log
from criproxy.observe.tasks import Tasks

ASK_TIMEOUT_S = 10.0
"""How long an answer may take for which no create waits any more; that of the kubelet's own clients."""
SURELY_S = 3.0
"""A kubelet that is silent for so long hangs; before, it may just be slow, as when all pods of a node come at once."""
HANGING_S = 0.05
"""How long a create waits for what is known to hang: it may be back."""
RECHECK_S = 5.0
"""How often a kubelet that hangs is asked whether it is back."""
RETRY_S = 1.0
"""A kubelet that gave no answer is not asked again of the same pod before."""
_HANGING = "hanging"
"""The outcome for a source that does not come back: its sentence says for how long, and so is never the same."""


@dataclass(slots=True)
class _Inquiry:
    """What is being found out of one pod."""

    begun_s: float
    asking: "asyncio.Task[None]" = field(init=False)
    """Asks podresources."""
    reading: "asyncio.Task[None]" = field(init=False)
    """Reads the checkpoint."""
    devices: Devices | None = None
    """What podresources has answered so far; None also where it does not know which pod is meant."""
    checkpoint: Reading = field(default_factory=Reading)
    """What the checkpoint said, as far as it was read."""
    absent: bool = False
    """The kubelet does not know the pod yet."""
    doubted: bool = False
    """The answer of podresources may be about a former pod of that name."""
    waited: bool = False
    """One create has waited as long as one may: no other one does."""

    def may_be_repeated(self, now_s: float) -> bool:
        """Whether it is over and has found nothing that is certain."""
        if not (self.asking.done() and self.reading.done()) or self.checkpoint.current:
            return False
        if self.devices is not None and not self.doubted:
            return False
        return self.absent or now_s - self.begun_s >= RETRY_S


@dataclass(slots=True)
class Kubelet:
    """A `Source` of evidence.

    Args:
        files: where the kubelet's are, and how long a create may wait for both together.
        host_root: prefix of them.
        counters: count what came of each question.
        log: has when a source fails, and when it is there again.
        tasks: run what asks, and what waits for podresources to come back.
        patience: for what may hang.
        names: of pods.
        look_s: how long a look at one of the files may take.
    """

    files: KubeletFiles
    host_root: Path
    counters: Counters
    log: Log
    tasks: Tasks
    patience: Patience = field(default_factory=Patience)
    names: PodNames = field(default_factory=PodNames)
    look_s: float = DeviceLimits().look_s
    _client: PodresourcesClient = field(init=False)
    _checkpoint: CheckpointFile = field(init=False)
    _inquiries: dict[str, _Inquiry] = field(default_factory=dict)
    """By sandbox."""
    _troubles: dict[str, str] = field(default_factory=dict)
    """By source, what the log has last."""
    _closed: bool = False

    def __post_init__(self) -> None:
        socket, checkpoint = (self.host_root / path.lstrip("/") for path in (self.files.socket, self.files.checkpoint))
        self._client = PodresourcesClient(socket, self.patience, self.look_s)
        self._checkpoint = CheckpointFile(checkpoint, self.patience, self.look_s)

    async def prefetch(self, pod: Subject) -> None:
        """Begin to find out what its containers were given."""
        self._inquire(pod)

    async def known(self, container: Subject) -> Known | None:
        """What *container* was given; the first to ask may wait, for no longer than `KubeletFiles.timeout_s`."""
        if (inquiry := self._inquire(container)) is None:
            return None
        pending = {task for task in (inquiry.asking, inquiry.reading) if not task.done()}
        if pending and not inquiry.waited:
            _, pending = await asyncio.wait(pending, timeout=self._patience_s(pending, inquiry))
            inquiry.waited |= bool(pending)
            if inquiry.asking in pending:
                self._is_silent(container, inquiry)
        for name, task in (("podresources", inquiry.asking), ("checkpoint", inquiry.reading)):
            if task in pending:
                self.counters.device_evidence[name, "late"] += 1
        return self._weigh(container, inquiry)

    def sandboxes(self) -> set[str]:
        """Those that were asked for."""
        return set(self._inquiries)

    def forget(self, sandbox_id: str) -> None:
        """Nothing will ask for it again."""
        if inquiry := self._inquiries.pop(sandbox_id, None):
            inquiry.asking.cancel()  # a thread that reads ends by itself

    async def close(self) -> None:
        """End all questions and the connection; whatever still asks gets that nothing is known."""
        self._closed = True
        tasks = {task for each in self._inquiries.values() for task in (each.asking, each.reading)}
        for name in (self._name, str(self._client.socket), str(self._checkpoint.path)):
            self.patience.back(name)  # nothing asks any more
        self._inquiries.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=PART_S)
        await self._client.close()

    def _patience_s(self, pending: AbstractSet[object], inquiry: _Inquiry) -> float:
        """How long to wait: hardly for a kubelet that is known to hang, and not at all for a file that does."""
        hangs = self.patience.hanging
        if inquiry.asking in pending and hangs.get(self._name, 0.0) < SURELY_S:
            return self.files.timeout_s
        if inquiry.reading in pending and str(self._checkpoint.path) not in hangs:
            return self.files.timeout_s
        return min(self.files.timeout_s, HANGING_S)

    @property
    def _name(self) -> str:
        return f"the kubelet's podresources, {self.files.socket}"

    def _is_silent(self, pod: Subject, inquiry: _Inquiry) -> None:
        """A create has waited for podresources in vain: log it, and find out when it answers again."""
        if self.patience.silent(self._name):
            self.counters.device_evidence["podresources", _HANGING] += 1
            text = f"{self._name} has not answered for {self.files.timeout_s:g} s"
            self._trouble("podresources", text, news=_HANGING)
            self.tasks.forever("wait for podresources", partial(self._until_back, pod, inquiry))

    async def _until_back(self, pod: Subject, inquiry: _Inquiry) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            if self._closed or self._name not in self.patience.hanging:
                return
            await self._ask(pod, inquiry)

    def _inquire(self, pod: Subject) -> _Inquiry | None:
        """What is known or being asked of the pod's sandbox; asked anew where the last answer was of no use."""
        if self._closed:
            return None
        now_s = asyncio.get_running_loop().time()
        self.names.see(pod.namespace, pod.pod, pod.pod_uid)
        inquiry = self._inquiries.get(pod.sandbox_id)
        if inquiry is None or inquiry.may_be_repeated(now_s):
            inquiry = self._inquiries[pod.sandbox_id] = _Inquiry(now_s)
            asking, reading = self._ask(pod, inquiry), self._read(inquiry)
            inquiry.asking = self.tasks.begin(f"ask podresources of {pod.sandbox_id}", asking)
            inquiry.reading = self.tasks.begin(f"read the checkpoint for {pod.sandbox_id}", reading)
        return inquiry

    def _weigh(self, who: Subject, inquiry: _Inquiry) -> Known | None:
        """What the answers say together: podresources first, unless the checkpoint knows that it means another pod.

        Where no checkpoint tells, the answer about a name that several pods had may mean any of them.
        """
        devices, reading, name = inquiry.devices, inquiry.checkpoint, who.container
        checkpoint = reading.checkpoint or Checkpoint()
        if devices is not None and name in devices:
            inquiry.doubted = self._is_in_doubt(who, checkpoint, current=reading.current)
            belied = checkpoint.contradicts(who.pod_uid, name, devices[name], current=reading.current)
            if inquiry.doubted:
                self.counters.device_evidence["podresources", "doubtful"] += 1
            if not belied:
                sure = not inquiry.doubted
                return Known("podresources", devices[name], complete=True, near=checkpoint.near, certain=sure)
            self.counters.device_evidence["podresources", "another-pod"] += 1
        if reading.checkpoint is None:
            return None
        known = checkpoint.of(who.pod_uid, name)
        return Known("checkpoint", known, complete=reading.current, near=checkpoint.near)

    def _is_in_doubt(self, who: Subject, checkpoint: Checkpoint, *, current: bool) -> bool:
        if current or checkpoint.of(who.pod_uid, who.container):
            return False
        return self.names.is_reused(who.namespace, who.pod, who.pod_uid)

    async def _ask(self, pod: Subject, inquiry: _Inquiry) -> None:
        if not self.files.socket:
            return
        try:
            found = await self._client.pods(pod.namespace, pod.pod, ASK_TIMEOUT_S)
        except PodresourcesError as error:
            if error.code is not StatusCode.DEADLINE_EXCEEDED:
                self.patience.back(self._name)
            self._outcome("podresources", "failed", str(error))
            return
        self.patience.back(self._name)
        inquiry.absent = not found
        self._outcome("podresources", "answered" if found else "absent")
        # Of two pods with this name, only the checkpoint can tell which is which.
        inquiry.devices = found[0] if found and all(each == found[0] for each in found) else None

    async def _read(self, inquiry: _Inquiry) -> None:
        if not self.files.checkpoint:
            return
        reading = inquiry.checkpoint = await self._checkpoint.read()
        failed = _HANGING if reading.hangs else "failed"
        outcome = "read" if reading.current else failed if reading.problem else "absent"
        self._outcome("checkpoint", outcome, reading.problem)

    def _outcome(self, source: str, outcome: str, problem: str = "") -> None:
        """Count, and log where it is news."""
        self.counters.device_evidence[source, outcome] += 1
        self._trouble(source, problem, news=outcome if outcome == _HANGING else problem)

    def _trouble(self, source: str, problem: str, *, news: str) -> None:
        """Log a *problem* if *news*, which is the same for the same problem, is another than before."""
        before = self._troubles.get(source, "")
        self._troubles[source] = news
        if problem and news != before:
            self.log.warning("the kubelet does not report what it allocated", source=source, error=problem)
        elif before and not problem:
            self.log.info("the kubelet reports again what it allocated", source=source)
