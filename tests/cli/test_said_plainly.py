"""What used to be said in the words of a library, of half of it, or not at all."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from criproxy.api.views.status import summary
from criproxy.daemon.options import Endpoints, Options
from criproxy.errors import UsageError
from tests.asking import criproxy
from tests.cli.test_line_breaks import situation

CASES = Path("tests/scenarios/peers.yaml")
POLICY = Path("policies/static.yaml")
RAW = ("[Errno", "codec", "ReadError", "Expecting value", "end-of-stream", "method tar")


def said(*arguments: str | Path) -> tuple[int, str]:
    """Exit status and output of a command."""
    result = criproxy(*arguments)
    return result.exit_code, result.output


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """Files that are not what is wanted, with the name of what is wrong."""
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "folder.jsonl").mkdir()
    for suffix in ("yaml", "jsonl", "tgz"):
        (tmp_path / f"binary.{suffix}").write_bytes(b"ok: 1\n\xff\xfe\0")
        (tmp_path / f"empty.{suffix}").write_text("")
    (tmp_path / "odd.jsonl").write_text("no json\n")
    whole = tmp_path / "whole.tgz"
    with tarfile.open(whole, "w:gz") as archive:
        archive.add("docs", "docs")
    (tmp_path / "cut.tgz").write_bytes(whole.read_bytes()[:5000])
    return tmp_path


LOAD, MACHINE_OF = f"--policy {POLICY} --load", f"{CASES} --host-root"
NO_ARCHIVE = "it is neither a directory nor an archive that tar can read"


@pytest.mark.parametrize(
    ("options", "name", "sentence"),
    [
        ("", "folder.yaml", "folder.yaml: is a directory: it must be a scenario file"),
        ("", "binary.yaml", "binary.yaml:2: the byte 0xFF is not UTF-8 text: it must be a scenario file"),
        ("", "none.yaml", "none.yaml: there is no such file"),
        (LOAD, "binary.jsonl", "binary.jsonl:2: the byte 0xFF is not UTF-8 text: it must be a trace"),
        (LOAD, "odd.jsonl", "odd.jsonl:1: the line is not JSON (from column 1 on)"),
        (LOAD, "binary.yaml", "binary.yaml:2: the byte 0xFF is not UTF-8 text: it must be a load specification"),
        (MACHINE_OF, "binary.tgz", NO_ARCHIVE),
        (MACHINE_OF, "empty.tgz", NO_ARCHIVE),
        (MACHINE_OF, "cut.tgz", "the archive ends too early: copy it once more"),
    ],
)
def test_a_file_of_a_simulation_that_cannot_be_read(strange: Path, options: str, name: str, sentence: str) -> None:
    """What is wrong, where, and what would be right: of a scenario, a trace or specification, and a machine."""
    status, output = said("simulate", *options.split(), strange / name)
    assert (status, sentence in output, [raw for raw in RAW if raw in output]) == (2, True, []), output
    assert ("copy of /sys and /proc" in output) == (options == MACHINE_OF)


def test_the_help_of_completion_has_lines() -> None:
    """One for each shell."""
    _, output = said("completion", "--help")
    assert "\\b" not in output
    assert "  bash: criproxy completion bash > /etc/bash_completion.d/criproxy\n" in output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"listen": "/t/x", "runtime_endpoint": "/t/x"}, "--listen and --runtime-endpoint are both /t/x"),
        ({"control_socket": "/t/in"}, "--listen and --control-socket are both /t/in"),
        ({"http": "unix:///t/control"}, "--control-socket and --http are both /t/control"),
        ({"nri": "/t/out"}, "--nri and --runtime-endpoint are both /t/out"),
        ({"nri": "/t/control"}, "--control-socket and --nri are both /t/control"),
        ({"http": "unix:///t/nri", "nri": "/t/nri"}, "--http and --nri are both /t/nri"),
        ({"image_listen": "/t/i", "image_endpoint": "/t/in"}, "--listen and --image-endpoint are both /t/in"),
        ({"runtime_endpoint": "{tmp}/link"}, "are both {tmp}/in, but each needs a socket of its own"),
        ({"runtime_endpoint": "containerd.sock"}, "--runtime-endpoint: 'containerd.sock' is not a Unix socket"),
        ({"image_listen": "unix:///t/i.sock"}, "--image-listen and --image-endpoint go together"),
        ({"image_endpoint": "unix:///t/i.sock"}, "--image-listen and --image-endpoint go together"),
    ],
)
def test_what_cannot_be_the_sockets_is_named(tmp_path: Path, options: dict[str, str], sentence: str) -> None:
    """Such as two that are the same, also where a link leads from one to the other."""
    (tmp_path / "link").symlink_to("in")
    given = {name: text.format(tmp=tmp_path) for name, text in options.items()}
    listen = f"{tmp_path}/in" if "link" in str(given) else "/t/in"
    with pytest.raises(UsageError) as caught:
        Endpoints.of(options_of(tmp_path, **{"listen": listen, **given}))
    assert sentence.format(tmp=tmp_path) in str(caught.value)


def options_of(tmp_path: Path, **given: str) -> Options:
    """The options of a daemon."""
    sockets = {"listen": "/t/in", "runtime_endpoint": "/t/out", "control_socket": "/t/control"}
    rest: dict[str, Any] = dict.fromkeys(("config", "image_listen", "image_endpoint", "http"))
    return Options(**{**sockets, **rest, "state_dir": tmp_path, "host_root": tmp_path, "trace_calls": (), **given})


def test_two_runtimes_may_be_one(tmp_path: Path) -> None:
    """The image service is the runtime itself as a rule."""
    assert len(Endpoints.of(options_of(tmp_path, image_listen="/t/d", image_endpoint="/t/out")).pairs) == 2


def policy(tmp_path: Path, text: str) -> Path:
    """A policy file."""
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("policy: none\ndevices: {classes: []}\n", True),
        ("policy: none\ndevices: {}\n", False),
        ("policy: none\ndevices: {classes: [nvidia]}\n", False),
    ],
)
def test_no_class_guards_no_card(tmp_path: Path, text: str, noted: bool) -> None:
    """A section that says enforce and can enforce nothing is noted."""
    status, output = said("check", policy(tmp_path, text), "--no-machine")
    assert (status, "note: devices.classes is empty: criproxy knows no cards" in output) == (0, noted)


SECTIONS = {
    "devices": (
        "devices:\n#  classes: [nvidia]\n",
        (
            "devices has no value, so criproxy leaves devices alone: write 'devices: {}' to hide cards from containers "
            "to which none is allocated, or remove devices"
        ),
    ),
    "plugin": (
        "devices:\n  plugin:\n",
        (
            "devices.plugin has no value, so the device plugin offers no cards: write 'plugin: {}' to offer cards with "
            "the default options, or remove plugin"
        ),
    ),
    "labels": (
        "devices: {classes: [nvidia], plugin: {labels: }}\n",
        (
            "devices.plugin.labels has no value, so criproxy writes no labels: write 'labels: {}' to write them with "
            "the default options, or remove labels"
        ),
    ),
    "left-out": ("", ""),
    "defaults": ("devices: {classes: [nvidia], plugin: {labels: {}}}\n", ""),
}


@pytest.mark.parametrize(("text", "noted"), SECTIONS.values(), ids=SECTIONS)
def test_a_section_without_a_value_is_off(tmp_path: Path, text: str, noted: str) -> None:
    """All lines of it may be comments; a section that is empty on purpose is written as ``{}``."""
    status, output = said("check", policy(tmp_path, f"policy: none\n{text}"), "--no-machine")
    notes = [line.strip() for line in output.splitlines() if "has no value" in line]
    assert (status, notes) == (0, [f"note: {noted}"] if noted else [])


@pytest.mark.parametrize(
    ("options", "noted"),
    [
        pytest.param('checkpoint: ""', "may get those of the earlier pod (onNoEvidence: keep)", id="keep"),
        pytest.param('checkpoint: "", onNoEvidence: fail', "are refused", id="fail"),
        pytest.param('checkpoint: "", onNoEvidence: hide', "get none", id="hide"),
        pytest.param("onNoEvidence: fail", "", id="with-a-checkpoint"),
        pytest.param('checkpoint: "", podresources: {socket: ""}', "", id="with-neither"),
    ],
)
def test_what_names_cannot_tell_is_noted(tmp_path: Path, options: str, noted: str) -> None:
    """Without the checkpoint, podresources is no evidence for a pod that has the name of a former one."""
    text = f"policy: none\ndevices: {{classes: [nvidia], {options}}}\n"
    status, output = said("check", policy(tmp_path, text), "--no-machine")
    note = "note: devices.checkpoint is empty: podresources identifies pods only by name"
    assert (status, note in output) == (0, bool(noted))
    assert noted in " ".join(output.split())


@pytest.mark.parametrize(
    ("mode", "noted"), [("keep", "see the cards that they request"), ("hide", "get none"), ("fail", "are refused")]
)
def test_what_podresources_does_not_list_is_noted(tmp_path: Path, mode: str, noted: str) -> None:
    """Without the checkpoint nothing shows what init containers have, even while podresources answers."""
    text = f'policy: none\ndevices: {{classes: [nvidia], checkpoint: "", onNoEvidence: {mode}}}\n'
    _, output = said("check", policy(tmp_path, text), "--no-machine")
    note = f"Init and ephemeral containers that request cards in this way, {noted}, as podresources never lists them"
    assert note in " ".join(output.split())


@pytest.mark.parametrize(
    ("address", "noted"),
    [
        ("0.0.0.0:9820", True),
        ("[::]:9820", True),
        ("node1:9820", True),
        (":9820", False),
        ("127.0.0.1:9820", False),
        ("[::1]:9820", False),
        ("unix:///run/x.sock", False),
        ("nonsense", False),
    ],
)
@pytest.mark.parametrize(
    ("file", "variable"),
    [("criproxy", "CRIPROXY_OPTIONS"), ("criproxy-device-plugin", "CRIPROXY_DEVICE_PLUGIN_OPTIONS")],
)
def test_an_open_http_address_is_noted(tmp_path: Path, address: str, noted: bool, file: str, variable: str) -> None:
    """What the services are started with stands in their environment files."""
    defaults = tmp_path / "etc/default" / file
    defaults.parent.mkdir(parents=True)
    defaults.write_text(f'# --http 0.0.0.0:1\n{variable}="--log-level info --http {address}"\n')
    from tests.cli.test_line_breaks import MACHINE
    from tests.sysfs import write_sysfs

    write_sysfs(tmp_path, MACHINE)
    status, output = said("check", policy(tmp_path, "policy: none\n"), "--host-root", tmp_path)
    assert (status, f"note: --http {address} in {defaults}" in output) == (0, noted), output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-n", "shop"], "in namespace shop"),
        (["--pod", "web"], "of pods named web"),
        (["-n", "shop", "--exclusive"], "in namespace shop with exclusive CPUs"),
        (["-n", "shop", "--pod", "web", "--exclusive"], "of pods named web in namespace shop with exclusive CPUs"),
    ],
)
def test_the_choice_is_put_into_words(monkeypatch: pytest.MonkeyPatch, options: list[str], words: str) -> None:
    """All of it, as the options say."""
    from criproxy.cli.client import NodeClient

    values = {"source": "daemon", "time": "2026-01-01T00:00:00.000Z", "version": "1", "pid": 1, "omitted": 0}
    values |= {"started": "2026-01-01T00:00:00.000Z", **summary(situation()), "containers": []}
    monkeypatch.setattr(NodeClient, "ask", lambda *_, **__: values)
    status, output = said("status", *options)
    assert (status, f"No container {words} is known." in output) == (0, True)
