"""criproxy's database, opened read-only and read without its code."""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.chaos.checker.cpus import CpuSet, parse


@dataclass(frozen=True, slots=True)
class Row:
    """A container in the database."""

    key: str
    title: str
    """POD/CONTAINER."""
    state: str
    pending: bool
    """It has a reservation, and no id of the runtime yet."""
    cpus: CpuSet | None
    """What was granted; None without a grant."""
    exclusive: CpuSet
    applied: tuple[CpuSet, CpuSet] | None
    """CPUs and memory nodes."""


_QUERY = """
SELECT c.key, c.pod_name, c.name, c.state, c.reservation, g.cpus, g.exclusive, a.cpus, a.mems
FROM containers c LEFT JOIN grants g ON g.key = c.key LEFT JOIN applied a ON a.key = c.key
"""


@dataclass(frozen=True, slots=True)
class Saved:
    """All that is compared."""

    rows: dict[str, Row]
    pods: set[str]
    """Ids of sandboxes."""
    kept: dict[str, dict[str, CpuSet]] = field(default_factory=dict)
    """By uid of the pod and name of a container that has ended: the CPUs that it had."""


def read(path: Path) -> Saved:
    """Read it in one transaction; sqlite3.Error if that cannot be done now."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        rows = [_row(row) for row in connection.execute(_QUERY)]
        pods = {key for (key,) in connection.execute("SELECT key FROM pods")}
        kept = {uid: _kept(text) for uid, text in connection.execute("SELECT key, cpus FROM kept")}
    return Saved({row.key: row for row in rows}, pods, kept)


def _kept(text: str) -> dict[str, CpuSet]:
    return {name: parse(cpus) for name, cpus in json.loads(text).items()}


def _row(row: tuple[Any, ...]) -> Row:
    key, pod, name, state, reservation, *sets = row
    cpus, exclusive, applied_cpus, applied_mems = (None if text is None else parse(text) for text in sets)
    return Row(
        key=key,
        title=f"{pod}/{name}",
        state=state,
        pending=key == reservation,
        cpus=cpus,
        exclusive=exclusive or frozenset(),
        applied=None if applied_cpus is None or applied_mems is None else (applied_cpus, applied_mems),
    )
