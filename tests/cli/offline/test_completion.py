"""Shells complete commands, options and the names of containers."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.asking import LIMIT_S, NAMED, answering, criproxy, places
from tests.node.world import World, sharer

CALL = """from criproxy.cli import main
from criproxy.cli import client
client.PROMPT_S = 60.0  # people wait less than a busy machine may take
main(prog_name='criproxy')
"""


def completed(*words: str) -> list[str]:
    """What bash would propose for the last of *words*."""
    environ = {"_CRIPROXY_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": f"{len(words) - 1}"}
    done = subprocess.run(
        [sys.executable, "-c", CALL], env={**os.environ, **environ}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str) -> None:
    """It asks criproxy, in the way of that shell, and is printed without that shell being there."""
    result = criproxy("completion", shell)

    assert result.exit_code == 0
    assert f"_CRIPROXY_COMPLETE={shell}_complete" in result.output


def test_bash_takes_its_script(tmp_path: Path) -> None:
    """After it, bash knows how to complete criproxy."""
    script = criproxy("completion", "bash").output
    done = subprocess.run(["bash", "-c", f"{script}\ncomplete -p criproxy"], capture_output=True, text=True, check=True)

    assert "_criproxy_completion" in done.stdout


def test_commands_and_options() -> None:
    """Names of commands, and options of the one that was given."""
    assert completed("criproxy", "expl") == ["explain"]
    assert "--check" in completed("criproxy", "status", "--ch")


async def test_names_of_containers(tmp_path: Path) -> None:
    """They come from the daemon, else from its state; nothing is proposed, and nothing said, where neither is there."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=NAMED) as world:
        await world.run(sharer("web"))
        words = ("criproxy", "explain", *places(tmp_path)[:4], "default/w")
        async with answering(world, tmp_path):
            asked = await asyncio.to_thread(completed, *words)
        await world.controller.context.state.find_history("")  # all of it is on disk
        await world.stop_criproxy()
        read = await asyncio.to_thread(completed, *words)
        nothing = await asyncio.to_thread(completed, *words[:5], str(tmp_path / "nowhere"), "default/w")
        await world.start_criproxy()

    assert (asked, read, nothing) == (["default/web/main"], ["default/web/main"], [])
