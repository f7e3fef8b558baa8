"""Text that tenants have written is printed as text: it is no markup, moves no cursor, and forges no line."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from criproxy.cli.queries import devices as devices_table
from criproxy.cli.queries import explain as explain_text
from criproxy.cli.queries import status as status_table
from criproxy.cli.queries import usage as usage_table
from criproxy.cli.queries.explain import complete
from criproxy.cli.render.console import UNLIMITED, console
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.asking import daemon, invoke, places

HOSTILE = (
    "[/x]", "[red]", "[link=http://evil]here[/link]", "[bold", ":smile:", "\x1b[2J\x1b[31m", "\x9b2J", "a\nWRONG: b",
    "a\r\bb", "\u202ekcatta\u202c", "\u200b\ufeff", "x" * 100_000, "\u0300" * 50, "[[[]]]", "\\[red]", "\x00", "\x07",
)  # fmt: skip


def name_with(text: str) -> str:
    """A name of a pod or container that has it."""
    return f"w{text}"


def pod_with(text: str) -> PodSpec:
    """A pod whose every text is hostile."""
    spec = ContainerSpec(name_with(text), IMAGE, cpu_request_milli=100)
    return PodSpec(name_with(text), (spec,), namespace=f"n{text}", annotations={f"{text}.criproxy.io": text})


def is_harmless(output: str) -> bool:
    """Whether a terminal would do nothing with it but print."""
    return all(line.isprintable() for line in output.split("\n"))


async def test_every_command_prints_it_as_text(tmp_path: Path) -> None:
    """Those about the node, and `explain` by name and by id, of a node with a pod of each text; then without a daemon.

    A name that a terminal shows as it is stands in the output.
    """
    of_node = [("status",), ("status", "--check"), ("devices",), ("who", "0-3"), ("events",), ("fit", "--cpu", "2")]
    async with daemon(tmp_path) as world:
        keys = {text: (await world.kubelet.run_pod(pod_with(text)))[1][name_with(text)] for text in HOSTILE}
        explained = [("explain", key) for key in keys.values()]
        titles = [world.controller.node.containers[key].title for key in keys.values()]
        by_name = [
            ("explain", "--", name) for text, title in zip(HOSTILE, titles, strict=True) for name in (title, text)
        ]
        asked = [*of_node, ("fit", "--cpu", "4", "--pod", HOSTILE[6]), *explained, *by_name, ("release",)]
        outputs = {words: await command(tmp_path, *words) for words in [*asked, ("release", "--undo")]}
        await world.stop_criproxy()
        stored = {words: await command(tmp_path, *words) for words in (("status",), ("events",), *explained)}
        await world.start_criproxy()
    for words, output in [*outputs.items(), *stored.items()]:
        assert is_harmless(output), (words, output[:2000])
        assert len(output) < 60_000
    for text, key in keys.items():
        if text.isprintable() and len(text) < 100:
            assert name_with(text) in outputs["status",]
            assert name_with(text) in outputs["explain", key]


async def command(directory: Path, *arguments: str) -> str:
    """What a command prints; it may say no, and never fails."""
    kind, *rest = arguments
    options = places(directory) if kind != "fit" else places(directory)[:2]
    options += ["--runtime-endpoint", f"unix://{directory}/runtime.sock"] if kind == "release" else []
    result = await invoke(kind, *options, *rest)
    assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, result.exception)
    return result.output


def filled(shape: Any, text: str) -> Any:  # noqa: ANN401 (an answer)
    """*shape* with *text* in place of each text of it that has one."""
    if isinstance(shape, dict):
        return {key: filled(value, text) for key, value in shape.items()}
    if isinstance(shape, list):
        return [filled(value, text) for value in shape]
    return f"{shape}{text}" if isinstance(shape, str) and shape.startswith("@") else shape


ROW = {
    "namespace": "@n", "pod": "@p", "container": "@c", "id": "@id", "state": "running", "qos": "Burstable",
    "attempt": 0, "placed": True, "cpus": "0-1", "mems": "0", "exclusive_cpus": "", "pool": "@pool",
    "in_place": False, "starting": False,
    "applied_cpus": "0", "applied_mems": "0", "error": "@error", "failures": 2, "cpu_request_milli": [100, 100],
    "cpu_limit_milli": None, "memory_limit_bytes": None,
}  # fmt: skip
EXPLAINED = {
    "container": ROW,
    "asked": {"read_as": ["@asked"], "sent": {}},
    "why": ["@why"],
    "devices": [{
        "class": "@class", "evidence": "@annotation", "cards": ["@card"], "pci_addresses": "@pci", "nodes": "@nodes",
        "numa_nodes": "@numa", "allocated": [{"resource": "@resource", "ids": ["@id"], "source": "@source"}],
        "quota": {"profile": "@profile", "memory_mib": 1, "cores_percent": 1, "enforced_by": "@by",
            "not_enforced": "@lacking"},
    }],
    "choices": [],
    "waits_for": ["@waits"],
    "notices": [{"wrong": True, "text": "@wrong"}, {"wrong": False, "text": "@note"}],
    "events": [{"time": "2026-01-01T00:00:00.000Z", "kind": "granted", "sentences": ["@event"], "facts": {}}],
    "earlier": [{"time": "2026-01-01T00:00:00.000Z", "id": "@e", "state": "refused", "text": "@earlier"}],
}  # fmt: skip
DEVICES = {
    "device_plugin": {"state": "running", "reported": "@reported", "version": "1", "configuration": "@file"},
    "incidents": [{"class": "@class", "card": "@card", "since": "@since", "reason": "@reason", "action": "stop",
        "containers": [{"namespace": "@n", "pod": "@p", "container": "@c", "id": "@i", "use": "stopped"}]}],
    "source": "store", "version": "1", "notices": [{"wrong": True, "text": "@wrong"}], "holders_known": True,
    "classes": [{
        "name": "@class", "shared_nodes": ["@shared"], "links": [], "elsewhere": [
            {"namespace": "@n", "pod": "@p", "container": "@c", "id": "@i", "ids": ["@card"], "evidence": "nodes"}],
        "may_see_more": [{"namespace": "@n", "pod": "@p", "container": "@c", "id": "@i", "findings": ["@finding"]}],
        "cards": [],
        "advertised": [
            {"name": "@r", "ids": 1, "healthy": 1, "given": 1, "registered": False, "problem": "@problem"}],
    }],
    "see_all": [{"namespace": "@n", "pod": "@p", "container": "@c", "id": "@i", "findings": ["@finding"]}],
    "untold": [{"namespace": "@n", "pod": "@p", "container": "@c", "id": "@i"}], "guarded": None,
}  # fmt: skip

USAGE = {
    "version": "1", "time": "2026-01-01T00:00:00.000Z", "guarded": True,
    "node": {"cpu_ratio": None, "memory_ratio": None},
    "watcher": {"state": "reporting", "reported": "2026-01-01T00:00:00.000Z", "stale_after_s": 8.0, "classes": [
        {"class": "@class", "source": "@source", "problem": "@problem", "unread_cards": {"@card": "@unread"}}]},
    "cards": [{"class": "@class", "id": "@card", "memory_mib": 1, "total_mib": None, "cores_percent": None,
        "not_a_container": {"memory_mib": 0, "cores_percent": None}}],
    "containers": [{"namespace": "@n", "pod": "@p", "container": "@c", "id": "@i", "card": "@card",
        "profile": "@profile", "memory_mib": 1, "memory_granted_mib": 1, "cores_percent": None,
        "cores_granted_percent": None,
        "over_since": {"memory": "2026-01-01T00:00:00.000Z"},
        "actions": [{"action": "@action", "state": "@state", "ended": False}]}],
    "unknown_containers": [{"id": "@i", "class": "@class", "card": "@card", "memory_mib": 1}],
    "profiles": [{"profile": "@profile", "vgpus": 1, "given": 1, "free": 0}],
    "history": [{"class": "@class", "card": "@card", "id": "@i", "title": "@title",
        "points": [{"time": "2026-01-01T00:00:00.000Z", "memory_mib": 1, "cores_percent": None}]}],
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:12]))
@pytest.mark.parametrize(
    ("render", "shape"),
    [
        pytest.param(explain_text.render, EXPLAINED, id="explain"),
        pytest.param(lambda values: status_table.render(values, 200), {"error": "@error"}, id="no-answer"),
        pytest.param(lambda values: devices_table.render(values, 200), DEVICES, id="devices"),
        pytest.param(lambda values: usage_table.render(values, 200), USAGE, id="usage"),
    ],
)
@pytest.mark.parametrize("terminal", [True, False])
def test_every_renderer_draws_it_as_text(
    render: Callable[[Any], Any], shape: dict[str, Any], text: str, terminal: bool
) -> None:
    """On a terminal and into a file."""
    file = StringIO()
    console(file, 200 if terminal else UNLIMITED).print(render(filled(shape, text)))
    assert is_harmless(file.getvalue())
    assert len(file.getvalue()) < 60_000
    if text.isprintable() and len(text) < 100:
        assert text in file.getvalue().replace("\n", "")


def test_completion_offers_no_name_that_a_shell_would_show_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A name with a line break would be two."""
    import click

    monkeypatch.setattr("criproxy.cli.client.ask", lambda *_, **__: ["a/b/c", "a/b\n/c", "a/\x1b[31m/c"])
    context = click.Context(click.Command("explain"))
    context.params = {"control_socket": "x", "state_dir": str(tmp_path)}
    found = complete(context, click.Argument(["container"]), "a")
    assert [item.value for item in found] == ["a/b/c"]


async def test_json_stays_as_it_is(tmp_path: Path) -> None:
    """Programs get the very text, escaped as JSON does."""
    async with daemon(tmp_path) as world:
        _, ids = await world.kubelet.run_pod(pod_with("\x1b[31m\u202e"))
        (key,) = ids.values()
        said = json.loads(await command(tmp_path, "explain", key, "--format", "json"))
    assert said["container"]["pod"] == "w\x1b[31m\u202e"
