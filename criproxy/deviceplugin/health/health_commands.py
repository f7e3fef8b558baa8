"""Runs the health commands, which know which cards of a class work, each at the interval of its section."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from criproxy.devices.plugin.plan import HealthCommand
from criproxy.process.children import KILL_S, Child
from criproxy.process.logger import Log

LONGEST_OUTPUT_BYTES = 65_536
"""A program that prints twice as much is not read any further, and so does not finish."""
LONGEST_REASON = 200
"""In characters."""


class CommandFailed(Exception):
    """No card of the class can be considered healthy; the text is the reason."""


OnVerdict = Callable[[str, Mapping[str, str] | str], None]
"""Receives a class, and the reasons why its cards do not work by the command's names for them, or why all are bad."""


@dataclass(slots=True, repr=False)
class HealthCommands:
    """Judges cards with health commands.

    Args:
        on_verdict: Receives each verdict.
        log: Gets one line for each reason why a command fails.
    """

    on_verdict: OnVerdict
    log: Log
    _commands: tuple[HealthCommand, ...] = ()
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _problems: dict[str, str] = field(default_factory=dict)
    _run_now: dict[str, asyncio.Event] = field(default_factory=dict)
    """By class: set to run its command before the next interval."""

    def use(self, commands: Sequence[HealthCommand]) -> None:
        """Run *commands* from now on."""
        if tuple(commands) != self._commands:
            self._commands = tuple(commands)
            self._changed.set()

    def run_soon(self, kinds: Iterable[str]) -> None:
        """Run the commands of these classes immediately: there are cards that they have not judged."""
        for kind in kinds:
            if kind in self._run_now:
                self._run_now[kind].set()

    async def run(self) -> None:
        """Run the commands forever."""
        while True:
            self._changed.clear()
            async with asyncio.TaskGroup() as group:
                repeating = [group.create_task(self._repeat(each)) for each in self._commands]
                await self._changed.wait()
                for task in repeating:
                    task.cancel()

    async def _repeat(self, command: HealthCommand) -> None:
        child, loop = Child(), asyncio.get_running_loop()
        wanted = self._run_now[command.kind] = asyncio.Event()
        while True:
            started_s = loop.time()
            wanted.clear()
            try:
                verdict: Mapping[str, str] | str = await run_command(command, child)
            except CommandFailed as error:
                verdict = str(error)
            finally:
                await child.end()
            self._log_problem(command, verdict)
            self.on_verdict(command.kind, verdict)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(max(started_s + command.period_s, loop.time())):
                    await wanted.wait()

    def _log_problem(self, command: HealthCommand, verdict: Mapping[str, str] | str) -> None:
        problem = verdict if isinstance(verdict, str) else ""
        if problem and problem != self._problems.get(command.kind):
            self.log.error("a health command failed: all cards of its class count as unhealthy", reason=problem)
        self._problems[command.kind] = problem


async def run_command(command: HealthCommand, child: Child) -> Mapping[str, str]:
    """Run a health command; return the reasons why cards do not work, by the command's names for the cards.

    Each line of its output is the name of a card, a blank, and the reason.

    Raises:
        CommandFailed: The command has no usable output; it may still be running.
    """
    program = command.command[0]
    try:
        lines = await child.start(command.command)
    except OSError as error:
        raise CommandFailed(f"{program} cannot be run: {error.strerror}") from None
    try:
        async with asyncio.timeout(command.timeout_s):
            status = await child.ended()
    except TimeoutError:
        raise CommandFailed(f"{program} did not finish within {command.timeout_s:g} s") from None
    await child.end_rest()  # a child that it left behind may hold its output open
    try:
        async with asyncio.timeout(KILL_S):
            output = await lines.read()
    except TimeoutError:
        text = f"{program} has exited, but a process that it started has not, and cannot be killed"
        raise CommandFailed(text) from None
    if len(output) > LONGEST_OUTPUT_BYTES:
        raise CommandFailed(f"{program} printed more than {LONGEST_OUTPUT_BYTES} bytes")
    if status:
        how = f"exit status {status}" if status > 0 else f"signal {-status}"
        raise CommandFailed(f"{program} exited with {how}")
    words = (line.split(maxsplit=1) for line in output.decode(errors="replace").splitlines())
    return {each[0]: (each[1] if each[1:] else "")[:LONGEST_REASON] for each in words if each}
