"""``criproxy usage``: who uses how much of which card, on any terminal, and why nothing is known of it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from criproxy.cli.queries.usage import BARS, render
from tests.api.test_usage import OFFERED, Asked, asked, report
from tests.asking import LIMIT_S, invoke, printed
from tests.node.devices.test_create_checks_vgpu import pod_with

CARD_ID = "GPU-13f6e2a1-58b4-9d0c-77aa-0c1d2e3f4a5b"
OVER = {"memory": "2026-11-20T09:27:30.000Z"}
STOP = {
    "action": "stop",
    "quantity": "memory",
    "state": "stopping",
    "since": OVER["memory"],
    "reason": "too much",
    "ended": False,
}


def container(pod: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    """A row of an answer."""
    return {
        "id": f"{pod}-id",
        "namespace": "shop",
        "pod": pod,
        "container": "main",
        "state": "running",
        "class": "nvidia",
        "card": CARD_ID,
        "resource": "criproxy.io/gpu-8g",
        "ids": [f"{CARD_ID}/gpu-8g/0"],
        "profile": "gpu-8g",
        "memory_mib": 700,
        "memory_granted_mib": 8192,
        "cores_percent": 12.4,
        "cores_granted_percent": 25,
        "over_since": {},
        "actions": [],
        **more,
    }


def answer(**more: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    """What a daemon would say."""
    nvidia = {"class": "nvidia", "source": "nvml", "problem": "", "unread_cards": {}}
    card = {"class": "nvidia", "id": CARD_ID, "memory_mib": 9900, "total_mib": 16384, "cores_percent": 40.0}
    return {
        "source": "daemon",
        "version": "1.0",
        "pid": 7,
        "time": "2026-11-20T09:27:36.123Z",
        "guarded": True,
        "watcher": {
            "state": "reporting",
            "reported": "2026-11-20T09:27:35.500Z",
            "stale_after_s": 8.0,
            "classes": [nvidia],
        },
        "node": {"cpu_ratio": 0.344, "memory_ratio": 0.61},
        "cards": [{**card, "not_a_container": {"memory_mib": 200, "cores_percent": None}}],
        "containers": [container("web"), container("train", memory_mib=9000, over_since=OVER, actions=[STOP])],
        "unknown_containers": [],
        "profiles": [{"profile": "gpu-8g", "vgpus": 4, "given": 2, "free": 2}],
        "history": [],
        **more,
    }


def lines(values: dict[str, Any], width: int = 80) -> list[str]:
    """What a terminal of that width shows, line by line."""
    return printed(render(values, width), width)


def test_eighty_columns() -> None:
    """Cards and containers with what they use and were granted fit a small terminal."""
    assert lines(answer()) == [
        "criproxy 1.0; 2026-11-20T09:27:36Z; node usage: CPU 34 %, memory 61 %",
        "",
        "CLASS   CARD             MEMORY MiB  CORES %  NO CONTAINER",
        "nvidia  GPU-13f6e2a1  9900 of 16384       40       200 MiB",
        "",
        "CONTAINER        CARD          PROFILE    MEMORY MiB   CORES %",
        "shop/web/main    GPU-13f6e2a1  gpu-8g    700 of 8192  12 of 25",
        "shop/train/main  GPU-13f6e2a1  gpu-8g   9000 of 8192  12 of 25",
        "shop/train/main has been over its memory quota since 2026-11-20T09:27:30Z;",
        "action: stop (stopping)",
        "gpu-8g: 4 vGPUs, 2 allocated, 2 free",
    ]


def test_a_wide_terminal_has_whole_ids() -> None:
    """From 120 columns on, nothing of a card's id is cut."""
    assert sum(CARD_ID in line for line in lines(answer(), 120)) == 3


OF_FILE = {"class": "x", "source": "file", "problem": "it is empty", "unread_cards": {"c": "lost"}}


def watched(state: str, *classes: dict[str, Any]) -> dict[str, Any]:
    """What an answer says of a watcher that has reported."""
    return {"state": state, "reported": "2026-11-20T09:00:00.000Z", "stale_after_s": 8.0, "classes": [*classes]}


NOT_KNOWN = {
    "no-watcher": (
        answer(watcher={"state": "none", "reported": None, "stale_after_s": None, "classes": []}, cards=[]),
        "card usage is unknown: no watcher has reported since the daemon started.",
    ),
    "stale": (
        answer(watcher=watched("silent"), cards=[], containers=[container("web", memory_mib=None, cores_percent=None)]),
        "the watcher has not reported since 2026-11-20T09:00:00Z; is criproxy device-plugin running?",
    ),
    "no-reason-of-a-report-that-is-stale": (
        answer(watcher=watched("silent", OF_FILE), cards=[], containers=[]),
        "is criproxy device-plugin running?  no container has a card gpu-8g: 4 vGPUs",
    ),
    "problems": (
        answer(watcher=watched("reporting", OF_FILE)),
        "the usage of x is unknown: it is empty the usage of c is unknown: lost",
    ),
    "unguarded": (answer(guarded=False, containers=[]), "the policy file has no devices section"),
    "nobody": (answer(containers=[]), "no container has a card"),
    "of-another-runtime": (
        answer(unknown_containers=[{"id": "f" * 64, "class": "nvidia", "card": "GPU-a", "memory_mib": 5}] * 7),
        "… and 2 more",
    ),
    "no-answer": ({"error": "no daemon"}, "no daemon; trying again"),
}


@pytest.mark.parametrize(("values", "said"), NOT_KNOWN.values(), ids=NOT_KNOWN)
def test_what_is_not_known(values: dict[str, Any], said: str) -> None:
    """A sentence says what is not known, and why."""
    shown = lines(values)

    assert said in " ".join(line.strip() for line in shown)
    assert max(map(len, shown)) <= 80


def test_a_card_that_is_not_allocated() -> None:
    """A container that uses a card without an allocation is named, such as another container of the pod."""
    other = {**container("side"), "resource": "", "profile": "", "memory_mib": 700}

    shown = " ".join(lines(answer(containers=[container("web"), other])))

    assert f"shop/side/main uses 700 MiB of {CARD_ID}, which is not allocated to it" in shown
    assert shown.count("not allocated") == 1


def test_an_unknown_amount() -> None:
    """It is a question mark, beside what was granted."""
    unknown = container("web", memory_mib=None, cores_percent=None)

    assert "? of 8192  ? of 25" in lines(answer(containers=[unknown]))[6]


def test_history() -> None:
    """Each series has a bar for each minute, of what was granted or of the whole card; gaps are blank."""
    points = [
        {"time": f"2026-11-20T09:{minute:02}:00.000Z", "memory_mib": memory_mib, "cores_percent": None}
        for minute, memory_mib in ((24, 0), (25, 4096), (27, 9000))
    ]
    own = {"class": "nvidia", "card": CARD_ID, "id": "web-id", "title": "shop/web/main", "points": points}
    gone = {**own, "id": "f" * 64, "title": ""}
    card = {**own, "id": "", "title": ""}
    shown = lines(answer(history=[card, own, gone]))

    at = shown.index(f"shop/web/main on {CARD_ID}: 0 to 9000 of 8192 MiB")
    assert shown[at + 1] == " " * 56 + f"{BARS[0]}{BARS[4]} {BARS[7]}"
    assert f"total on {CARD_ID}: 0 to 9000 of 16384 MiB" in shown
    assert any(line.startswith("container ffffffffffff on") for line in shown)


@asynccontextmanager
async def node(directory: Path) -> AsyncIterator[Asked]:
    """A daemon with a pod with a vGPU of which the watcher reports."""
    async with asked(directory) as say:
        await say("device-inventory", **OFFERED)
        key = await say.world.run(pod_with("GPU-a/gpu-8g/0", "one"))
        await say.report(key)
        yield say


async def run(directory: Path, *arguments: str) -> Result:
    """Run the command in a thread: the daemon lives on this one's loop."""
    return await invoke("usage", *arguments, "--control-socket", directory / "control.sock")


async def test_a_daemon_is_asked(tmp_path: Path) -> None:
    """Text and JSON have the same, and history only where it is wanted."""
    async with node(tmp_path):
        text = await run(tmp_path)
        values = json.loads((await run(tmp_path, "--format", "json", "--history")).stdout)

    assert text.exit_code == 0
    assert "default/one/main" in text.stdout
    assert "9000 of 8192" in text.stdout
    assert len(values["history"]) == 2
    assert values["containers"][0]["memory_mib"] == 9000


async def test_no_daemon(tmp_path: Path) -> None:
    """It is one sentence, and exit status 1."""
    result = await run(tmp_path)

    assert result.exit_code == 1
    assert "no criproxy daemon listens on" in result.output


async def test_watch(tmp_path: Path) -> None:
    """With JSON it is a line each time, until SIGTERM; an answer that cannot be had is a line, too."""
    async with node(tmp_path) as say:
        command = [sys.executable, "-m", "criproxy", "usage", "--watch", "--interval", "0.2", "--format", "json"]
        process = await asyncio.create_subprocess_exec(
            *command,
            *("--control-socket", str(tmp_path / "control.sock")),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            first = json.loads(await process.stdout.readline())
            await say("device-usage", **report(problem="NVML: unknown error"))
            while json.loads(await process.stdout.readline())["containers"][0]["memory_mib"] is not None:
                pass
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 128 + signal.SIGTERM

    assert first["containers"][0]["memory_mib"] == 9000


@pytest.mark.parametrize(
    ("action", "state", "said"),
    [
        pytest.param("observe", "uses", "observe (only reported)", id="observe"),
        pytest.param("annotate", "uses", "annotate", id="annotate"),
        pytest.param("stop", "stopped", "stop (stopped)", id="stop"),
    ],
)
def test_what_is_done_about_a_quota(action: str, state: str, said: str) -> None:
    """In words, without a state that says nothing."""
    row = container("train", over_since=OVER, actions=[{**STOP, "action": action, "state": state}])

    assert any(line.endswith(f"Z; action: {said}") for line in lines(answer(containers=[row]), 200))


def test_each_quota_has_its_own_action() -> None:
    """A container over both of its quotas has a line for each, with what is done about that one."""
    since = OVER["memory"]
    actions = [
        {**STOP, "quantity": "cores", "action": "observe", "state": "uses"},
        STOP,
        {**STOP, "quantity": None, "action": "annotate", "state": "uses"},
    ]
    row = container("train", over_since={"memory": since, "cores": since}, actions=actions)

    assert [line for line in lines(answer(containers=[row]), 200) if " quota since " in line] == [
        "shop/train/main has been over its compute quota since 2026-11-20T09:27:30Z; action: observe (only reported)",
        "shop/train/main has been over its memory quota since 2026-11-20T09:27:30Z; action: stop (stopping)",
    ]


def test_an_earlier_daemon_does_not_say_which_quota_an_action_is_for() -> None:
    """Then each line has the actions about all quotas."""
    earlier = {key: value for key, value in STOP.items() if key != "quantity"}
    row = container("train", over_since=OVER, actions=[earlier])

    assert any(line.endswith("Z; action: stop (stopping)") for line in lines(answer(containers=[row]), 200))
