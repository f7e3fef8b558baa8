"""The tables, and how a database of an older version becomes one of this version. Migrations only go forward.

Nor should there be any: a criproxy sets aside a database with a newer number than its own, and asks the runtime
instead. It keeps all places and a release, and loses the rest. What a newer criproxy adds is therefore in tables of its
own (`BESIDE`), and the older one leaves them alone. docs/decisions/0042-downgrades.md has the rules; they bind whoever
adds a table, a column, an index, a word of an enumeration or a key of a JSON value.
"""

import sqlite3

FIRST = 16
"""The version of 0.1.0; no release has had an older one."""
TABLES = """
    CREATE TABLE pods (
        key TEXT PRIMARY KEY, uid TEXT NOT NULL, name TEXT NOT NULL, namespace TEXT NOT NULL,
        attempt INTEGER NOT NULL, qos TEXT NOT NULL, cgroup_parent TEXT NOT NULL,
        labels TEXT NOT NULL DEFAULT '{}', annotations TEXT NOT NULL DEFAULT '{}',
        cpu_total_milli INTEGER NOT NULL DEFAULT 0, stopped INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;
    CREATE TABLE containers (
        key TEXT PRIMARY KEY, pod TEXT NOT NULL, name TEXT NOT NULL, attempt INTEGER NOT NULL,
        pod_name TEXT NOT NULL, namespace TEXT NOT NULL, qos TEXT NOT NULL, cpu_milli INTEGER NOT NULL,
        cpu_limit_milli INTEGER, memory_limit_bytes INTEGER, state TEXT NOT NULL, reservation TEXT NOT NULL,
        memory_request_low_bytes INTEGER, memory_request_high_bytes INTEGER, hints TEXT NOT NULL DEFAULT '',
        warm INTEGER NOT NULL DEFAULT 0, cpu_quota_us INTEGER, cpu_period_us INTEGER,
        stays INTEGER NOT NULL DEFAULT 0, desired TEXT NOT NULL DEFAULT '', missed TEXT NOT NULL DEFAULT ''
    ) WITHOUT ROWID;
    CREATE TABLE grants (
        key TEXT PRIMARY KEY, cpus TEXT NOT NULL, mems TEXT NOT NULL, exclusive TEXT NOT NULL,
        pool TEXT NOT NULL DEFAULT '', home TEXT NOT NULL DEFAULT '', home_mems TEXT NOT NULL DEFAULT '',
        quota TEXT NOT NULL DEFAULT 'left'
    ) WITHOUT ROWID;
    CREATE TABLE applied (
        key TEXT PRIMARY KEY, cpus TEXT NOT NULL, mems TEXT NOT NULL, lifted INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;
    CREATE TABLE kept (key TEXT PRIMARY KEY, cpus TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE former (
        key TEXT PRIMARY KEY, cpus TEXT NOT NULL, mems TEXT NOT NULL, exclusive TEXT NOT NULL, pool TEXT NOT NULL,
        home TEXT NOT NULL, home_mems TEXT NOT NULL, quota TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE incidents (key TEXT PRIMARY KEY, incident TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, at_s REAL NOT NULL, key TEXT NOT NULL, container TEXT NOT NULL, reasons TEXT NOT NULL,
        kind TEXT NOT NULL DEFAULT 'granted', life TEXT NOT NULL DEFAULT '', facts TEXT NOT NULL DEFAULT '{}',
        ended INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX decisions_by_life ON decisions (life, id);
    CREATE INDEX decisions_ended ON decisions (id) WHERE ended;
"""
"""What version `FIRST` makes of an empty database."""
MIGRATIONS: tuple[str, ...] = ()
"""Statements that lead from each version to the next, from `FIRST` on; ``PRAGMA user_version`` holds the version."""

VERSION = FIRST + len(MIGRATIONS)
GIVEN_UP = ("decisions_by_key", "decisions_by_container")
"""Indexes of 0.1.0, which does without them: they cost each create more than its history, in pages all over the file,
and spare a person who asks some milliseconds."""
BESIDE = (
    "CREATE TABLE IF NOT EXISTS quota_incidents (key TEXT PRIMARY KEY, incident TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS of_pod (key TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS kubelet_files (key TEXT PRIMARY KEY, files TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS controls (key TEXT PRIMARY KEY, controls TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS former_controls (key TEXT PRIMARY KEY, controls TEXT NOT NULL) WITHOUT ROWID",
)
"""Tables that came without a newer version: a criproxy that does not know one opens the database and leaves it alone.

Each statement is executed at every start. The first table is there because a criproxy without it would take every row
of ``incidents`` for an unhealthy card, and stop all containers that use it. The second one has the ids of the
containers with `Container.of_pod`, the third one those with `Container.kubelet_files`; the last two have the
`Grant.controls` of ``grants`` and of ``former``.
"""
_OWNERS = {"of_pod": "containers", "kubelet_files": "containers", "controls": "grants", "former_controls": "former"}
"""Table beside → that of the rows to which its rows belong."""


def version_of(connection: sqlite3.Connection) -> int:
    """The version of a database; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the database, which is empty or at least of version `FIRST`, up to `VERSION`, each step on its own."""
    steps = {0: (TABLES, FIRST)} | {
        FIRST + number: (step, FIRST + number + 1) for number, step in enumerate(MIGRATIONS)
    }
    while (version := version_of(connection)) in steps:
        statements, becomes = steps[version]
        connection.executescript(f"BEGIN IMMEDIATE; {statements} PRAGMA user_version = {becomes}; COMMIT;")
    for index in GIVEN_UP:
        connection.execute(f"DROP INDEX IF EXISTS {index}")
    for statement in BESIDE:
        connection.execute(statement)
    for table, owner in _OWNERS.items():
        connection.execute(f"DELETE FROM {table} WHERE key NOT IN (SELECT key FROM {owner})")  # noqa: S608 (ours)


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether there is a table beside; where only an older criproxy has had the database, there is none."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None
