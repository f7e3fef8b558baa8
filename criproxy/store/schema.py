"""The tables, and how a database of an older version becomes one of this version. Migrations only go forward."""

import sqlite3

MIGRATIONS = (
    """
    CREATE TABLE pods (
        key TEXT PRIMARY KEY, uid TEXT NOT NULL, name TEXT NOT NULL, namespace TEXT NOT NULL,
        attempt INTEGER NOT NULL, qos TEXT NOT NULL, cgroup_parent TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE containers (
        key TEXT PRIMARY KEY, pod TEXT NOT NULL, name TEXT NOT NULL, attempt INTEGER NOT NULL,
        pod_name TEXT NOT NULL, namespace TEXT NOT NULL, qos TEXT NOT NULL, cpu_milli INTEGER NOT NULL,
        cpu_limit_milli INTEGER, memory_limit_bytes INTEGER, state TEXT NOT NULL, reservation TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE grants (
        key TEXT PRIMARY KEY, cpus TEXT NOT NULL, mems TEXT NOT NULL, exclusive TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE applied (
        key TEXT PRIMARY KEY, cpus TEXT NOT NULL, mems TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, at_s REAL NOT NULL, key TEXT NOT NULL, container TEXT NOT NULL, reasons TEXT NOT NULL
    );
    """,
    """
    ALTER TABLE containers ADD COLUMN memory_request_low_bytes INTEGER;
    ALTER TABLE containers ADD COLUMN memory_request_high_bytes INTEGER;
    """,
    "ALTER TABLE grants ADD COLUMN pool TEXT NOT NULL DEFAULT '';",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;",
    """
    ALTER TABLE decisions ADD COLUMN kind TEXT NOT NULL DEFAULT 'granted';
    ALTER TABLE decisions ADD COLUMN life TEXT NOT NULL DEFAULT '';
    ALTER TABLE decisions ADD COLUMN facts TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE decisions ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
    UPDATE decisions SET
        life = coalesce((SELECT reservation FROM containers WHERE key = decisions.key AND reservation <> ''), key),
        kind = CASE key WHEN '' THEN 'node' ELSE 'granted' END;
    UPDATE decisions SET ended = 1 WHERE life NOT IN (
        SELECT CASE reservation WHEN '' THEN key ELSE reservation END FROM containers
    );
    CREATE INDEX decisions_by_life ON decisions (life, id);
    CREATE INDEX decisions_by_key ON decisions (key);
    CREATE INDEX decisions_by_container ON decisions (container);
    CREATE INDEX decisions_ended ON decisions (id) WHERE ended;
    """,
    """
    ALTER TABLE pods ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE pods ADD COLUMN annotations TEXT NOT NULL DEFAULT '{}';
    """,
    "ALTER TABLE containers ADD COLUMN hints TEXT NOT NULL DEFAULT '';",
    "ALTER TABLE containers ADD COLUMN warm INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE grants ADD COLUMN home TEXT NOT NULL DEFAULT '';",
    "ALTER TABLE grants ADD COLUMN home_mems TEXT NOT NULL DEFAULT '';",
    """
    ALTER TABLE containers ADD COLUMN cpu_quota_us INTEGER;
    ALTER TABLE containers ADD COLUMN cpu_period_us INTEGER;
    ALTER TABLE grants ADD COLUMN quota TEXT NOT NULL DEFAULT 'left';
    ALTER TABLE applied ADD COLUMN lifted INTEGER NOT NULL DEFAULT 0;
    """,
    "ALTER TABLE containers ADD COLUMN stays INTEGER NOT NULL DEFAULT 0;",
    """
    ALTER TABLE pods ADD COLUMN cpu_total_milli INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE pods ADD COLUMN stopped INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE kept (key TEXT PRIMARY KEY, cpus TEXT NOT NULL) WITHOUT ROWID;
    """,
    """
    ALTER TABLE containers ADD COLUMN desired TEXT NOT NULL DEFAULT '';
    ALTER TABLE containers ADD COLUMN missed TEXT NOT NULL DEFAULT '';
    """,
    """
    CREATE TABLE former (
        key TEXT PRIMARY KEY, cpus TEXT NOT NULL, mems TEXT NOT NULL, exclusive TEXT NOT NULL, pool TEXT NOT NULL,
        home TEXT NOT NULL, home_mems TEXT NOT NULL, quota TEXT NOT NULL
    ) WITHOUT ROWID;
    """,
    "CREATE TABLE incidents (key TEXT PRIMARY KEY, incident TEXT NOT NULL) WITHOUT ROWID;",
)
"""Statements that lead from version N to N + 1; ``PRAGMA user_version`` holds the version."""

VERSION = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """The version of a database; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the database up to `VERSION`, each step in a transaction of its own."""
    for version in range(version_of(connection), VERSION):
        connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[version]} PRAGMA user_version = {version + 1}; COMMIT;")
