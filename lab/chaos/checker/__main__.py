"""The checker as a program: looks every 5 ms, answers questions on standard input with lines of JSON.

    rest SECONDS     {"rest": true, "after_s": 0.4, "problems": []}: whether all is as it must be, at the latest then,
                     and whether ``status --check`` says just that
    end              {"looks": …, "looks_with_owners": …, "unjudged": …, "unplaced": …}, and the end of the program

A violation is told at once: {"violation": "two on one CPU: …"}.
"""

import argparse
import json
import sqlite3
import sys
import time
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from threading import Event, Lock, Thread

from criproxy.cri.api_pb2 import SANDBOX_READY
from lab.chaos.checker.cgroups import Cgroups, parse
from lab.chaos.checker.rest import Picture, ask, ask_status, disagreements, wrongs
from lab.chaos.checker.runtime import Runtime, Unavailable, read_store
from lab.chaos.checker.samples import Journal, Samples
from lab.chaos.checker.starts import Starts
from lab.chaos.checker.unplaced import told_in

INTERVAL_S = 0.005
_TRY_AGAIN_S = 0.05
_GOOD_IN_A_ROW = 2


class Checker:
    """Samples all the time, in a thread of its own: a call to the runtime takes longer than the pause between looks."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._cgroups = Cgroups(options.cgroups)
        self._runtime = Runtime(options.runtime)
        self._journal = Journal(options.journal)
        self._starts = Starts(self._cgroups, options.bundles, self._journal.gaps)
        self._samples = Samples(self._cgroups, Runtime(options.runtime), self._journal, self._starts)
        self._looking = Lock()
        self._ended = Event()

    def run(self) -> None:
        """Serve until ``end``."""
        sampling = Thread(target=self._sample)
        sampling.start()
        say({"ready": True})
        for words in map(str.split, sys.stdin):
            if words[0] == "end":
                break
            self._rest(float(words[1]))
        self._ended.set()
        sampling.join()
        seen = self._samples
        looks = {"looks": seen.looks, "looks_with_owners": seen.with_owners, "unjudged": seen.unjudged}
        say({**looks, "unplaced": self._starts.judged})

    def _sample(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            with self._looking:
                found = list(self._samples.look())
            for sentence in found:
                say({"violation": f"{sentence} (at {datetime.now(UTC):%H:%M:%S.%f})"})

    def _rest(self, limit_s: float) -> None:
        """Look until all is right twice in a row, or is not at the limit, and say so."""
        began_s, good, problems = time.monotonic(), 0, list[str]()
        while good < _GOOD_IN_A_ROW:
            problems = self._inspect()
            good = 0 if problems else good + 1
            if problems and time.monotonic() > began_s + limit_s:
                break
            time.sleep(_TRY_AGAIN_S)
        with self._looking:
            self._journal.settled()
            problems += self._verdict()
        say({"rest": not problems, "after_s": round(time.monotonic() - began_s, 3), "problems": problems})

    def _verdict(self) -> list[str]:
        """What is wrong with those that started without a place."""
        try:
            since_s = self._starts.since_s
            events = ask(self._options.control, "events", since_s=since_s)["events"] if since_s < inf else []
        except Unavailable as error:
            return [f"cannot look: {error}"]
        return self._starts.verdict([*told_in(events)])

    def _inspect(self) -> list[str]:
        try:
            listed, sandboxes = self._runtime.containers(), self._runtime.sandboxes()
            saved = read_store(self._options.store)
            groups = self._cgroups.running()
            said = ask_status(self._options.control)
        except (Unavailable, sqlite3.Error) as error:
            return [f"cannot look: {error}"]
        owns = dict(self._journal.owns)
        ids = {sandbox.id for sandbox in sandboxes}
        ready = {each.metadata.uid: each.metadata.name for each in sandboxes if each.state == SANDBOX_READY}
        cpus, one_pool = parse(self._options.cpus), self._options.one_pool
        found = wrongs(Picture(cpus, groups, listed, ids, saved, owns, one_pool=one_pool, ready=ready))
        resized = {title for title, counts in owns.items() if len(counts) > 1}
        disturbed = {self._journal.names.get(key, key) for key in {*self._journal.disturbed}}
        return [*(wrong.text for wrong in found), *disagreements(found, said, resized, disturbed)]


def say(line: dict[str, object]) -> None:
    """Tell the driver; a line of one thread is not torn by another."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m lab.chaos.checker")
    for name in ("cgroups", "journal", "store", "control", "runtime", "cpus"):
        parser.add_argument(f"--{name}", type=str if name in ("runtime", "cpus") else Path, required=True)
    parser.add_argument("--bundles", type=Path, help="the runtime's, where containers may start without a place")
    parser.add_argument("--one-pool", action="store_true", help="whoever shares shares all that nobody owns")
    Checker(parser.parse_args()).run()


if __name__ == "__main__":
    main()
