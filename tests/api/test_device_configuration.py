"""The configuration of NVIDIA's device plugin that the cluster has chosen by name, as the daemon keeps it."""

from pathlib import Path
from typing import Any

import pytest

from criproxy.api.device_configuration import DeviceConfigurations
from criproxy.devices.plugin.named_configuration import FILE_NAME, MAX_TEXT_CHARS, from_json
from criproxy.errors import CriproxyError, UsageError
from tests.node.world import RecordingLog

TEXT = "version: v1\nflags: {migStrategy: single}\n"
SHARED = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
NOTHING = dict.fromkeys(("name", "hash", "source", "node_uid"), "")


def chosen(name: str = "a100", text: str = TEXT, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Arguments that choose a configuration."""
    return {"name": name, "text": text, "source": "ConfigMap criproxy/gpus", "node_uid": "u-1", **more}


async def test_a_configuration_is_chosen_changed_and_given_up(tmp_path: Path) -> None:
    """The answer says what counts now, also after a restart of the daemon; the file has all of it."""
    log = RecordingLog()
    one = DeviceConfigurations(tmp_path, log)
    assert await one.command({}) == NOTHING

    first = await one.command(chosen())
    second = await one.command(chosen("shared", SHARED))
    again = await DeviceConfigurations(tmp_path, log).command({})

    assert (first["name"], second["name"]) == ("a100", "shared")
    assert first["hash"] != second["hash"]
    assert again == second == {**second, "source": "ConfigMap criproxy/gpus", "node_uid": "u-1"}
    assert from_json((tmp_path / FILE_NAME).read_bytes()).text == SHARED
    assert await one.command({"name": ""}) == NOTHING
    assert not (tmp_path / FILE_NAME).exists()
    assert len(log.lines) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("version: v2\n", "unknown version: v2", id="wrong-version"),
        pytest.param("version: [v1\n", "configuration a100 of ConfigMap criproxy/gpus:", id="no-yaml"),
        pytest.param("# later\n", "is empty; for NVIDIA's defaults write 'version: v1'", id="empty"),
        pytest.param(SHARED.replace("4", "1"), "number of replicas must be >= 2", id="one-replica"),
    ],
)
async def test_a_text_with_mistakes_changes_nothing(tmp_path: Path, text: str, said: str) -> None:
    """The mistakes are the answer, and the former text still counts."""
    one = DeviceConfigurations(tmp_path, RecordingLog())
    before = await one.command(chosen("good"))

    with pytest.raises(CriproxyError, match=said.replace("[", r"\[")):
        await one.command(chosen("a100", text))

    assert await one.command({}) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(chosen("../etc"), "must be a key of a ConfigMap", id="path"),
        pytest.param(chosen("a" * 254), "must be a key of a ConfigMap", id="long-name"),
        pytest.param(chosen(text="#" * (MAX_TEXT_CHARS + 1)), "must have at most 262,144 characters", id="long-text"),
        pytest.param({**chosen(), "text": ["version: v1"]}, "text: must be a str", id="no-text"),
    ],
)
async def test_a_wrong_argument(tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    """It is refused before anything is read or written."""
    with pytest.raises(UsageError, match=said):
        await DeviceConfigurations(tmp_path, RecordingLog()).command(arguments)
    file = tmp_path / FILE_NAME
    assert not file.exists()


async def test_a_file_that_is_not_criproxys_is_replaced(tmp_path: Path) -> None:
    """It counts as nothing, as the device plugin refuses it."""
    (tmp_path / FILE_NAME).write_text("[]")
    one = DeviceConfigurations(tmp_path, RecordingLog())

    assert await one.command({}) == NOTHING
    assert (await one.command(chosen()))["name"] == "a100"


async def test_a_disk_that_fails(tmp_path: Path) -> None:
    """The answer names the file; what was chosen before still counts."""
    one = DeviceConfigurations(tmp_path / "missing", RecordingLog())
    with pytest.raises(CriproxyError, match=FILE_NAME):
        await one.command(chosen())
