"""Recordings of a real kubelet: what they say, and which processes end by themselves, of which nobody tells."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contract.programs import ROOT

IDS = ("pod_sandbox_id", "container_id")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One call of a recording."""

    line: int
    method: str
    outcome: str
    """``ok``, ``failed`` by the runtime, or ``not sent`` because criproxy refused it."""
    request: Mapping[str, Any]
    reply: Mapping[str, Any]

    def id(self, key: str) -> str:
        """The sandbox or the container that the request names, or the reply of a new one."""
        return str(self.request.get(key) or self.reply.get(key) or "")


def recordings() -> list[Path]:
    """The files, of all kubelets; none without the reference data."""
    shared = Path(os.environ.get("CRIPROXY_SHARED") or ROOT.parent / "shared")
    return sorted(shared.glob("traces/kubelet-*/*.jsonl"))


def read(file: Path) -> list[Recorded]:
    """The calls in the order in which they began."""
    said = map(json.loads, file.read_text().splitlines())
    return [
        Recorded(line, call["method"].rpartition("/")[2], call["outcome"], call["request"], call.get("reply") or {})
        for line, call in enumerate(said, start=1)
    ]


def end_by_themselves(calls: Sequence[Recorded]) -> dict[int, str]:
    """Line after which a container has ended by itself → its id.

    Those that are started and never stopped have, after the last call that needs them, if their sandbox goes on.
    """
    created = {call.id("container_id"): call.id("pod_sandbox_id") for call in calls if call.method == "CreateContainer"}
    stopped = {call.id("container_id") for call in calls if call.method == "StopContainer"}
    last = {call.id("container_id"): call.line for call in calls if call.method != "RemoveContainer"}
    of_sandbox = {call.id("pod_sandbox_id"): call.line for call in calls}
    never_stopped = created.keys() - stopped - {""}
    return {last[each]: each for each in never_stopped if of_sandbox[created[each]] > last[each]}
