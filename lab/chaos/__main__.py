"""`make chaos`: kills criproxy KILLS times on busy nodes, and writes what a stranger saw as JSON.

    python -m lab.chaos --kills 500 --seed 7 --json build/chaos.json
    python -m lab.chaos --kills 60 --seed 7 --runtime embedded
    python -m lab.chaos --kills 200 --seed 7 --runtime plugin    # criproxy as an NRI plugin of containerd 1.7

Where something is wrong, logs, journals and databases stay beside it, in the folder `build/chaos.logs`.

Exit status: 0 all as it must be, 1 violations, missed phases or a half that broke off, 2 wrong use.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab import runs
from lab.chaos import plugged
from lab.chaos.half import Half
from lab.chaos.nodes import SNAPSHOT, ContainerdNode, EmbeddedNode
from lab.chaos.phases import PHASES_OF, POLICIES, RUNTIMES, Kill, Phase, Tally, plan
from lab.containerd.containerd import available

NODES = {node.runtime: node for node in (ContainerdNode, EmbeddedNode, plugged.PluginNode)}


def main() -> int:
    """Do what the command line says."""
    options = _options()
    print(f"{options.kills} kills, seed {options.seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="criproxy-chaos-") as folder:
        tallies = [Tally(runtime) for runtime in options.runtimes]
        try:
            asyncio.run(_run(options, Path(folder), tallies))
        except asyncio.CancelledError:
            print("interrupted")
            return 130
    report = _report(options, tallies) | {"seconds": round(time.monotonic() - began, 1)}
    runs.write(options.json, report)
    return _say(report, options.json)


def _options() -> argparse.Namespace:
    parser = runs.parser("chaos", "Kill criproxy, and look.")
    parser.add_argument("--kills", type=int, default=60, help="how often (default: %(default)s)")
    parser.add_argument("--runtime", dest="runtimes", choices=NODES, action="append", help="only this one")
    parser.add_argument("--policy", choices=POLICIES, default=POLICIES[0], help="of criproxy (default: %(default)s)")
    names = [phase.value for phase in Phase]
    parser.add_argument("--phase", dest="phases", choices=names, action="append", help="only in this one")
    parser.add_argument("--lost", type=float, default=0.1, help="share of kills that cost the database (%(default)s)")
    parser.add_argument("--calm", type=float, default=0.1, help="share of kills with a rest before (%(default)s)")
    parser.add_argument("--rest", type=float, default=20.0, help="seconds until all must be right (%(default)s)")
    parser.add_argument("--stop", action="store_true", help="end at the first violation")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="logs, journals, databases: in any case, and here")
    parser.add_argument("--plant", default="none", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kills < 1:
        parser.error("--kills must be at least 1")
    options.runtimes = options.runtimes or list(RUNTIMES)
    if "embedded" in options.runtimes and not SNAPSHOT.is_file():
        parser.error(f"no machine for the embedded runtime: {SNAPSHOT} is missing (CRIPROXY_SHARED names its folder)")
    if "containerd" in options.runtimes and (reason := available()):
        parser.error(f"{reason}; --runtime embedded does without")
    if "plugin" in options.runtimes and (reason := plugged.unavailable()):
        parser.error(reason)
    options.phases = [Phase(name) for name in options.phases or names]
    return options


async def _run(options: argparse.Namespace, folder: Path, tallies: list[Tally]) -> None:
    """Both halves at once; a signal ends them in order."""
    task = asyncio.current_task()
    assert task
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        async with asyncio.TaskGroup() as group:
            for place, tally in enumerate(tallies):
                count = options.kills // len(tallies) + (place < options.kills % len(tallies))
                (directory := folder / tally.runtime).mkdir()
                node = NODES[tally.runtime](directory, options.policy, options.plant)
                phases = [phase for phase in options.phases if phase in PHASES_OF[tally.runtime]]
                kills = plan(options.seed, tally.runtime, count, phases, lost=options.lost, calm=options.calm)
                half = Half(node, kills, tally, _tell)
                group.create_task(half.run(options.rest, stop_at_violation=options.stop))
    finally:
        if options.keep or any(tally.violations or tally.missed or tally.broken for tally in tallies):
            _keep(folder, options.keep or options.json.with_suffix(".logs"))


def _keep(folder: Path, target: Path) -> None:
    for pattern in ("*/*.log", "*/journal", "*/state/criproxy.db*"):
        for file in folder.glob(pattern):
            place = target / file.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())


def _tell(tally: Tally, kill: Kill) -> None:
    """One more kill is over."""
    wrong = f"; {count} violations so far" if (count := len(tally.violations)) else ""
    rest = f"at rest after {tally.rest_s[-1]} s"
    print(f"{tally.runtime} kill {kill.number}, {kill.phase.value}: {rest}{wrong}", flush=True)
    for found in tally.violations:
        if found.get("kill") == kill.number:
            print(f"    {found['what']}", flush=True)


def _report(options: argparse.Namespace, tallies: list[Tally]) -> dict[str, Any]:
    known = [phase for phase in Phase if any(phase in PHASES_OF[tally.runtime] for tally in tallies)]
    phases = {phase.value: sum(tally.phases.get(phase.value, 0) for tally in tallies) for phase in known}
    return {
        "seed": options.seed,
        "policy": options.policy,
        "kills": sum(tally.kills for tally in tallies),
        "phases": phases,
        **{name: sum(len(getattr(tally, name)) for tally in tallies) for name in ("violations", "missed", "broken")},
        "halves": [asdict(tally) for tally in tallies],
        "command": f"make chaos KILLS={options.kills} SEED={options.seed}",
    }


def _say(report: dict[str, Any], file: Path) -> int:
    phases = ", ".join(f"{name} {count}" for name, count in report["phases"].items())
    print(f"{report['kills']} kills in {report['seconds']} s ({phases}): {file}")
    for half in report["halves"]:
        for each in (*half["violations"], *half["broken"]):
            what = f"VIOLATION: {each['what']}" if "what" in each else f"BROKEN: {each['error']}"
            print(f"{half['runtime']}, kill {each.get('kill')} ({each.get('phase')}): {what}")
        for missed in half["missed"]:
            print(f"missed {half['runtime']}, kill {missed}")
    if not report["violations"]:
        print("no violation")
    return 1 if report["violations"] or report["missed"] or report["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
