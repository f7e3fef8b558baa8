"""The tables, and how a database of an older version becomes one of this version. Migrations only go forward.

Nor should there be any more of them: a criproxy sets aside a database with a newer number than its own, and asks the
runtime instead. It keeps all places and a release, and loses the rest. What a newer criproxy adds is therefore in
tables of its own (`BESIDE`), and the older one leaves them alone. docs/decisions/0042-downgrades.md has the rules; they
bind whoever adds a table, a column, an index, a word of an enumeration or a key of a JSON value.
"""

import json
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
BESIDE = (
    "CREATE TABLE IF NOT EXISTS quota_incidents (key TEXT PRIMARY KEY, incident TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS of_pod (key TEXT PRIMARY KEY) WITHOUT ROWID",
)
"""Tables that came without a newer version: a criproxy that does not know one opens the database and leaves it alone.

Each statement is executed at every start. The first table is there because an older criproxy takes every row of
``incidents`` for an unhealthy card, and would stop all containers that use it. The second one has the ids of the
containers with `Container.of_pod`.
"""


def version_of(connection: sqlite3.Connection) -> int:
    """The version of a database; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the database up to `VERSION`, each step in a transaction of its own."""
    for version in range(version_of(connection), VERSION):
        connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[version]} PRAGMA user_version = {version + 1}; COMMIT;")
    for statement in BESIDE:
        connection.execute(statement)
    connection.execute("DELETE FROM of_pod WHERE key NOT IN (SELECT key FROM containers)")
    _set_quotas_apart(connection)


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether there is a table beside; where only an older criproxy has had the database, there is none."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def _set_quotas_apart(connection: sqlite3.Connection) -> None:
    """Move the incidents of quotas that an older criproxy has put to those of cards; its rows are the newer ones."""
    rows = [row for row in connection.execute("SELECT key, incident FROM incidents") if _is_of_quota(row[1])]
    if not rows:
        return
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR REPLACE INTO quota_incidents VALUES (?, ?)", rows)
    connection.executemany("DELETE FROM incidents WHERE key = ?", [(key,) for key, _ in rows])
    connection.execute("COMMIT")


def _is_of_quota(incident: object) -> bool:
    """Whether a row is about a quota; what cannot be read is judged by who reads the whole row."""
    try:
        said = json.loads(str(incident))
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("excess") is not None
