"""The parts of a bundle: a process for each, and how long it may take."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from criproxy.cli.bundle.settings import Settings

_PROGRAM = "criproxy"
_WORKER = "criproxy.cli.bundle.worker"
MOST_EXPLAINED = 10
"""Containers whose history is in the bundle."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part."""

    title: str
    """Says what it has, for MANIFEST and for errors."""
    words: tuple[str, ...]
    """A module to run, and its arguments."""
    limit_s: float
    file: str = ""
    """Gets the standard output; empty: the process names the files of its pieces."""


def first_parts(settings: Settings) -> list[Part]:
    """Return all parts that do not depend on the answers of others, the most important ones first."""
    daemon = ("--control-socket", settings.control_socket)
    places = (*daemon, "--state-dir", settings.state_dir, "--host-root", settings.host_root)
    json = ("--format", "json")
    return [
        _command("status.json", 20, "status", *json, *places),
        _command("status.txt", 20, "status", "--refused", *places),
        _command("check.txt", 25, "status", "--check", *places),
        _worker("versions", "versions of criproxy, Python, the kernel", 10, settings),
        _worker("runtime", "the runtime's version", 15, settings),
        _worker("policy", "policy files and options of the units", 20, settings),
        _worker("kubelet", "the kubelet's flags and managers", 20, settings),
        _worker("units", "systemd units", 15, settings),
        _worker("disks", "space on the disks", 10, settings),
        _worker("kernel", "load, memory, kernel parameters", 10, settings),
        _command("events.txt", 20, "events", "--since", "24h", *places),
        _command("events.jsonl", 20, "events", "--since", "24h", *json, *places),
        _command("configurations.txt", 10, "history", "config", "--state-dir", settings.state_dir),
        _command("devices.json", 40, "devices", *json, *places),
        _command("devices.txt", 40, "devices", *places),
        _command("usage.txt", 15, "usage", *daemon),
        _command("topology.json", 20, "topology", *json, "--host-root", settings.host_root),
        _command("topology.txt", 20, "topology", "--host-root", settings.host_root),
        _worker("metrics", "metrics and health over HTTP", 40, settings),
        _worker("state", "files and integrity of the state", 30, settings),
        _worker("log", "the last hour of criproxy's log", 40, settings),
    ]


def explaining(settings: Settings, status: Any) -> Iterator[Part]:  # noqa: ANN401 - JSON
    """Yield the parts with the history of each container with which something is wrong.

    Args:
        settings: the paths.
        status: the answer of `criproxy status`; None without one.
    """
    places = ("--control-socket", settings.control_socket, "--state-dir", settings.state_dir)
    for number, title in enumerate(troubled(status)[:MOST_EXPLAINED]):
        words = (*places, "--host-root", settings.host_root)
        yield _command(f"explain/{number}.txt", 20, "explain", *words, "--", title)
        yield _command(f"explain/{number}.json", 20, "explain", "--format", "json", *words, "--", title)


def troubled(status: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Return the containers that are refused, or with whose place or update something is wrong."""
    if not isinstance(status, dict):
        return []
    refused = [str(refusal.get("container")) for refusal in status.get("refusals", [])]
    wrong = [
        "/".join(str(row.get(key)) for key in ("namespace", "pod", "container"))
        for row in status.get("containers", [])
        if row.get("error") or row.get("failures") or not row.get("in_place", True)
    ]
    return list(dict.fromkeys([*wrong, *refused]))


def _command(file: str, limit_s: float, *words: str) -> Part:
    """Return a part that is the output of a command; its title leaves out where things are, and names."""
    places = [number for number, word in enumerate(words) if word in ("--control-socket", "--state-dir", "--host-root")]
    return Part(f"criproxy {' '.join(words[: places[0]])}", (_PROGRAM, *words), limit_s, file)


def _worker(name: str, title: str, limit_s: float, settings: Settings) -> Part:
    return Part(title, (_WORKER, name, settings.as_argument()), limit_s)
