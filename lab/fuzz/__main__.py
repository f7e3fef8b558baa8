"""`make fuzz`: runs a fuzzing session for some seconds and writes what it did and found as JSON.

    python -m lab.fuzz --seconds 600 --seed 7 --json build/fuzz.json
    python -m lab.fuzz --replay build/fuzz-findings/structured-0123456789abcdef

Exit status: 0 nothing found, 1 something found, 2 wrong use.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab import runs
from lab.fuzz.session import Settings, Stall, watched
from lab.provenance import ROOT, commit

_COVERAGE = ("edges", "features", "inputs")
GRACE_S = 90.0
"""A session that is not over this long after its time is a finding."""


def main() -> int:
    """Do what the command line says."""
    options = _options()
    return _replay(options.replay, options.plant) if options.replay else _fuzz(options)


def _options() -> argparse.Namespace:
    parser = runs.parser("fuzz", "Fuzz the data plane.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: %(default)s)")
    parser.add_argument("--executions", type=int, default=0, help="end after so many inputs instead")
    parser.add_argument("--max-findings", type=int, default=20, help="end after this many (default: %(default)s)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input and show what goes wrong")
    parser.add_argument("--plant", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.seconds < 1 or options.executions < 0:
        parser.error("--seconds must be at least 1, and --executions not negative")
    return options


def _replay(file: Path, plant: str) -> int:
    from lab.fuzz import targets
    from lab.fuzz.plants import PLANTS

    if plant:
        PLANTS[plant]()
    data = file.read_bytes()
    print(f"{file}: {len(data)} bytes for target {targets.NAMES[targets.target_of(data)]}")
    try:
        watched(targets.run, data)
    except (Exception, Stall):  # noqa: BLE001 - any is what we look for
        traceback.print_exc()
        return 1
    print("nothing goes wrong")
    return 0


def _fuzz(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: it has wheels for x86_64 and for Python before 3.14", file=sys.stderr)
        return 2
    corpus, findings = (options.json.with_name(f"{options.json.stem}-{name}") for name in ("corpus", "findings"))
    corpus.mkdir(parents=True, exist_ok=True)
    state, log = options.json.with_suffix(".state"), options.json.with_suffix(".log")
    state.unlink(missing_ok=True)
    asked = {name: getattr(options, name) for name in ("seconds", "executions", "max_findings", "plant", "seed")}
    settings = Settings(corpus=str(corpus), findings=str(findings), state=str(state), **asked)
    extent = f"{options.executions} inputs" if options.executions else f"{options.seconds:g} s"
    print(f"fuzzing for {extent}, seed {options.seed}", flush=True)
    report = {"commit": commit()}  # of what runs, not of what is there when it ends
    report |= _report(settings, *_run_session(settings, log), log)
    runs.write(options.json, report)
    state.unlink(missing_ok=True)
    _say(report, options.json)
    return 1 if report["findings"] else 0


def _run_session(settings: Settings, log: Path) -> tuple[float, str]:
    """Run the session's process; returns its seconds, and how it ended if not as it should."""
    command = [sys.executable, "-m", "lab.fuzz.session", json.dumps(asdict(settings))]
    began, ended = time.monotonic(), ""
    with log.open("wb") as output:
        try:
            limit_s = None if settings.executions else settings.seconds + GRACE_S
            done = subprocess.run(command, stdout=output, stderr=output, timeout=limit_s, check=False, cwd=ROOT)
            if done.returncode:
                ended = f"the session ended with status {done.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"the session did not end within {GRACE_S:g} s after its time"
    return time.monotonic() - began, ended


def _report(settings: Settings, seconds: float, ended: str, log: Path) -> dict[str, Any]:
    """All figures and findings of a run."""
    state, text = Path(settings.state), log.read_text(errors="replace")
    results: dict[str, Any] = json.loads(state.read_text()) if state.exists() else {"executions": 0, "findings": []}
    if ended or not results.get("complete"):
        what = ended or "the session ended without its results"
        results["findings"].append({"what": what, "file": str(log), "replay": "", "traceback": text[-3000:]})
    coverage = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/", text)
    return {
        "seed": settings.seed,
        "seconds": round(seconds, 1),
        "executions_per_s": round(results["executions"] / seconds, 1),
        **results,
        "coverage": dict(zip(_COVERAGE, map(int, (coverage or [()])[-1]), strict=False)) or None,
        "command": f"make fuzz SECONDS={settings.seconds:g} SEED={settings.seed}",
    }


def _say(report: dict[str, Any], file: Path) -> None:
    rate, coverage = report["executions_per_s"], report["coverage"]
    print(f"{report['executions']} executions in {report['seconds']} s ({rate}/s), coverage {coverage}: {file}")
    for finding in report["findings"]:
        print(f"FOUND {finding['what']}\n  {finding['replay'] or finding['file']}")
    if not report["findings"]:
        print("found no crash, stall, leak or difference")


if __name__ == "__main__":
    sys.exit(main())
