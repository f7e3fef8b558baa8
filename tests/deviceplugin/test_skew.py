"""The daemon and the device plugin as processes, one of which is of the next version.

`tests.api.test_skew` has every message between them, with more and with fewer keys.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from criproxy import __version__
from criproxy.deviceplugin.daemon_client.asking import ask
from tests.conftest import ROOT
from tests.daemons import LIMIT_S, Serve
from tests.deviceplugin.program import Program
from tests.deviceplugin.test_program_health import SECOND, Nvml, gpus
from tests.upgrading import NEXT_VERSION, next_version

SECTION = "{advertise: [nvidia], sharing: [{resource: nvidia.com/gpu, replicas: 2}], health: {onUnhealthy: annotate}}"


def path_of(version: str, newer: Path) -> str:
    """The ``PYTHONPATH`` with which criproxy is of *version*, and finds our tests."""
    return f"{newer if version == NEXT_VERSION else ROOT}:{ROOT}"


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree with the next version."""
    return next_version(tmp_path_factory.mktemp("newer"), newer_number=False)


@pytest.mark.parametrize(
    ("daemon", "plugin", "plugin_is", "daemon_is"),
    [(__version__, NEXT_VERSION, "newer", "older"), (NEXT_VERSION, __version__, "older", "newer")],
)
async def test_they_work_together(
    folder: Path, newer: Path, fake_nvml: Nvml, daemon: str, plugin: str, plugin_is: str, daemon_is: str
) -> None:
    """Cards and incidents are reported as ever; both logs and `status` say which side is older."""
    (folder / "d").mkdir()
    nvml = fake_nvml("p100")
    async with Program(folder, driver=nvml, PYTHONPATH=path_of(plugin, newer), PYTHONSAFEPATH="1") as program:
        place = ("--config", str(program.policy), "--control-socket", str(program.control))
        serve = Serve(folder / "d", *place, PYTHONPATH=path_of(daemon, newer), PYTHONSAFEPATH="1")

        async def say(command: str) -> Any:  # noqa: ANN401 (JSON)
            return await asyncio.to_thread(ask, str(program.control), command, {}, LIMIT_S)

        await gpus(program, nvml, SECTION)
        async with serve:
            await program.until_said("the daemon and the device plugin are of different versions")
            (text,) = [each["text"] for each in (await say("status"))["notices"] if "version" in each["kind"]]
            nvml.xid(1, 79)
            async with asyncio.timeout(LIMIT_S):
                while not (incidents := (await say("devices"))["incidents"]):  # noqa: ASYNC110 (it tells nobody)
                    await asyncio.sleep(0.05)

    (line,) = [each for each in program.lines if "different versions" in each["event"]]
    assert (line["daemon"], line["own"], line["daemon_is"]) == (daemon, plugin, daemon_is)
    assert text.startswith(f"the device plugin is version {plugin}, {plugin_is} than the daemon ({daemon})")
    assert "the device plugin and the daemon are of different versions" in serve.log.read_text()
    assert [each["card"] for each in incidents] == [SECOND]
