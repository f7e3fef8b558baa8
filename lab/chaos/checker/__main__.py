"""The checker as a program: looks every 5 ms, answers questions on standard input with lines of JSON.

    rest SECONDS     {"rest": true, "after_s": 0.4, "problems": []}: whether all is as it must be, at the latest then,
                     and whether ``status --check`` says just that
    end              {"looks": …, "violations": […], …}: what was seen, and the end of the program

A violation is told at once: {"violation": "two on one CPU: …"}.
"""

import argparse
import json
import select
import sqlite3
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

from criproxy.cri.api_pb2 import SANDBOX_READY
from lab.chaos.checker import status, store
from lab.chaos.checker.cgroups import Cgroups
from lab.chaos.checker.cpus import CpuSet, parse
from lab.chaos.checker.journal import Journal
from lab.chaos.checker.rest import Picture, wrongs
from lab.chaos.checker.runtime import Runtime, Unavailable
from lab.chaos.checker.samples import Samples

INTERVAL_S = 0.005
_TRY_AGAIN_S = 0.05
_GOOD_IN_A_ROW = 2


@dataclass(slots=True)
class Asking:
    """One question whether all is at rest."""

    began_s: float
    limit_s: float
    thread: Thread | None = None
    problems: list[str] = field(default_factory=lambda: ["nothing has been seen yet"])
    good: int = 0
    next_s: float = 0.0


class Checker:
    """Samples all the time; at most one question is open."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._one_pool: bool = options.one_pool
        self._cpus: CpuSet = parse(options.cpus)
        self._store: Path = options.store
        self._control: Path = options.control
        self._cgroups = Cgroups(options.cgroups)
        self._runtime = Runtime(options.runtime)
        self._journal = Journal(options.journal)
        self._samples = Samples(self._cgroups, Runtime(options.runtime), self._journal)
        self._violations: list[str] = []
        self._gaps: list[float] = []
        self._asking: Asking | None = None

    def run(self) -> None:
        """Serve until ``end``."""
        say({"ready": True})
        due = last = time.monotonic()
        while True:
            if select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
                words = sys.stdin.readline().split()
                if not words or words[0] == "end":
                    break
                self._asking = Asking(time.monotonic(), float(words[1]))
                continue
            now = time.monotonic()
            self._gaps.append(now - last)
            last = now
            for found in self._samples.look():
                sentence = f"{found} (at {datetime.now(UTC):%H:%M:%S.%f})"
                self._violations.append(sentence)
                say({"violation": sentence})
            if self._asking:
                self._pursue(self._asking)
            due = max(due + INTERVAL_S, time.monotonic())
        say(self._report())

    def _pursue(self, asking: Asking) -> None:
        if asking.thread and asking.thread.is_alive():
            return
        now = time.monotonic()
        if asking.thread:
            asking.thread = None
            asking.good = 0 if asking.problems else asking.good + 1
            over = now > asking.began_s + asking.limit_s
            if asking.good >= _GOOD_IN_A_ROW or (over and asking.problems):
                self._answer(asking)
                return
            asking.next_s = now + _TRY_AGAIN_S
        elif now >= asking.next_s:
            asking.thread = Thread(target=self._inspect, args=(asking,))
            asking.thread.start()

    def _answer(self, asking: Asking) -> None:
        after_s = round(time.monotonic() - asking.began_s, 3)
        say({"rest": not asking.problems, "after_s": after_s, "problems": asking.problems})
        self._violations += asking.problems
        self._asking = None
        self._journal.settled()

    def _inspect(self, asking: Asking) -> None:
        """In a thread of its own: a call takes longer than the pause between two looks."""
        try:
            listed, sandboxes = self._runtime.containers(), self._runtime.sandboxes()
            saved = store.read(self._store)
            groups = self._cgroups.running()
            said = status.ask(self._control)
        except (Unavailable, sqlite3.Error) as error:
            asking.problems = [f"cannot look: {error}"]
            return
        owns = dict(self._journal.owns)
        ids = {sandbox.id for sandbox in sandboxes}
        ready = {each.metadata.uid: each.metadata.name for each in sandboxes if each.state == SANDBOX_READY}
        found = wrongs(Picture(self._cpus, groups, listed, ids, saved, owns, one_pool=self._one_pool, ready=ready))
        resized = {title for title, counts in owns.items() if len(counts) > 1}
        asking.problems = [*(wrong.text for wrong in found), *status.disagreements(found, said, resized)]

    def _report(self) -> dict[str, object]:
        gaps = sorted(self._gaps) or [0.0]
        return {
            "looks": self._samples.looks,
            "looks_with_owners": self._samples.with_owners,
            "unjudged": self._samples.unjudged,
            "gap_ms": {f"p{part}": round(1000 * gaps[int((len(gaps) - 1) * part / 100)], 2) for part in (50, 99, 100)},
            "violations": self._violations,
        }


def say(line: dict[str, object]) -> None:
    """Tell the driver."""
    print(json.dumps(line), flush=True)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m lab.chaos.checker")
    for name in ("cgroups", "journal", "store", "control", "runtime", "cpus"):
        parser.add_argument(f"--{name}", type=str if name in ("runtime", "cpus") else Path, required=True)
    parser.add_argument("--one-pool", action="store_true", help="whoever shares shares all that nobody owns")
    Checker(parser.parse_args()).run()


if __name__ == "__main__":
    main()
