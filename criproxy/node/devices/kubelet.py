"""Evidence from the kubelet: its podresources API, and the checkpoint of its device manager, which has more details.

Podresources identifies pods by name, so that a recreated pod may be confused with the former pod of that name; the
checkpoint has UIDs. Both are queried at the same time, as soon as a pod's sandbox exists: by then the kubelet has
allocated. An allocation does not change while the pod exists, so the answer stays valid.
"""

import asyncio
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from criproxy.cri.podresources import Devices, PodresourcesClient, PodresourcesError
from criproxy.devices.device_rules import KubeletFiles
from criproxy.devices.evidence.checkpoint import Checkpoint
from criproxy.devices.evidence.evidence import Known, Subject
from criproxy.errors import StatusCode
from criproxy.host.checkpoint_file import CheckpointFile, Reading
from criproxy.host.patience import Patience
from criproxy.model.workload import Pod
from criproxy.node.counters import Counters
from criproxy.node.settings import DeviceLimits
from criproxy.process.logger import Log
from criproxy.process.tasks import PART_S, Tasks

ASK_TIMEOUT_S = 10.0
"""How long an answer may take if no create waits for it any more: the timeout of the kubelet's own clients."""
SURELY_S = 3.0
"""When a silent kubelet counts as hanging; before, it may be slow, for example if all pods of a node start at once."""
HANGING_S = 0.05
"""How long a create waits for a source that hangs: it may answer again."""
RECHECK_S = 5.0
"""How often a kubelet that hangs is queried again."""
RETRY_S = 1.0
"""The shortest pause before a kubelet that did not answer is queried again about the same pod."""
_HANGING = "hanging"
"""The outcome for a source that hangs; its sentence contains the duration, and so always differs."""
MAX_NAMES = 20_000
"""Names that are remembered: the most recent ones."""


@dataclass(slots=True)
class PodNames:
    """The names and UIDs of pods since criproxy started.

    Args:
        pods: returns the pods on the node, including those from before the start.
    """

    pods: Callable[[], Iterable[Pod]] = tuple
    _uids: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """UIDs by namespace and name; two are enough to know that the name was reused."""

    def update(self) -> None:
        """Add the pods on the node."""
        for pod in self.pods():
            self.add(pod.namespace, pod.name, pod.uid)

    def add(self, namespace: str, name: str, uid: str) -> None:
        """Add one pod."""
        uids = self._uids[namespace, name] = self._uids.pop((namespace, name), set())
        if len(uids) < 2:
            uids.add(uid)
        if len(self._uids) > MAX_NAMES:
            del self._uids[next(iter(self._uids))]

    def is_reused(self, namespace: str, name: str, uid: str) -> bool:
        """Whether another pod than *uid* has, or had, this name."""
        self.update()
        return bool(self._uids.get((namespace, name), set()) - {uid})


@dataclass(slots=True)
class _Inquiry:
    """The queries about one pod, and their answers."""

    begun_s: float
    asking: "asyncio.Task[None]" = field(init=False)
    """Queries podresources."""
    reading: "asyncio.Task[None]" = field(init=False)
    """Reads the checkpoint."""
    devices: Devices | None = None
    """The answer of podresources; None until it answers, and if it is unclear which pod is meant."""
    checkpoint: Reading = field(default_factory=Reading)
    """The content of the checkpoint, if it was read."""
    absent: bool = False
    """Whether the kubelet does not know the pod yet."""
    doubted: bool = False
    """Whether the answer of podresources may be about a former pod of that name."""
    waited: bool = False
    """Whether one create has waited until the limit, so that no other one waits."""

    def may_be_repeated(self, now_s: float) -> bool:
        """Whether both queries have ended without a certain result."""
        is_certain = self.checkpoint.current or (self.devices is not None and not self.doubted)
        has_ended = self.asking.done() and self.reading.done()
        return has_ended and not is_certain and (self.absent or now_s - self.begun_s >= RETRY_S)


@dataclass(slots=True)
class Kubelet:
    """A source of evidence in addition to the create. Its methods do not fail.

    Args:
        files: paths of the kubelet's files, and how long a create may wait for both together.
        host_root: prefix of these paths.
        counters: count the outcome of each query.
        log: receives a line when a source fails, and when it works again.
        tasks: run the queries, and the task that waits for podresources to answer again.
        patience: limits waits for files that may hang.
        names: the names of pods.
        scan_s: how long access to one of the files may take.
    """

    files: KubeletFiles
    host_root: Path
    counters: Counters
    log: Log
    tasks: Tasks
    patience: Patience = field(default_factory=Patience)
    names: PodNames = field(default_factory=PodNames)
    scan_s: float = DeviceLimits().scan_s
    _client: PodresourcesClient = field(init=False)
    _checkpoint: CheckpointFile = field(init=False)
    _inquiries: dict[str, _Inquiry] = field(default_factory=dict)
    """By sandbox."""
    _troubles: dict[str, str] = field(default_factory=dict)
    """By source, the last problem that was logged."""
    _silent: bool = False
    """Whether podresources has not answered since it was last asked."""
    _rechecks: bool = False
    """Whether a task asks again now and then, until it answers."""
    _closed: bool = False

    def __post_init__(self) -> None:
        socket, checkpoint = (self.host_root / path.lstrip("/") for path in (self.files.socket, self.files.checkpoint))
        self._client = PodresourcesClient(socket, self.patience, self.scan_s)
        self._checkpoint = CheckpointFile(checkpoint, self.patience, self.scan_s)

    async def prefetch(self, pod: Subject) -> None:
        """Begin to query which cards are allocated to the containers of *pod*."""
        self._inquire(pod)

    async def known(self, container: Subject) -> Known | None:
        """Return what is allocated to *container*; the first caller may wait, at most `KubeletFiles.timeout_s`."""
        if (inquiry := self._inquire(container)) is None:
            return None
        names = {inquiry.asking: "podresources", inquiry.reading: "checkpoint"}
        pending = {task for task in names if not task.done()}
        if pending and not inquiry.waited:
            _, pending = await asyncio.wait(pending, timeout=self._patience_s(pending, inquiry))
            inquiry.waited = bool(pending)
            if inquiry.asking in pending:
                self._handle_silence(container, inquiry)
        for task in pending:
            self.counters.device_evidence[names[task], "late"] += 1
        return self._weigh(container, inquiry)

    def sandboxes(self) -> set[str]:
        """Return the sandboxes about which there were queries."""
        return set(self._inquiries)

    def forget(self, sandbox_id: str) -> None:
        """Forget a sandbox about which no further query follows."""
        if inquiry := self._inquiries.pop(sandbox_id, None):
            inquiry.asking.cancel()  # a thread that reads the file cannot be cancelled, and ends later

    async def close(self) -> None:
        """End all queries and the connection; callers that still wait get no result."""
        self._closed = True
        tasks = {task for each in self._inquiries.values() for task in (each.asking, each.reading)}
        for name in (self._name, str(self._client.socket), str(self._checkpoint.path)):
            self.patience.mark_answered(name)  # no query follows
        self._inquiries.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=PART_S)
        await self._client.close()

    def _patience_s(self, pending: AbstractSet[object], inquiry: _Inquiry) -> float:
        """Return how long to wait: only briefly for a kubelet that is known to hang, and not at all for such a file."""
        hangs = self.patience.hanging
        if inquiry.asking in pending and hangs.get(self._name, 0.0) < SURELY_S:
            return self.files.timeout_s
        if inquiry.reading in pending and str(self._checkpoint.path) not in hangs:
            return self.files.timeout_s
        return min(self.files.timeout_s, HANGING_S)

    @property
    def _name(self) -> str:
        return f"the kubelet's podresources, {self.files.socket}"

    def _handle_silence(self, pod: Subject, inquiry: _Inquiry) -> None:
        """Log that a create has waited for podresources in vain, and start to check when it answers again."""
        if self.patience.mark_silent(self._name):
            text = f"{self._name} has not answered for {self.files.timeout_s:g} s"
            self._outcome("podresources", _HANGING, text)
            self._await_answer(pod, inquiry)

    def _await_answer(self, pod: Subject, inquiry: _Inquiry) -> None:
        """Ask about *pod* until podresources answers: without another pod, it would seem down all the time."""
        self._silent = True
        if not self._rechecks and not self._closed:
            self._rechecks = True
            self.tasks.forever("wait for podresources", partial(self._until_back, pod, inquiry))

    async def _until_back(self, pod: Subject, inquiry: _Inquiry) -> None:
        await asyncio.sleep(RECHECK_S)
        while self._silent and not self._closed:
            await self._ask(pod, inquiry)
            await asyncio.sleep(RECHECK_S)
        self._rechecks = False

    def _inquire(self, pod: Subject) -> _Inquiry | None:
        """Return the queries about the pod's sandbox; begin new ones if the last answers were of no use."""
        if self._closed:
            return None
        now_s = asyncio.get_running_loop().time()
        self.names.add(pod.namespace, pod.pod, pod.pod_uid)
        inquiry = self._inquiries.get(pod.sandbox_id)
        if inquiry is None or inquiry.may_be_repeated(now_s):
            inquiry = self._inquiries[pod.sandbox_id] = _Inquiry(now_s)
            asking, reading = self._ask(pod, inquiry), self._read(inquiry)
            inquiry.asking = self.tasks.begin(f"ask podresources of {pod.sandbox_id}", asking)
            inquiry.reading = self.tasks.begin(f"read the checkpoint for {pod.sandbox_id}", reading)
        return inquiry

    def _weigh(self, subject: Subject, inquiry: _Inquiry) -> Known | None:
        """Combine the answers: podresources takes precedence unless the checkpoint shows that it means another pod.

        Without a checkpoint, an answer about a name that several pods have had may mean any of them.
        """
        devices, reading, name, uid = inquiry.devices, inquiry.checkpoint, subject.container, subject.pod_uid
        checkpoint = reading.checkpoint or Checkpoint()
        near = checkpoint.near
        if devices is not None and name in devices:
            is_by_uid = reading.current or bool(checkpoint.of(uid, name))
            inquiry.doubted = not is_by_uid and self.names.is_reused(subject.namespace, subject.pod, uid)
            if inquiry.doubted:
                self.counters.device_evidence["podresources", "doubtful"] += 1
            if not checkpoint.contradicts(uid, name, devices[name], current=reading.current):
                sure, by_uid = not inquiry.doubted, reading.current
                return Known("podresources", devices[name], complete=True, near=near, certain=sure, by_uid=by_uid)
            self.counters.device_evidence["podresources", "another-pod"] += 1
        if reading.checkpoint is None:
            return None
        return Known("checkpoint", checkpoint.of(uid, name), complete=reading.current, near=near, by_uid=True)

    async def _ask(self, pod: Subject, inquiry: _Inquiry) -> None:
        if not self.files.socket:
            return
        try:
            found = await self._client.pods(pod.namespace, pod.pod, ASK_TIMEOUT_S)
        except PodresourcesError as error:
            if error.code is not StatusCode.DEADLINE_EXCEEDED:
                self.patience.mark_answered(self._name)
            self._outcome("podresources", "failed", str(error))
            self._await_answer(pod, inquiry)
            return
        self.patience.mark_answered(self._name)
        self._silent, inquiry.absent = False, not found
        self._outcome("podresources", "answered" if found else "absent")
        # Of two pods with this name, only the checkpoint can distinguish them.
        inquiry.devices = found[0] if found and all(each == found[0] for each in found) else None

    async def _read(self, inquiry: _Inquiry) -> None:
        if not self.files.checkpoint:
            return
        reading = inquiry.checkpoint = await self._checkpoint.read()
        outcome = "read" if reading.current else "failed" if reading.problem else "absent"
        self._outcome("checkpoint", _HANGING if reading.hangs else outcome, reading.problem)

    def _outcome(self, source: str, outcome: str, problem: str = "") -> None:
        """Count an outcome, and log a *problem* that differs from the last one of *source*."""
        self.counters.device_evidence[source, outcome] += 1
        before, news = self._troubles.get(source, ""), outcome if outcome == _HANGING else problem
        self._troubles[source] = news
        if problem and news != before:
            self.log.warning("the kubelet does not report what it allocated", source=source, error=problem)
        elif before and not problem:
            self.log.info("the kubelet reports again what it allocated", source=source)
