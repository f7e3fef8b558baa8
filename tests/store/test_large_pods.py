"""A state directory of pods with very many labels, as an earlier criproxy has written it."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from criproxy.store.database import NAME, Database

PODS, LABELS = 60, 7700
"""Together 54 MB of labels."""
LOAD = """
import sys
from pathlib import Path
from criproxy.simulate.hosts import machine
from criproxy.store.store import Store

def rss_kib(which):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(which))

before = rss_kib("VmRSS")
node = Store(Path(sys.argv[1])).load(machine(nodes=1, cores=4, threads=1))
print(len(node.pods), rss_kib("VmHWM") - before)
"""


def test_it_is_loaded_in_pieces(tmp_path: Path) -> None:
    """The peak of the memory is that of one pod; nothing is left of labels beyond the limit of a pod."""
    tmp_path.chmod(0o700)
    Database(tmp_path).close()
    labels = json.dumps({f"team-{number:05}-{'k' * 40}": "v" * 63 for number in range(LABELS)})
    with closing(sqlite3.connect(tmp_path / NAME)) as connection, connection:
        row = "INSERT INTO pods VALUES (?, 'u', 'p', 'shop', 0, 'Burstable', '', ?, '{}', 0, 0)"
        connection.executemany(row, ((f"s{number}", labels) for number in range(PODS)))

    command = [sys.executable, "-c", LOAD, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    pods, grown_kib = map(int, done.stdout.split())
    assert pods == PODS
    assert grown_kib < 40_000
