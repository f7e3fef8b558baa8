"""Processes that end, fail and hang; and the archive's limits."""

import asyncio
import io
import os
import sqlite3
import sys
import tarfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.cli.bundle import collect as bundle
from criproxy.cli.bundle import worker
from criproxy.cli.bundle.collect import MAX_BYTES, MAX_FILE_BYTES, Part, Processes, archive, collect, troubled
from criproxy.cli.bundle.redaction import Names
from criproxy.cli.bundle.worker import WORKERS, Settings, managers
from criproxy.errors import CriproxyError, StoreError
from criproxy.model.text.notices import Values
from criproxy.store.reader import contents, integrity
from tests.asking import serving

LONG_S = 60.0


def program(text: str, limit_s: float = LONG_S) -> Part:
    """A part that is a small program."""
    return Part("a.txt", "a part", limit_s, (sys.executable, "-c", text))


def test_what_a_part_prints_is_its_file() -> None:
    """What goes to standard error is an error of the part."""
    ((part, output, errors),) = Processes({}).run([program("import sys; print('one'); sys.exit('at last')")])

    assert (part.file, output, errors) == ("a.txt", "one\n", "at last")


@pytest.mark.slow
def test_a_part_that_hangs_costs_its_rest(tmp_path: Path) -> None:
    """It is killed with the programs that it has started; what it printed before stays."""
    child = tmp_path / "child"
    text = (
        "import subprocess, time\nprint('before', flush=True)\n"
        f"p = subprocess.Popen(['sleep', '1000'])\nopen({str(child)!r}, 'w').write(str(p.pid))\ntime.sleep(1000)"
    )
    ((_, output, errors),) = Processes({}).run([program(text, limit_s=10.0)])

    assert output == "before\n"
    assert errors == "it was not ready within 10 s"
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


@pytest.mark.parametrize("name", sorted(WORKERS))
def test_a_worker_without_anything_to_read(name: str, tmp_path: Path) -> None:
    """On a machine without any files, a part fails with an error for people, or finds little."""
    settings = Settings(control_socket=f"{tmp_path}/c", state_dir=f"{tmp_path}/s", host_root=str(tmp_path))
    with suppress(CriproxyError, OSError):
        assert all(WORKERS[name](settings))


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


def test_everything_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of all kinds, the errors, and names if that is wanted."""
    texts = {
        "status.json": '{"containers": [{"namespace": "shop", "pod": "web", "container": "main"}]}',
        "events.jsonl": '{"container": "shop/old/main"}\n{"facts": {"annotations": {"a": "hunter2"}}}',
        "cut.json": '{"token": "hunter2", "b',
        "log.txt": "gone container=shop/web/main image=reg.corp/app:1 password=hunter2\n",
        "policy/policy.yaml": "devices:\n  exempt:\n    namespaces: [monitoring]\n",
        "kubelet.txt": "kubelet --node-labels=team=blue --v=2",
        "a.env": "anything=hunter2",
    }
    parts = [
        Part(name, name, LONG_S, (sys.executable, "-c", f"print({text!r}, end='')")) for name, text in texts.items()
    ]
    parts.append(program("import sys; sys.exit('no container shop/old/main on host-1')"))
    monkeypatch.setattr(bundle, "parts", lambda _: parts)

    found, titles = collect(Settings(control_socket="", state_dir=""), Names("host-1"))

    assert set(found) == {*texts, "errors.txt"} == set(titles)
    shown = "\n".join(found.values())
    for word in ("hunter2", "shop", "web", "main", "old", "monitoring", "host-1", "blue", "reg.corp"):
        assert word not in shown, word
    assert "pod-" in found["status.json"]


def test_an_archive_is_bounded() -> None:
    """A file that is too large is cut with a line that says so; so are the last ones if all are too large."""
    texts = {"small.txt": "x", **{f"{number}.txt": "\u00e4" * MAX_FILE_BYTES for number in range(4)}}
    content, _ = archive("top", texts, {}, 0.0)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = {each.name.partition("/")[2]: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr]

    assert files.pop("small.txt") == b"x"
    assert files.pop("MANIFEST")
    assert sum(map(len, files.values())) <= MAX_BYTES
    assert all(content.decode().endswith("would be too large\n") for content in files.values())


def test_an_archive_can_be_read_by_others_only_if_its_owner_wants() -> None:
    """All is below one folder, and is private after it is unpacked; the list says what is there."""
    content, listed = archive("top", {"a.txt": "text", "b/c.json": "{}"}, {"a.txt": "criproxy status"}, 0.0)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        members = [(each.name, each.mode, each.size) for each in tar]

    assert members[1:] == [("top/a.txt", 0o600, 4), ("top/b/c.json", 0o600, 2)]
    assert "support bundle of 1970-01-01T00:00:00Z\n" in listed
    assert "a.txt" in listed
    assert "criproxy status" in listed


@pytest.fixture
def installed(tmp_path: Path) -> Settings:
    """A node whose units have options."""
    (tmp_path / "etc/default").mkdir(parents=True)
    (tmp_path / "mine.yaml").write_text("policy: none\n")
    options = "--config /mine.yaml --http unix:///run/none.sock"
    (tmp_path / "etc/default/criproxy").write_text(f'CRIPROXY_OPTIONS="{options}"\n')
    return Settings(control_socket=f"{tmp_path}/c", state_dir="", host_root=str(tmp_path))


def policy_files(settings: Settings) -> dict[str, tuple[str, str]]:
    """The policy files in a bundle, and why they are missing."""
    asked = [part for part in bundle.parts(settings) if part.title == "policy_files"]
    ((_, paths, problem),) = Processes({}).run(asked)
    parts = [part for part in bundle._files(settings, paths) if not part.file.endswith(".env")]
    found = {part.file: (output, errors) for part, output, errors in Processes({}).run(parts)}
    return found | ({"none": ("", problem)} if problem else {})


def test_the_policy_file_is_that_of_the_unit(installed: Settings) -> None:
    """Its options name it; a file that does not exist, and a directory without one for this node, are errors."""
    assert policy_files(installed)["policy/mine.yaml"] == ("policy: none\n", "")

    mine = Path(installed.host_root, "mine.yaml")
    mine.unlink()
    mine.mkdir()

    assert "has no policy file for this node" in policy_files(installed)["none"][1]


@pytest.mark.parametrize("source", ["", "NodePolicy/gpu-nodes"], ids=["no-file", "of-the-cluster"])
async def test_a_configuration_without_a_file_is_no_policy_file(installed: Settings, source: str) -> None:
    """Nothing is missing then: the file of the unit is the only one."""

    async def status(_: Mapping[str, Any]) -> Values:
        return {"configuration": {"file": source}}

    root = Path(installed.host_root)
    async with serving(root, {"status": status}):
        asking = replace(installed, control_socket=str(root / "control.sock"))
        assert await asyncio.to_thread(policy_files, asking) == {"policy/mine.yaml": ("policy: none\n", "")}


def test_a_pipe_in_place_of_the_options_holds_nothing_up(tmp_path: Path) -> None:
    """The command itself reads none of the node's files that may never end."""
    (tmp_path / "etc/default").mkdir(parents=True)
    os.mkfifo(tmp_path / "etc/default/criproxy")
    settings = Settings(control_socket=f"{tmp_path}/c", state_dir="", host_root=str(tmp_path))

    assert settings.unit_option("config") == ""
    assert bundle.parts(settings)


def test_a_missing_release_costs_no_version(tmp_path: Path) -> None:
    """The versions of criproxy and of its libraries are there all the same."""
    found = list(WORKERS["versions"](Settings(control_socket="", state_dir="", host_root=str(tmp_path))))

    assert any(line.startswith("pydantic ") for line in found)


def test_a_library_keeps_the_digits_of_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are no part of its version."""
    monkeypatch.setattr(worker, "requires", lambda _: ["h2>=4", "aio_http.v2-1 (>=3.11,<4)", "pydantic[email]>=2; x"])
    monkeypatch.setattr(worker, "version", lambda _: "1.0")
    found = list(worker.versions(Settings(control_socket="", state_dir="", host_root=str(tmp_path))))

    assert found[-3:] == ["h2 1.0", "aio_http.v2-1 1.0", "pydantic 1.0"]


def test_without_options_the_policy_file_is_the_usual_one(tmp_path: Path) -> None:
    """If that does not exist, it is missing."""
    settings = Settings(control_socket=f"{tmp_path}/c", state_dir="", host_root=str(tmp_path))
    assert "No such file" in policy_files(settings)["policy/policy.yaml"][1]

    (tmp_path / "etc/criproxy").mkdir(parents=True)
    (tmp_path / "etc/criproxy/policy.yaml").write_text("policy: none\n")
    assert policy_files(settings) == {"policy/policy.yaml": ("policy: none\n", "")}


def test_metrics_are_read_where_the_unit_serves_them(installed: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """Its options name the address, as the node sees it; one that the user names is as it is."""
    assert list(WORKERS["metrics"](installed)) == []
    assert capsys.readouterr().err.startswith(f"unix://{installed.host_root}/run/none.sock /metrics: ")

    assert list(WORKERS["metrics"](replace(installed, http=("unix:///mine.sock",)))) == []
    assert capsys.readouterr().err.startswith("unix:///mine.sock /metrics: ")
