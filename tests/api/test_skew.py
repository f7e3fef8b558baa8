"""The daemon and the device plugin are of different versions: each message in both directions.

A newer side sends keys that the older one does not know, and an older side leaves out what the newer one has added.
docs/decisions/0042-downgrades.md has the rules. What the device plugin does about a command that the daemon does not
know is in `tests.deviceplugin.daemon_client.test_reports` and `tests.deviceplugin.usage.test_quota_incidents`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest

from criproxy import __version__
from criproxy.api.device_plugin import CardReport, DevicePluginCommands
from criproxy.api.quota_commands import QuotaReport
from criproxy.api.usage import UsageCommands
from criproxy.deviceplugin.daemon_client.asking import ask
from criproxy.deviceplugin.usage.grants_client import OpenIncident, parse_granted
from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.devices.plugin.published import Advertised, Published, PublishedCard
from criproxy.devices.usage.values import CardUse, ClassUse, ContainerUse, Grant, UsageReport
from criproxy.process.control_client import DaemonRefuses
from tests.asking import answering
from tests.daemons import LIMIT_S
from tests.node.devices.test_create_checks_vgpu import RESOURCE, RULES, pod_with
from tests.node.devices.test_hints import host
from tests.node.world import FAST, World

MAPS = ("replicas", "unread", "not_enforced")
"""Values whose keys are no fields."""
CARD = {"device_class": "nvidia", "id": "GPU-a", "replicas": {RESOURCE: 0}}
OFFERED = {"name": RESOURCE, "device_class": "nvidia", "ids": 4, "healthy": 4, "profile": "gpu-8g"}
SICK = {"device_class": "nvidia", "card": "GPU-b", "since_s": 1700000000.0, "reason": "XID 79", "action": "annotate"}
OVER = {
    "device_class": "nvidia",
    "card": "GPU-a",
    "quantity": "memory",
    "used": 9000.0,
    "allowed": 8192,
    "since_s": 1700000000.0,
    "action": "annotate",
}
USE = {"kind": "nvidia", "card": "GPU-a", "memory_mib": 9000}
CARD_USE = {"card": "GPU-a", "memory_mib": 9500, "total_mib": 16384}
USAGE = {
    "at_s": 1.0,
    "period_s": 1.0,
    "classes": [{"kind": "nvidia", "cards": [CARD_USE], "others": [{**USE, "container_id": ""}], "unread": {"x": "y"}}],
}
MESSAGES: list[tuple[str, Mapping[str, Any]]] = [
    ("free-cpus", {}),
    ("device-plugin", {"running": True}),
    ("device-inventory", {"version": __version__, "resources": [OFFERED], "cards": [CARD]}),
    ("device-incident", SICK),
    ("device-incident", {"device_class": "nvidia", "card": "GPU-c", "healthy": True}),
    ("device-grants", {}),
    ("quota-incident", OVER),
    ("quota-incident", {**{name: OVER[name] for name in ("device_class", "card", "quantity")}, "over": False}),
    ("device-usage", USAGE),
]
REQUIRED: dict[type, str] = {
    CardReport: "device_class card",
    QuotaReport: "container_id device_class card quantity",
    Published: "",
    Advertised: "name device_class",
    PublishedCard: "device_class id",
    UsageReport: "at_s period_s",
    ClassUse: "kind",
    CardUse: "card memory_mib total_mib",
    ContainerUse: "container_id kind card memory_mib",
    Grant: "container_id namespace pod container pod_uid kind resource ids cards",
    Quota: "profile memory_mib cores_percent",
    OpenIncident: "container_id device_class card quantity",
}
"""The fields that 0.1.0 requires, and sends."""


def with_more(value: Any, name: str = "") -> Any:  # noqa: ANN401 (JSON)
    """Return a message with unknown keys in each of its objects."""
    if isinstance(value, Mapping):
        more = {} if name in MAPS else {"later": [{"a": None}], "severity": 7}
        return {**{key: with_more(item, key) for key, item in value.items()}, **more}
    return [with_more(item) for item in value] if isinstance(value, list) else value


class Asked:
    """A node with GPUs, a container ``one`` with a vGPU, and the daemon's control socket."""

    def __init__(self, world: World, path: str, container_id: str) -> None:
        self.world = world
        self.container_id = container_id
        self._path = path

    async def __call__(self, command: str, **arguments: Any) -> Any:  # noqa: ANN401 (JSON)
        """Ask as the device plugin does."""
        if command == "quota-incident":
            arguments["container_id"] = self.container_id
        return await asyncio.to_thread(ask, self._path, command, arguments, LIMIT_S)

    def logged(self, event: str) -> list[dict[str, object]]:
        """The keys of these lines of the log."""
        return [keys for said, keys in self.world.log.lines if said == event]


@asynccontextmanager
async def asked(directory: Path) -> AsyncIterator[Asked]:
    """Start everything."""
    host(directory)
    async with World(directory, settings=replace(FAST, devices=RULES)) as world:
        await world.poll(lambda: world.controller.ready)
        container_id = await world.run(pod_with("GPU-a/gpu-8g/0", "one"))
        plugin, usage = DevicePluginCommands(world.controller), UsageCommands(world.controller)
        async with answering(world, directory, more={**plugin.commands(), **usage.commands()}):
            yield Asked(world, str(directory / "control.sock"), container_id)


async def test_a_newer_device_plugin_sends_more(tmp_path: Path) -> None:
    """Each of its messages is answered as if the unknown keys were not there."""
    async with asked(tmp_path) as say:
        for command, arguments in MESSAGES:
            await say(command, **arguments)  # so that the next one is a repeated one in any case
            known = await say(command, **arguments)
            assert await say(command, **with_more(arguments)) == known, command


def test_an_older_device_plugin_sends_less() -> None:
    """Whatever is added has a default, in the answers of the daemon as well."""
    found = {kind: [each for each in fields(kind) if each.init] for kind in REQUIRED}
    needed = {
        kind: " ".join(each.name for each in all_of if each.default is MISSING and each.default_factory is MISSING)
        for kind, all_of in found.items()
    }
    assert needed == REQUIRED


async def test_a_newer_daemon_answers_more(tmp_path: Path) -> None:
    """The watcher finds grants and incidents among keys that it does not know; an unknown quantity is not its own."""
    async with asked(tmp_path) as say:
        await say("quota-incident", **OVER)
        answer = await say("device-grants")
    granted = parse_granted(answer)
    bandwidth = {**answer["incidents"][0], "quantity": "bandwidth"}

    assert [each.key.quantity for each in granted.incidents] == ["memory"]
    assert parse_granted(with_more(answer)) == granted
    assert parse_granted({**answer, "incidents": [*answer["incidents"], bandwidth]}) == granted


async def test_an_older_daemon_answers_less(tmp_path: Path) -> None:
    """Grants with the fields that 0.1.0 has, and no incidents."""
    async with asked(tmp_path) as say:
        answer = await say("device-grants")
    (grant,) = answer["containers"]
    needed = {name: grant[name] for name in REQUIRED[Grant].split()}

    assert parse_granted({"containers": [needed]}).limits == {"nvidia": {"GPU-a": ()}}


@pytest.mark.parametrize(
    ("command", "report", "instead"), [("device-incident", SICK, "none"), ("quota-incident", OVER, "observe")]
)
async def test_an_unknown_action_is_stored_as_the_weakest(
    tmp_path: Path, command: str, report: Mapping[str, Any], instead: str
) -> None:
    """The incident is not lost, the container runs on, and the log says what was asked."""
    async with asked(tmp_path) as say:
        assert (await say(command, **{**report, "action": "migrate"}))["stored"] is True
        (incident,) = say.world.controller.node.incidents.values()

        assert incident.action_word == instead
        event = "a newer device plugin asks for an action that this daemon does not know"
        assert say.logged(event) == [{"action": "migrate", "instead": instead}]
        with pytest.raises(DaemonRefuses, match="action must be one of"):
            await say(command, **{**report, "action": 7})


@pytest.mark.parametrize(
    ("version", "than"),
    [
        ("99.0.0", f"newer than the daemon ({__version__})"),
        ("0.0.1", f"older than the daemon ({__version__})"),
        ("trunk", f"and the daemon {__version__}"),
    ],
)
async def test_versions_that_differ(tmp_path: Path, version: str, than: str) -> None:
    """`status` says which side is older as long as it is so, `--check` does not fail for it, the log has it once."""
    async with asked(tmp_path) as say:

        async def notices() -> list[str]:
            found = (await say("status"))["notices"]
            return [each["text"] for each in found if each["kind"] == "device-plugin-version"]

        for _ in range(2):
            assert (await say("device-inventory", version=version))["version"] == __version__
        (text,) = await notices()
        problems = (await say("status", check=True))["problems"]
        for other in (__version__, ""):
            await say("device-inventory", version=other)
            assert await notices() == []

    assert text == f"the device plugin is version {version}, {than}; each ignores fields that it does not know"
    assert text not in problems
    (line,) = say.logged("the device plugin and the daemon are of different versions")
    assert (line["device_plugin"], line["own"]) == (version, __version__)


async def test_an_unknown_command_says_that_the_daemon_is_older(tmp_path: Path) -> None:
    """It is not a wrong request, which would not be repeated."""
    async with asked(tmp_path) as say:
        with pytest.raises(DaemonRefuses, match="knows no command 'device-forecast'") as unknown:
            await say("device-forecast")
        with pytest.raises(DaemonRefuses) as wrong:
            await say("device-incident", card="GPU-a")

    assert (unknown.value.unknown, unknown.value.wrong) == (True, False)
    assert (wrong.value.unknown, wrong.value.wrong) == (False, True)
