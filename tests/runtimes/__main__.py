"""Fetches runtimes that this machine's Debian does not have, for tests.

    python -m tests.runtimes --fetch 1.7    # nothing if it is there
    python -m tests.runtimes --test         # fetch containerd 2 and run the tests of make runtimes on it
    python -m tests.runtimes --lock         # write into .ci/runtimes.lock what Debian's sid has now

Exit status: 1, with the reason, if that cannot be done.
"""

import argparse
import os
import subprocess
import sys

from tests.runtimes import store
from tests.runtimes.debian import FetchError


def _fetch(series: str) -> None:
    newer, cache = store.by_series(series), store.cache_directory()
    if not store.find(cache, newer):
        print(f"fetching containerd {series} of Debian's {newer.suite} to {cache}", file=sys.stderr)
        store.fetch(cache, newer)


def _lock() -> None:
    for package in store.lock():
        print(f"{package.name} {package.version}")


def _test() -> int:
    """Run the tests on each runtime, and in guests; the highest exit status."""
    from tests.e2e.runtimes import GUESTS, IN_MAKE_RUNTIMES, files_of  # costs more than all that setup does

    runs = [(runtime, [f"tests/e2e/{name}.py" for name in files_of(runtime)]) for runtime in IN_MAKE_RUNTIMES]
    runs.append((IN_MAKE_RUNTIMES[0], ["--thorough", "tests/lab/vm/test_guests.py", "-k", GUESTS]))
    return max([_tried(runtime.name, runtime.series, words) for runtime, words in runs])


def _tried(name: str, series: str, words: list[str]) -> int:
    _fetch(series)
    print(f"\ncontainerd {name}: {store.described(store.by_series(series))}", flush=True)
    command = [sys.executable, "-m", "pytest", "--runtime", name, *words]
    return subprocess.run(command, cwd=store.ROOT, check=False).returncode


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.runtimes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    either = parser.add_mutually_exclusive_group(required=True)
    series = [each.series for each in store.NEWER]
    either.add_argument("--fetch", choices=series, help="fetch that series of containerd")
    either.add_argument("--test", action="store_true", help="run tests on containerd 2")
    either.add_argument("--lock", action="store_true", help="refresh .ci/runtimes.lock")
    options = parser.parse_args()
    try:
        if options.test:
            return _test()
        if options.lock:
            _lock()
        else:
            _fetch(options.fetch)
    except FetchError as error:
        print(f"runtimes: {error}", file=sys.stderr)
        return 1
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
