"""A daemon whose runtime is away says so, also with the policy none, which holds no call."""

from pathlib import Path

from lab.emulator.runtime import EmbeddedRuntime
from tests.daemons import Serve


async def test_check_says_that_the_runtime_is_away_with_the_policy_none(tmp_path: Path) -> None:
    """The same as /readyz, as a notice and a problem; it ends when somebody listens there."""
    async with Serve(tmp_path) as serve:
        text = f"the runtime on {serve.runtime} cannot be reached: No such file or directory"
        away = await serve.ask("status", check=True)

        assert {"kind": "runtime", "wrong": True, "text": text} in away["notices"]
        assert away["problems"] == [text]

        async with EmbeddedRuntime(serve.runtime):
            back = await serve.ask("status", check=True)

            assert "runtime" not in [each["kind"] for each in back["notices"]]
            assert back["problems"] == []
            assert await serve.stop() == 0


async def test_the_runtime_that_is_away_is_told_of_once(tmp_path: Path) -> None:
    """With a policy that holds calls, what holding knows of the runtime is enough."""
    async with Serve(tmp_path, policy="policy: static\n") as serve:
        kinds = [each["kind"] for each in (await serve.ask("status", check=True))["notices"]]

        assert [kind for kind in kinds if kind in ("resync", "runtime")] == ["resync"]
        assert await serve.stop() == 0


async def test_a_separate_image_service_that_is_away_is_told_of(tmp_path: Path) -> None:
    """Nobody else asks it; the socket is named."""
    behind = tmp_path / "images.sock"
    images = ("--image-listen", f"unix://{tmp_path}/run/images.sock", "--image-endpoint", f"unix://{behind}")
    daemon = Serve(tmp_path, *images, policy="policy: static\n")
    async with EmbeddedRuntime(daemon.runtime), daemon as serve:
        text = (await serve.notices())["runtime"]

        assert text == f"the image service on {behind} cannot be reached: No such file or directory"
        assert await serve.stop() == 0
