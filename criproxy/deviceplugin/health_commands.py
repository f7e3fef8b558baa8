"""Runs the programs that know which cards of a class work, each as often as its section says."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from criproxy.devices.plan import HealthCommand
from criproxy.observe.children import Child
from criproxy.observe.logger import Log

LONGEST_OUTPUT_BYTES = 65_536
LONGEST_REASON = 200
"""Characters."""


class CommandFailed(Exception):
    """No card of the class can be called good; the text says why."""


Judged = Callable[[str, Mapping[str, str] | str], None]
"""Gets the name of a class, and why cards do not work, by what the program calls them; or why none is known to."""


@dataclass(slots=True, repr=False)
class HealthCommands:
    """Judges cards.

    Args:
        judged: gets each verdict.
        log: is told once for each reason why a program fails.
    """

    judged: Judged
    log: Log
    _commands: tuple[HealthCommand, ...] = ()
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _said: dict[str, str] = field(default_factory=dict)

    def use(self, commands: Sequence[HealthCommand]) -> None:
        """Run these from now on."""
        if tuple(commands) != self._commands:
            self._commands = tuple(commands)
            self._changed.set()

    async def run(self) -> None:
        """Run them for ever."""
        while True:
            self._changed.clear()
            async with asyncio.TaskGroup() as group:
                repeating = [group.create_task(self._repeat(each)) for each in self._commands]
                await self._changed.wait()
                for task in repeating:
                    task.cancel()

    async def _repeat(self, command: HealthCommand) -> None:
        child, loop = Child(), asyncio.get_running_loop()
        while True:
            begun_s = loop.time()
            try:
                verdict: Mapping[str, str] | str = await ask(command, child)
            except CommandFailed as error:
                verdict = str(error)
            finally:
                await child.end()
            self._tell(command, verdict)
            self.judged(command.kind, verdict)
            await asyncio.sleep(max(begun_s + command.period_s - loop.time(), 0))

    def _tell(self, command: HealthCommand, verdict: Mapping[str, str] | str) -> None:
        problem = verdict if isinstance(verdict, str) else ""
        if problem and problem != self._said.get(command.kind):
            self.log.error("a health command fails: no card of its class is healthy", reason=problem)
        self._said[command.kind] = problem


async def ask(command: HealthCommand, child: Child) -> Mapping[str, str]:
    """Why cards do not work, by what the program calls them: a line for each, its name, a blank, and the reason.

    Raises:
        CommandFailed: it says nothing that can be used; it may still run.
    """
    program = command.command[0]
    try:
        async with asyncio.timeout(command.timeout_s):
            output = await _output(await child.start(command.command), program)
            status = await child.ended()
    except TimeoutError:
        raise CommandFailed(f"{program} has not ended within {command.timeout_s:g} s") from None
    except OSError as error:
        raise CommandFailed(f"{program} cannot be run: {error.strerror}") from None
    if status:
        how = f"exit status {status}" if status > 0 else f"signal {-status}"
        raise CommandFailed(f"{program} has ended with {how}")
    lines = (line.split(maxsplit=1) for line in output.decode(errors="replace").splitlines())
    return {words[0]: (words[1] if words[1:] else "")[:LONGEST_REASON] for words in lines if words}


async def _output(lines: asyncio.StreamReader, program: str) -> bytes:
    output = b""
    while chunk := await lines.read(LONGEST_OUTPUT_BYTES):
        output += chunk
        if len(output) > LONGEST_OUTPUT_BYTES:
            raise CommandFailed(f"{program} prints more than {LONGEST_OUTPUT_BYTES} bytes")
    return output
