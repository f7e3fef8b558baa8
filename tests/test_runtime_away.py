"""A daemon with the policy none, which holds no call, says all the same that no call can get through."""

import asyncio
from pathlib import Path
from typing import Any

from criproxy.cli.client import ask
from lab.emulator.runtime import EmbeddedRuntime
from tests.daemons import Serve


async def status(serve: Serve) -> dict[str, Any]:
    """The daemon's answer to ``criproxy status --check``."""
    answer: dict[str, Any] = await asyncio.to_thread(ask, str(serve.control), "status", {"check": True})
    return answer


def runtime_notices(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of the kind ``runtime``."""
    return [each for each in answer["notices"] if each["kind"] == "runtime"]


async def test_check_says_that_the_runtime_is_away_with_the_policy_none(tmp_path: Path) -> None:
    """The same as /readyz, as a notice and a problem; it ends when somebody listens there."""
    async with Serve(tmp_path) as serve:
        text = f"the runtime on {serve.runtime} cannot be reached: No such file or directory"
        away = await status(serve)

        assert runtime_notices(away) == [{"kind": "runtime", "wrong": True, "text": text}]
        assert away["problems"] == [text]

        runtime = EmbeddedRuntime(serve.runtime)
        await runtime.start()
        there = await status(serve)

        assert runtime_notices(there) == []
        assert there["problems"] == []
        assert await serve.stop() == 0
        await runtime.stop()


async def test_the_runtime_that_is_away_is_told_of_once(tmp_path: Path) -> None:
    """With a policy that holds calls, what holding knows of the runtime is enough."""
    (tmp_path / "policy.yaml").write_text("policy: static\n")
    async with Serve(tmp_path, "--config", str(tmp_path / "policy.yaml")) as serve:
        kinds = [each["kind"] for each in (await status(serve))["notices"]]

        assert [kind for kind in kinds if kind in ("resync", "runtime")] == ["resync"]
        assert await serve.stop() == 0


async def test_a_separate_image_service_that_is_away_is_told_of(tmp_path: Path) -> None:
    """Nobody else asks it; the socket is named."""
    runtime = EmbeddedRuntime(tmp_path / "runtime.sock")
    await runtime.start()
    behind = tmp_path / "images.sock"
    images = ("--image-listen", f"unix://{tmp_path}/run/images.sock", "--image-endpoint", f"unix://{behind}")
    (tmp_path / "policy.yaml").write_text("policy: static\n")
    async with Serve(tmp_path, "--config", str(tmp_path / "policy.yaml"), *images) as serve:
        (notice,) = runtime_notices(await status(serve))

        assert notice["text"] == f"the image service on {behind} cannot be reached: No such file or directory"
        assert await serve.stop() == 0
    await runtime.stop()
