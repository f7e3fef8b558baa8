"""A runtime that stays in the middle of a call for as long as a test wants, however slow the machine is."""

import asyncio

import pytest

from criproxy.emulator.core import Core


def hold(monkeypatch: pytest.MonkeyPatch, method: str) -> asyncio.Event:
    """Let calls of *method* wait in the runtime, beside their latency, until the event is set that this returns."""
    go_on, delay = asyncio.Event(), Core.delay

    async def held(core: Core, name: str) -> None:
        await delay(core, name)
        if name == method:
            await go_on.wait()

    monkeypatch.setattr(Core, "delay", held)
    return go_on
