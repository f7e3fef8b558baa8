"""A real control plane and three nodes on this machine, and checks of criproxy and its agents in them.

    python -m lab.cluster                      # build Kubernetes' programs if they are not there, and run all checks
    python -m lab.cluster --build              # only build them
    python -m lab.cluster placement devices    # some of the checks

Exit status: 1 if a check failed, 2 if the cluster did not start. Nothing is left but the logs, whatever ends it.
"""

import argparse
import asyncio
import shutil
import sys
from pathlib import Path

from lab.cluster import build, space
from lab.cluster.process import ClusterError
from lab.containerd import containerd
from lab.provenance import ROOT

LOGS = ROOT / "build/cluster.logs"


def _parser() -> argparse.ArgumentParser:
    from lab.cluster.cluster import GROUPS

    parser = argparse.ArgumentParser(
        prog="python -m lab.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("groups", nargs="*", metavar="CHECKS", help=f"of {', '.join(GROUPS)}, or names of their functions")
    add("--build", action="store_true", help="build Kubernetes' programs, and run nothing")
    add("--logs", type=Path, default=LOGS, metavar="DIR", help="for the logs of all programs (default: %(default)s)")
    add("--inside", type=Path, help=argparse.SUPPRESS)
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.inside:
        return _inside(options)
    if reason := space.missing() or (None if options.build else containerd.available()):
        raise ClusterError(reason)
    build.build()
    if options.build:
        return 0
    shutil.rmtree(options.logs, ignore_errors=True)
    options.logs.mkdir(parents=True)
    return space.run(["--logs", str(options.logs.resolve()), *options.groups])


def _inside(options: argparse.Namespace) -> int:
    from lab.cluster.cluster import run

    programs = build.find()
    assert programs is not None, "it was built before"
    space.enter(options.inside, options.logs)
    return asyncio.run(run(programs, options.inside, options.logs, options.groups))


def main() -> int:
    """Do what the command line says."""
    parser = _parser()
    options = parser.parse_args()
    from lab.cluster.cluster import chosen

    try:
        chosen(options.groups)
    except ValueError as error:
        parser.error(str(error))
    try:
        return _run(options)
    except (ClusterError, build.BuildError, build.FetchError, containerd.ContainerdError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
