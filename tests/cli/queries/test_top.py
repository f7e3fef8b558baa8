"""``criproxy top`` in a terminal: keys, sizes, a slow or absent daemon, and the terminal as it was at the end."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from criproxy.cli.client import NodeClient
from criproxy.cli.queries.top import Node
from criproxy.cli.queries.top_screen import MANY, MARKS, Scene, View, frame, marked, pressed
from criproxy.cli.render.console import console
from tests.cli.queries.live_node import LiveNode, a_container, a_pod, large, small
from tests.node.world import FAST, World, owner
from tests.sysfs import write_sysfs

LIMIT_S = 60.0
TOP = ("-m", "criproxy", "top", "--interval", "0.2")
ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """A pseudo-terminal with the command in it, and what it shows."""

    def __init__(
        self, options: Sequence[str] = (), columns: int = 80, lines: int = 24, program: Sequence[str] = TOP
    ) -> None:
        self.outer, self.inner = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.inner)
        self.said = b""
        sizes = ("COLUMNS", "LINES")  # they would count instead of the terminal's, as pytest-xdist's do
        environ = {key: value for key, value in os.environ.items() if key not in sizes} | {"TERM": "xterm-256color"}
        command = [sys.executable, *program, *options]
        self.process = subprocess.Popen(
            command, stdin=self.inner, stdout=self.inner, stderr=self.inner, env=environ, start_new_session=True
        )

    def __enter__(self) -> Self:
        os.set_blocking(self.outer, False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.inner)
        os.close(self.outer)

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size; the kernel tells only the processes of its session."""
        fcntl.ioctl(self.outer, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Type *keys*."""
        os.write(self.outer, keys.encode())

    def lines(self) -> list[str]:
        """What the screen shows, line by line: the last frame that is complete."""
        _, height = os.get_terminal_size(self.inner)
        frames = self.said.decode(errors="replace").split("\x1b[H")
        shown = (_ESCAPE.sub("", frame).split("\r\n") for frame in reversed(frames))
        return next((lines for lines in shown if len(lines) == height), [])

    async def until(self, is_true: Callable[[list[str]], bool]) -> list[str]:
        """Wait until the screen shows what is wanted."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                await self.more()
                if is_true(lines := self.lines()):
                    return lines

    async def until_text(self, text: str) -> list[str]:
        """Wait until some line has *text*."""
        return await self.until(lambda lines: any(text in line for line in lines))

    async def more(self) -> None:
        """Read what the command has written, and wait for it where there is nothing."""
        readable, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_reader(self.outer, readable.set)
        try:
            await readable.wait()
            self.said += os.read(self.outer, 1 << 16)
        finally:
            loop.remove_reader(self.outer)

    async def ended(self) -> int:
        """Wait until the command has ended; return its exit status."""
        async with asyncio.timeout(LIMIT_S):
            while BACK not in self.said:
                await self.more()
            return await asyncio.to_thread(self.process.wait)

    def is_as_before(self) -> bool:
        """Whether the terminal has its modes, its screen and its cursor again."""
        modes = termios.tcgetattr(self.inner) == self.before
        return modes and self.said.rindex(BACK) > self.said.rindex(ALTERNATE) and b"\x1b[?25h" in self.said


@asynccontextmanager
async def passing(node: LiveNode) -> AsyncIterator[None]:
    """Let time pass on *node*: a load is on the screen only until the next reading, unless it goes on."""

    async def go_on() -> None:
        while True:
            node.advance()
            await asyncio.sleep(0.05)

    going = asyncio.create_task(go_on())
    try:
        yield
    finally:
        going.cancel()


async def test_the_screen_shows_the_node_and_q_gives_the_terminal_back(tmp_path: Path) -> None:
    """80x24: CPUs with owners, containers by use; load and use follow the machine's counters."""
    node = small(tmp_path)
    async with node.answering():
        with Screen(node.options) as screen:
            await screen.until_text("shop/web-0/sidecar")
            screen.press("2")
            async with passing(node):
                await screen.until(lambda lines: any("75% a shop/web-0/main" in line for line in lines))
            screen.press("1")
            lines = await screen.until_text("shop/web-0/sidecar")
            assert len(lines) == 24
            assert "exclusive 2 of 6  free 4" in lines[1]  # as in `criproxy status`: two of the eight CPUs are reserved
            first, second = [line for line in lines if "shop/web-0" in line]
            assert first.startswith("a ")
            assert "shared" in second
            screen.press("q")
            assert await screen.ended() == 0
            assert screen.is_as_before()


async def test_keys_sort_filter_and_turn_pages(tmp_path: Path) -> None:
    """Also several at once, as over a slow line."""
    node = small(tmp_path)
    async with node.answering():
        with Screen(node.options) as screen:
            await screen.until_text("shop/web-0/main")
            screen.press("n")
            await screen.until_text("by name")
            screen.press("/sidec\r")
            lines = await screen.until_text("with “sidec”")
            assert sum("shop/" in line for line in lines) == 1
            screen.press("\x1b2")
            await screen.until_text("reserved")
            screen.press("h")
            await screen.until_text("Press any key to go back")
            screen.press(" 5\x1b[A")
            await screen.until_text("Events")
            screen.press("q")
            assert await screen.ended() == 0


async def test_another_size_is_another_frame(tmp_path: Path) -> None:
    """Larger, smaller, and too small."""
    node = small(tmp_path)
    async with node.answering():
        with Screen(node.options) as screen:
            await screen.until_text("shop/web-0/main")
            for columns, lines in ((132, 43), (80, 24), (30, 5)):
                screen.resize(columns, lines)
                screen.process.send_signal(signal.SIGWINCH)
                await screen.until(lambda found, lines=lines: len(found) == lines)  # type: ignore[misc]
            await screen.until_text("needs 40x10")
            screen.press("q")
            assert await screen.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGINT])
async def test_a_signal_gives_the_terminal_back(tmp_path: Path, number: signal.Signals) -> None:
    """The exit status is that of other programs."""
    with Screen(small(tmp_path).options) as screen:
        await screen.until_text("no criproxy daemon listens")
        screen.process.send_signal(number)
        assert await screen.ended() == (0 if number is signal.SIGINT else 128 + number)
        assert screen.is_as_before()


async def test_while_it_is_stopped_the_terminal_is_the_shells(tmp_path: Path) -> None:
    """As after Ctrl-Z, also in the middle of a frame; when it continues, it paints everything again."""
    with Screen(small(tmp_path).options) as screen:
        await screen.until_text("no criproxy daemon listens")
        for _ in range(5):  # each comes while it paints, now and then
            screen.process.send_signal(signal.SIGTSTP)
            async with asyncio.timeout(LIMIT_S):
                while BACK not in screen.said:
                    await screen.more()
            _, status = await asyncio.to_thread(os.waitpid, screen.process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            assert screen.is_as_before()
            screen.said = b""
            screen.process.send_signal(signal.SIGCONT)
            await screen.until_text("no criproxy daemon listens")
        screen.press("q")
        assert await screen.ended() == 0


async def test_an_exception_gives_the_terminal_back(tmp_path: Path) -> None:
    """It is printed on the screen of the shell."""
    node = small(tmp_path)
    broken = (
        "import criproxy.cli.queries.top_screen as t\ndef fail(*a): raise RuntimeError('planted')\nt.frame = fail\n"
    )
    program = f"{broken}from criproxy.cli import main\nmain(['top', *{node.options!r}])"
    with Screen(program=["-c", program]) as screen:
        assert await screen.ended() == 1
        while b"planted" not in screen.said.rpartition(BACK)[2]:
            await screen.more()
        assert screen.is_as_before()


async def test_a_daemon_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    """The screen says so and goes on with what it has; there is never more than one request outstanding."""
    node = small(tmp_path)
    async with node.answering():
        with Screen(node.options) as screen:
            await screen.until_text("shop/web-0/main")
            node.hold.clear()
            await screen.until_text("the daemon has not answered for")
            screen.press("2")
            node.loads[2] = 0.5
            async with passing(node):
                await screen.until_text("50%")
            node.hold.set()
            await screen.until(lambda lines: not any("has not answered" in line for line in lines))
            screen.press("q")
            await screen.ended()
    assert node.most_outstanding == 1


async def test_the_daemon_may_go_and_come_back(tmp_path: Path) -> None:
    """The containers stay on the screen with a message, until it answers again."""
    node = small(tmp_path)
    with Screen(node.options) as screen:
        async with node.answering():
            await screen.until_text("shop/web-0/main")
        lines = await screen.until_text("no criproxy daemon listens")
        assert any("shop/web-0/main" in line for line in lines)
        assert any(line.startswith("containers as of ") for line in lines)
        node.run(a_container(2))
        async with node.answering():
            await screen.until_text("cart-1/main")
        screen.press("q")
        await screen.ended()


async def test_an_absent_daemon_is_named_once(tmp_path: Path) -> None:
    """Its state on disk is shown; why it is no answer of the daemon stands above it, and nowhere else."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=replace(FAST, policy_name="static")) as world:
        await world.run(owner("trader", 2))
        await world.stop_criproxy()
        write_sysfs(tmp_path / "host", world.controller.context.state.node.topology)
        places = NodeClient(str(tmp_path / "control.sock"), tmp_path / "state", tmp_path / "host")
        node = Node(places)
        await asyncio.to_thread(node.ask)
        await world.start_criproxy()
    node.read()
    lines = [line.plain for line in frame(node.scene(), View(), console(), 200, 40)[0]]

    assert any("trader" in line for line in lines)
    (said,) = [line for line in lines if "no criproxy daemon listens" in line]
    assert said.startswith("no criproxy daemon")


async def test_hostile_names_move_no_cursor(tmp_path: Path) -> None:
    """Control characters of tenants are shown as text."""
    node = small(tmp_path)
    pod = replace(a_pod(9), name="\x1b[2J\x1b[31mevil\n\u202e")
    node.run(replace(a_container(18), pod=pod.key, pod_name=pod.name), pod)
    async with node.answering():
        with Screen(node.options, 132, 24) as screen:
            lines = await screen.until_text("evil")
            assert any("\\x1b[2J\\x1b[31mevil\\n\\u202e" in line for line in lines)
            screen.press("q")
            await screen.ended()
    assert b"\x1b[31mevil" not in screen.said


async def test_once_prints_one_frame(tmp_path: Path) -> None:
    """Without a terminal; without --once, it says what to do."""
    node = small(tmp_path)
    async with node.answering():
        command = [sys.executable, "-m", "criproxy", "top", *node.options, "--interval", "0.2"]
        done = await asyncio.to_thread(subprocess.run, [*command, "--once"], capture_output=True, check=False)
        plain = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)

    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert b"shop/web-0/main" in done.stdout
    assert plain.returncode == 2
    assert b"--once" in plain.stderr


async def test_384_cpus_and_500_containers(tmp_path: Path) -> None:
    """They are shown on 80x24, and a frame takes a fraction of the interval."""
    node = await asyncio.to_thread(large, tmp_path)
    async with node.answering():
        with Screen(node.options) as terminal:
            lines = await terminal.until_text("of 500, sorted by CPU")
            assert sum(line.count("node ") for line in lines) == 8
            terminal.press("q")
            await terminal.ended()
        places = NodeClient(str(tmp_path / "control.sock"), tmp_path / "state", node.host)
        screen = Node(places)
        await asyncio.to_thread(screen.ask)
    screen.read()
    screen.scene()
    began_s = time.process_time()
    for _ in range(5):
        screen.read()
        frame(screen.scene(), View(), console(), 200, 60)
    assert (time.process_time() - began_s) / 5 < 0.4  # 2 s is the usual interval; see docs/top.md for what was measured


def test_other_commands_do_not_load_it() -> None:
    """Their start takes as long as before."""
    program = "import sys, criproxy.cli, criproxy.cli.queries.status as _; "
    program += "print([m for m in sys.modules if m.endswith('.top')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert [name for name in eval(done.stdout) if name.startswith("criproxy")] == []  # noqa: S307


def test_an_answer_of_another_shape_is_a_problem(tmp_path: Path) -> None:
    """It does not end the screen."""

    class Odd:
        control_socket = str(tmp_path / "none.sock")

        def status(self) -> dict[str, int]:
            return {"containers": 3}

    node = Node(Odd())  # type: ignore[arg-type]
    node.ask()

    assert "cannot be read" in node.problem


@pytest.mark.parametrize(
    ("view", "key", "expected"),
    [
        pytest.param(View(), "q", None, id="quit"),
        pytest.param(View(helping=True), "q", None, id="quit-from-help"),
        pytest.param(View(typing=True), "ctrl-c", None, id="ctrl-c-while-typing"),
        pytest.param(View(skipped=3), "m", View(sort="m"), id="sort"),
        pytest.param(View(), "3", View(page=2), id="page"),
        pytest.param(View(page=4), "tab", View(page=0), id="tab-goes-around"),
        pytest.param(View(), "backtab", View(page=4), id="backtab"),
        pytest.param(View(), "r", View(reverse=True), id="reverse"),
        pytest.param(View(typing=True, text="w"), "q", View(typing=True, text="wq"), id="q-is-a-letter-there"),
        pytest.param(View(typing=True, text="wq"), "backspace", View(typing=True, text="w"), id="backspace"),
        pytest.param(View(typing=True, text="w"), "enter", View(text="w"), id="enter-keeps-it"),
        pytest.param(View(typing=True, text="w"), "escape", View(), id="escape-clears-it"),
        pytest.param(View(text="w", page=1), "escape", View(), id="escape"),
        pytest.param(View(), "up", View(), id="not-above-the-first"),
        pytest.param(View(skipped=5), "pagedown", View(skipped=15), id="page-down"),
        pytest.param(View(skipped=5), "home", View(), id="home"),
        pytest.param(View(), " ", View(frozen=True), id="freeze"),
        pytest.param(View(helping=True), "x", View(), id="any-key-ends-help"),
        pytest.param(View(), "\u00e9", View(), id="no-key-of-ours"),
    ],
)
def test_a_key(view: View, key: str, expected: View | None) -> None:
    """It changes the view, or ends it."""
    assert pressed(view, key, 10) == expected


def test_a_list_ends_with_its_last_line() -> None:
    """However far one scrolls; the frame says how far that was."""
    scene = Scene(events=[an_event(number) for number in range(50)])
    lines, skipped = frame(scene, View(page=4, skipped=1 << 30), console(), 80, 24)

    assert skipped == 50 - 20
    assert "event 0" in lines[-2].plain
    assert len(lines) == 24


def an_event(number: int) -> dict[str, Any]:
    """One of the history."""
    text = f"event {number}"
    return {"time": "2026-01-01T00:00:00.000Z", "kind": "granted", "container": "", "sentences": [text]}


def row(name: str, cpus: str) -> dict[str, Any]:
    """A container with exclusive CPUs."""
    return {"id": name, "namespace": "n", "pod": "p", "container": name, "exclusive_cpus": cpus}


def test_a_container_keeps_its_mark() -> None:
    """Marks go by the first CPU; with more containers than marks, the last ones share one."""
    assert marked([row("late", "4-5"), row("early", "2")], {}) == {"n/p/early": "a", "n/p/late": "b"}
    assert marked([row("new", "2"), row("old", "4")], {"n/p/old": "b"}) == {"n/p/new": "a", "n/p/old": "b"}
    many = marked([row(f"c{number}", str(number)) for number in range(len(MARKS) + 2)], {})
    assert [many[f"n/p/c{number}"] for number in range(len(MARKS), len(MARKS) + 2)] == [MANY, MANY]
