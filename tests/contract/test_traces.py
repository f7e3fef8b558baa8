"""Recordings of a real kubelet, played to a daemon in front of the emulated runtime."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.contract.cri import IMAGE, Cri, Refused, Values, pod_of
from tests.contract.programs import Node, wait_until
from tests.contract.traces import IDS, Recorded, end_by_themselves, read, recordings

POLICY = "policy: static\nreservedCpus: '0'\n"
"""Under which the recordings were made, on two CPUs."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The machine of the recordings, whose runtime cannot resize a sandbox, with a shared container beside them."""
    found = Node(tmp_path_factory.mktemp("t"), POLICY, cpus=("0-1",))
    with found.runtime_serving("--missing", "UpdatePodSandboxResources"), found.serving():
        with Cri(found.socket) as kubelet:
            kubelet.run(pod_of("beside", cpu_milli=100))
        yield found


class Player:
    """Plays one recording; `ids` has the ids here for those there."""

    def __init__(self, node: Node, kubelet: Cri, runtime: Cri) -> None:
        self.node = node
        self.kubelet = kubelet
        self.runtime = runtime
        self.ids: dict[str, str] = {}
        self.sandboxes: list[str] = []

    def play(self, calls: Sequence[Recorded]) -> dict[int, str]:
        """Make the calls; returns the outcome of each by its line, and looks at the CPUs after each start."""
        ends = end_by_themselves(calls)
        self._run_earlier(calls)
        outcomes = {}
        for call in calls:
            outcomes[call.line] = self._make(call)
            if call.line in ends:
                self._end(self.ids[ends[call.line]])
            if call.method == "StartContainer":
                assert shared_twice(self.node.containers()) == [], f"after line {call.line}"
        return outcomes

    def _run_earlier(self, calls: Sequence[Recorded]) -> None:
        """Run sandboxes of pods that came before the recording, and are stopped or removed in it."""
        made = {call.id("pod_sandbox_id") for call in calls if call.method == "RunPodSandbox"}
        for there in dict.fromkeys(call.id("pod_sandbox_id") for call in calls):
            if there and there not in made:
                self.ids[there] = self.kubelet.sandbox(pod_of(f"early-{there[:6]}"))
                self.sandboxes.append(self.ids[there])
                self.kubelet.call("StopPodSandbox", {"pod_sandbox_id": self.ids[there]})

    def _make(self, call: Recorded) -> str:
        try:
            reply = self.kubelet.call(call.method, self._mapped(call.request))
        except Refused as refused:
            return "failed" if refused.code == "UNIMPLEMENTED" else "not sent"
        self.ids.update({str(call.reply[key]): reply[key] for key in IDS if key in call.reply})
        if call.method == "RunPodSandbox":
            self.sandboxes.append(reply["pod_sandbox_id"])
        elif call.method == "RemovePodSandbox":
            self.sandboxes.remove(self.ids[call.id("pod_sandbox_id")])
        return "ok"

    def _mapped(self, request: Any) -> Values:  # noqa: ANN401 (JSON)
        mapped = {**request, **{key: self.ids.get(request[key], request[key]) for key in IDS if key in request}}
        if "image" in request.get("config", {}):
            mapped["config"] = {**request["config"], "image": IMAGE}
        return mapped

    def _end(self, container_id: str) -> None:
        """Let a process end behind criproxy's back, and wait until criproxy knows."""
        self.runtime.call("StopContainer", {"container_id": container_id})
        wait_until(lambda: self._has_ended(container_id), lambda: f"{container_id} still runs")

    def _has_ended(self, container_id: str) -> bool:
        listed = self.node.query("status")["containers"]
        return all(each["state"] == "exited" for each in listed if each["id"] == container_id)

    def clean_up(self) -> None:
        """Remove what is left."""
        for each in self.sandboxes:
            for method in ("StopPodSandbox", "RemovePodSandbox"):
                self.kubelet.call(method, {"pod_sandbox_id": each})


def cpus_of(text: str) -> set[int]:
    """Return the CPUs of a list such as ``0-1,3``."""
    ends = [part.split("-") for part in text.split(",") if part]
    return {cpu for each in ends for cpu in range(int(each[0]), int(each[-1]) + 1)}


def shared_twice(containers: dict[str, dict[str, Any]]) -> list[str]:
    """Return the pairs of pods of which one may run on an exclusive CPU of the other."""
    return [
        f"{one['pod']} and {other['pod']}"
        for one, other in combinations(containers.values(), 2)
        if cpus_of(one["exclusive_cpus"]) & cpus_of(other["applied_cpus"])
        or cpus_of(other["exclusive_cpus"]) & cpus_of(one["applied_cpus"])
    ]


@pytest.mark.parametrize("recording", recordings() or [None], ids=lambda file: file.stem if file else "none")
def test_a_real_kubelet_is_answered_as_it_was(node: Node, shared_dir: Path, recording: Path) -> None:
    """Each call ends as recorded, no exclusive CPU belongs to two containers, and all is well at the end."""
    calls = read(recording)
    with Cri(node.socket) as kubelet, Cri(node.runtime) as runtime:
        player = Player(node, kubelet, runtime)
        try:
            outcomes = player.play(calls)
            check = node.ask("status", "--check")
        finally:
            player.clean_up()

    assert outcomes == {call.line: call.outcome for call in calls}
    assert check.status == 0, check.text


def test_a_cpu_that_two_containers_have_is_found() -> None:
    """An exclusive CPU in the set of another container is noticed, whichever of them comes first."""
    one = {"pod": "one", "exclusive_cpus": "1-2", "applied_cpus": "1-2"}
    other = {"pod": "other", "exclusive_cpus": "", "applied_cpus": "0,2-3"}

    assert shared_twice({"one": one, "other": other}) == ["one and other"]
    assert shared_twice({"other": other, "one": one}) == ["other and one"]
    assert shared_twice({"one": one, "other": {**other, "applied_cpus": "0,3-4"}}) == []
