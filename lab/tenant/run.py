"""Tries many hostile pods on a node, and keeps the first that something goes wrong with."""

import asyncio
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings

from criproxy.process import log
from lab.tenant.hostile import Attempt, attempts
from lab.tenant.rig import Rig, make_rig

CHUNK = 250
"""Pods that one node sees; then there is a new one."""


@dataclass
class Result:
    """What became of the pods under one policy."""

    choice: str
    tried: int = 0
    started: int = 0
    refusals: int = 0
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0


def try_choice(choice: str, examples: int, seed: int, most: int = 5) -> Result:
    """Try *examples* hostile pods under a choice; ends after *most* findings."""
    result, begun_s = Result(choice), time.monotonic()
    for chunk in range(0, examples, CHUNK):
        with asyncio.Runner() as runner:
            _try_chunk(runner, result, min(CHUNK, examples - chunk), seed + chunk, most)
        if len(result.findings) >= most:
            break
    result.seconds = time.monotonic() - begun_s
    return result


def try_asked(asked: tuple[str, int, int]) -> Result:
    """`try_choice` with these arguments, for a process of its own."""
    with Path(os.devnull).open("w") as nowhere:
        log.setup("journal", "info", nowhere.fileno())  # lines of others than the controller, as the daemon writes them
        return try_choice(*asked)


def _try_chunk(runner: asyncio.Runner, result: Result, examples: int, seed: int, most: int) -> None:
    with tempfile.TemporaryDirectory(prefix="criproxy-tenant-") as folder:
        world, rig = runner.run(make_rig(Path(folder), result.choice))
        try:
            _examples(runner, rig, result, examples, seed, most)
        finally:
            runner.run(world.__aexit__(None, None, None))
    result.started += rig.started
    result.refusals += rig.refusals


def _examples(runner: asyncio.Runner, rig: Rig, result: Result, examples: int, seed: int, most: int) -> None:
    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(attempt=attempts())
    def life(attempt: Attempt) -> None:
        if len(result.findings) >= most:
            return
        result.tried += 1
        try:
            wrong = runner.run(rig.live(attempt))
        except Exception as error:  # noqa: BLE001 (whatever it is, it must not be)
            wrong = [f"{type(error).__name__}: {error}"[:2000]]
        if wrong:  # to raise would have it tried again, on a node that knows it
            result.findings.append(f"{'; '.join(wrong)[:3000]}\n{_told(attempt)}")

    life()


def _told(attempt: Attempt) -> str:
    """The pod, as short as it can be read."""
    texts = (str(attempt.sandbox), str(attempt.container), f"resize {attempt.resize}")
    return "\n".join(text if len(text) < 1500 else f"{text[:1500]}…" for text in texts)
