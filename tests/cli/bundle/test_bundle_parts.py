"""Processes that end, fail and hang; and the archive's limits."""

import io
import json
import os
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.cli.bundle.archive import MAX_BYTES, MAX_FILE_BYTES, archive, bounded_files, manifest
from criproxy.cli.bundle.collect import Bundle, Hiding, redacted
from criproxy.cli.bundle.machine import managers, why
from criproxy.cli.bundle.own import metrics, policy_files
from criproxy.cli.bundle.parts import Part, troubled
from criproxy.cli.bundle.processes import Outcome, Processes
from criproxy.cli.bundle.settings import Settings
from criproxy.cli.bundle.worker import PARTS
from criproxy.errors import StoreError
from criproxy.store.reader import contents, integrity

LONG_S = 60.0


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, limit_s: float = LONG_S) -> Part:
    """A part that is a small program."""
    (folder / "small_program.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return Part("a part", ("small_program",), limit_s)


def test_what_a_part_prints_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of one text are joined, and pieces without a name are errors; so is what goes to standard error."""
    pieces = [["a.txt", "one "], ["", "lost"], ["a.txt", "two"], ["b.json", {"c": 1}]]
    text = f"import sys\nfor x in {[json.dumps(each) for each in pieces]!r}: print(x)\nsys.exit('at last')"
    (outcome,) = Processes().run([program(tmp_path, text, monkeypatch)])
    bundle = Bundle()
    bundle.add(outcome)

    assert bundle.files == {"a.txt": "one two", "b.json": {"c": 1}}
    assert bundle.errors == ["a part: lost", "a part: at last"]


@pytest.mark.slow
def test_a_part_that_hangs_costs_its_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed with the programs that it has started; what it printed before stays."""
    child = tmp_path / "child"
    text = (
        'import subprocess, time\nprint(\'["a.txt", "before"]\', flush=True)\n'
        f"p = subprocess.Popen(['sleep', '1000'])\nopen({str(child)!r}, 'w').write(str(p.pid))\ntime.sleep(1000)"
    )
    (outcome,) = Processes().run([program(tmp_path, text, monkeypatch, limit_s=10.0)])
    bundle = Bundle()
    bundle.add(outcome)

    assert bundle.files == {"a.txt": "before"}
    assert bundle.errors == ["a part: it was not ready within 10 s"]
    state = Path(f"/proc/{child.read_text()}/stat")
    until_s = time.monotonic() + LONG_S
    while runs(state) and time.monotonic() < until_s:  # a kill takes effect when the kernel gets to it
        time.sleep(0.01)
    assert not runs(state)


def runs(stat: Path) -> bool:
    """Whether the process of a file /proc/PID/stat has not ended."""
    try:
        return stat.read_text().split()[2] != "Z"
    except OSError:
        return False


def test_output_that_is_cut_is_kept_as_text() -> None:
    """JSON that ends too early is no JSON."""
    bundle = Bundle()
    part = Part("criproxy status", ("x",), 5, "status.json")
    bundle.add(Outcome(part, '{"a": 1, "b', "", None))

    assert bundle.files == {"status.json.txt": '{"a": 1, "b'}
    assert bundle.errors == ["criproxy status: it was not ready within 5 s"]


def attempt(part: str, settings: Settings) -> Iterator[tuple[str, Any]]:
    """The pieces of a part, with the error that ends it as the last one."""
    try:
        yield from PARTS[part](settings)
    except Exception as error:  # noqa: BLE001 (as the worker does)
        yield "", why(error)


@pytest.mark.parametrize("part", sorted(PARTS))
def test_a_part_without_anything_to_read(part: str, tmp_path: Path) -> None:
    """On a machine without any files, a part fails with an error for people, or finds little."""
    settings = Settings(control_socket=f"{tmp_path}/c", state_dir=f"{tmp_path}/s", host_root=str(tmp_path))
    found = [(name, content) for name, content in attempt(part, settings)]

    assert all(isinstance(name, str) for name, _ in found)
    assert all(content for _, content in found)


def test_a_pipe_is_no_policy_file(tmp_path: Path) -> None:
    """It is not opened for reading until somebody writes to it."""
    os.mkfifo(tmp_path / "policy.yaml")
    settings = Settings(control_socket="", state_dir="", host_root=str(tmp_path), config=f"{tmp_path}/policy.yaml")

    assert list(PARTS["policy"](settings)) == [("", f"{tmp_path}/policy.yaml: it is no regular file")]


def test_only_settings_of_managers_are_taken() -> None:
    """Of the kubelet's configuration, and of that of k3s; everything else may be secret."""
    data = {
        "cpuManagerPolicy": "static",
        "authentication": {"x509": {}},
        "token": "secret",
        "kubelet-arg": ["cpu-manager-policy=static", "node-ip=10.0.0.1", "topology-manager-scope=pod"],
    }

    assert managers(data) == {
        "cpuManagerPolicy": "static",
        "kubelet-arg": ["cpu-manager-policy=static", "topology-manager-scope=pod"],
    }


def test_containers_with_problems_are_explained() -> None:
    """Those that are not in place, those whose updates fail, and those that are refused; each once."""
    row = {"namespace": "n", "pod": "p", "error": "", "failures": 0, "in_place": True}
    rows = [
        row | {"container": "ok"},
        row | {"container": "a", "in_place": False},
        row | {"container": "b", "error": "x"},
    ]
    status = {"containers": rows, "refusals": [{"container": "n/q/c"}, {"container": "n/p/a"}]}

    assert troubled(status) == ["n/p/a", "n/p/b", "n/q/c"]
    assert troubled(None) == []


def database(folder: Path) -> Path:
    """A database with a row of each kind of value."""
    connection = sqlite3.connect(folder / "criproxy.db")
    connection.execute("CREATE TABLE pods (key TEXT PRIMARY KEY, annotations TEXT)")
    connection.execute("""INSERT INTO pods VALUES ('s', '{"a": "secret-of-a"}')""")
    connection.commit()
    connection.close()
    return folder / "criproxy.db"


def test_the_state_is_checked_and_read(tmp_path: Path) -> None:
    """Also that of another version; its content has values in place of JSON."""
    database(tmp_path)

    assert integrity(tmp_path)["wrong"] == []
    assert integrity(tmp_path)["rows"] == {"pods": 1}
    assert contents(tmp_path) == {"pods": [{"key": "s", "annotations": {"a": "secret-of-a"}}]}


def test_a_damaged_state_is_an_error_for_people(tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / "criproxy.db").write_bytes(b"no database" * 1000)

    with pytest.raises(StoreError, match=r"criproxy\.db cannot be read: file is not a database"):
        integrity(tmp_path)


def test_everything_is_redacted() -> None:
    """Files of all kinds, the errors, and with the options also names and registries."""
    bundle = Bundle()
    bundle.files = {
        "status.json": {"containers": [{"namespace": "shop", "pod": "web", "container": "main"}]},
        "events.jsonl": [{"container": "shop/old/main"}, {"facts": {"annotations": {"a": "hunter2"}}}],
        "log.txt": "gone container=shop/web/main image=reg.corp/app:1 password=hunter2\n",
        "policy/policy.yaml": "devices:\n  exempt:\n    namespaces: [monitoring]\n    images: [reg2.corp/x]\n",
        "kubelet/flags.txt": "kubelet --node-labels=team=blue --v=2",
        "state/content.json": {"pods": [{"annotations": {"b": "hunter2"}}]},
    }
    bundle.errors = ["criproxy explain: no container shop/old/main on host-1"]
    texts = redacted(bundle, Hiding(names=True, registries=True), "host-1")

    assert set(texts) == {*bundle.files, "errors.txt"}
    shown = "\n".join(texts.values())
    for word in ("hunter2", "shop", "web", "main", "old", "monitoring", "host-1", "blue", "reg.corp", "reg2.corp"):
        assert word not in shown, word
    assert json.loads(texts["status.json"])["containers"][0]["pod"] == "pod-1"
    assert json.loads(texts["events.jsonl"].splitlines()[0])["container"].startswith("namespace-1/")


def test_an_archive_is_bounded() -> None:
    """A file that is too large is cut with a line that says so; so are the last ones if all are too large."""
    texts = {"small.txt": "x", **{f"{number}.txt": "ä" * MAX_FILE_BYTES for number in range(4)}}
    files = bounded_files(texts)

    assert files["small.txt"] == b"x"
    assert sum(map(len, files.values())) <= MAX_BYTES
    assert all(
        content.decode().endswith("would be too large\n") for name, content in files.items() if name != "small.txt"
    )


def test_an_archive_can_be_read_by_others_only_if_its_owner_wants() -> None:
    """All is below one folder, and is private after it is unpacked; the list says what is there."""
    files = {"a.txt": b"text", "b/c.json": b"{}"}
    listed = manifest(files, {"a.txt": "criproxy status"}, "credentials", 0.0)
    with tarfile.open(fileobj=io.BytesIO(archive("top", files, 0.0))) as tar:
        members = tar.getmembers()

    assert [(each.name, each.mode, each.size) for each in members] == [
        ("top/a.txt", 0o600, 4),
        ("top/b/c.json", 0o600, 2),
    ]
    assert "support bundle of 1970-01-01T00:00:00Z\nHidden: credentials\n" in listed
    assert "a.txt" in listed
    assert "criproxy status" in listed


@pytest.fixture
def installed(tmp_path: Path) -> Settings:
    """A node whose units have options."""
    (tmp_path / "etc/default").mkdir(parents=True)
    (tmp_path / "mine.yaml").write_text("policy: none\n")
    options = f"--config /mine.yaml --http unix://{tmp_path}/none.sock"
    (tmp_path / "etc/default/criproxy").write_text(f'CRIPROXY_OPTIONS="{options}"\n')
    return Settings(control_socket="", state_dir="", host_root=str(tmp_path))


def test_the_policy_file_is_that_of_the_unit(installed: Settings) -> None:
    """Its options name it."""
    assert dict(policy_files(installed))["policy/mine.yaml"] == "policy: none\n"


def test_a_policy_file_that_does_not_exist_is_an_error(installed: Settings) -> None:
    """The archive lacks it, and says so; so it does for a directory without a file for this node."""
    mine = Path(installed.host_root, "mine.yaml")
    mine.unlink()
    (mine.parent / "policies").mkdir()

    assert ("", f"{mine}: No such file or directory") in list(policy_files(installed))
    ((_, error), _) = policy_files(replace(installed, config=str(mine.parent / "policies")))
    assert error.startswith(f"{mine.parent}/policies: has no policy file for this node")


def test_without_options_it_is_the_usual_one(tmp_path: Path) -> None:
    """If that does not exist, it is missing."""
    settings = Settings(control_socket=f"{tmp_path}/c", state_dir="", host_root=str(tmp_path))
    assert list(policy_files(settings)) == [("", f"{tmp_path}/etc/criproxy/policy.yaml: No such file or directory")]

    (tmp_path / "etc/criproxy").mkdir(parents=True)
    (tmp_path / "etc/criproxy/policy.yaml").write_text("policy: none\n")
    assert list(policy_files(settings)) == [("policy/policy.yaml", "policy: none\n")]


def test_metrics_are_read_where_the_unit_serves_them(installed: Settings) -> None:
    """Its options name the address."""
    ((name, error),) = metrics(installed)
    assert (name, error.startswith(f"unix://{installed.host_root}/none.sock /metrics: ")) == ("", True)
