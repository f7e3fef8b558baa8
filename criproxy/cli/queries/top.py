"""``criproxy top``: the CPUs, containers, devices and events of this node on a screen, as they are now."""

import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from criproxy.cli.client import NodeClient, ask, places_options
from criproxy.cli.render import words
from criproxy.cli.repeated_output import handling, interval_option
from criproxy.errors import CriproxyError
from criproxy.model.text.bounded import bounded

if TYPE_CHECKING:  # rich and the readers of the machine take time to load
    from criproxy.cli.queries.top_screen import Scene, View
    from criproxy.host.container_use import ContainerCgroups

Values = dict[str, Any]
FIRST_S = 0.3
"""After so long, the first loads are shown."""
SLOW_S = 2.0
"""After so long, the screen says that the daemon has not answered."""
CARDS_EVERY_S = 5.0
LIST_MARGIN = 8
"""Lines of the screen that do not scroll, more or less."""
NO_SCREEN = 5000
"""The height of what is no screen: as many lines as it takes."""
_KEYS = {
    "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace", "\x03": "ctrl-c",
    "\x04": "ctrl-d", "\x1b": "escape", "A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end",
    "Z": "backtab", "1~": "home", "4~": "end", "5~": "pageup", "6~": "pagedown", "7~": "home", "8~": "end",
}  # fmt: skip
_KEY = re.compile(r"\x1b(?:O|\[)([0-9;<?]*[A-Za-z~])|(.)", re.DOTALL)


@click.command(short_help="Show a live full-screen view of CPUs, containers and devices.")
@interval_option(3600, "Pause between two readings.")
@click.option("--once", is_flag=True, help="Print everything once after one interval, and exit; for pipes.")
@click.option(
    "--filter", "text", default="", metavar="TEXT", help="Show only containers whose names contain this text."
)
@places_options
def command(*, interval_s: float, once: bool, text: str, **places: Any) -> None:  # noqa: ANN401 (click has checked them)
    """Show the CPUs of this node with their load and owners, the containers sorted by use, the devices, and events.

    The command asks the daemon which container runs where, and reads the load from /proc/stat and from the containers'
    cgroups below --host-root. It changes nothing, and has at most one request to the daemon outstanding. If the daemon
    does not answer, the command says so on the screen and continues.

    Keys: 1 to 5 or Tab selects what fills the screen; c, m, n and x sort the containers by CPU use, memory, name and
    number of exclusive CPUs; / filters them; h shows all keys; q quits.
    """
    from criproxy.cli.queries.top_screen import View

    node = Node(NodeClient(**places))
    if once:
        _print_once(node, interval_s, View(text=text))
    elif not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("the screen needs a terminal; --once prints everything once")
    else:
        with suppress(KeyboardInterrupt):
            _run(node, interval_s, View(text=text))


@dataclass(slots=True)
class Node:
    """Asks the daemon, one request after the other, and reads the load of the machine."""

    places: NodeClient
    problem: str = ""
    status: Values | None = None
    events: list[Values] = field(default_factory=list)
    usage: Values | None = None
    marks: Mapping[str, str] = field(default_factory=dict)
    asked_s: float | None = None
    """When the request that is outstanding began."""
    _began_s: float = field(default_factory=time.time)
    _last: int = 0
    _cards_s: float = 0.0
    _machine: tuple[frozenset[int], list[Any]] = (frozenset(), [])
    _reading: tuple[float, Mapping[int, Any], Mapping[str, Any]] = (0.0, {}, {})
    _rates: Mapping[str, Any] = field(default_factory=dict)
    _cgroups: "ContainerCgroups | None" = None

    def ask(self) -> None:
        """Ask for everything that is shown; problems are shown, too."""
        from criproxy.cli.queries.top_screen import marked

        self.asked_s = time.monotonic()
        try:
            status = bounded(self.places.ask("status"), 200)
            self.marks = marked([row for row in status["containers"] if row["state"] != "exited"], self.marks)
            is_live = status["source"] == "daemon"
            if not is_live and self.status:  # older than what the daemon has said
                raise CriproxyError(status["notices"][0]["text"])
            self.status = status
            self.problem = "" if is_live else next((each["text"] for each in status["notices"]), "")
            if is_live:
                found = self.places.ask("events", {"since_s": self._began_s, "after": self._last})
                self.events, self._last = [*self.events, *bounded(found["events"])][-500:], found["last"]
            if is_live and time.monotonic() - self._cards_s > CARDS_EVERY_S:
                self._cards_s = time.monotonic()
                self.usage = ask(self.places.control_socket, "usage", {"history": False})
        except CriproxyError as error:
            self.problem = f"{self._shown}; {error}"
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            self.problem = _unreadable(error)
        finally:
            self.asked_s = None

    @property
    def _shown(self) -> str:
        return f"containers as of {words.clock(self.status['time'])}" if self.status else "trying again"

    def read(self) -> None:
        """Read the machine's counters: what was used since the last time is shown from now on."""
        from criproxy.host.container_use import ContainerCgroups, read_cpu_times, read_memory_use

        self._cgroups = self._cgroups or ContainerCgroups(self.places.host_root)
        rows = self.status["containers"] if self.status else ()
        containers = self._cgroups.read([row["id"] for row in rows if row["state"] != "exited"])
        (then_s, cpus, before), now_s = self._reading, time.monotonic()
        self._reading = now_s, read_cpu_times(self.places.host_root), containers
        load = {
            cpu: min(max((now.busy - cpus[cpu].busy) / (now.total - cpus[cpu].total), 0.0), 1.0)
            for cpu, now in self._reading[1].items()
            if cpu in cpus and now.total > cpus[cpu].total
        }
        self._rates = {
            "load": load,
            "cpu_milli": {
                key: round((use.cpu_ns - before[key].cpu_ns) / (now_s - then_s) / 1e6)
                for key, use in containers.items()
                if key in before and use.cpu_ns >= before[key].cpu_ns
            },
            "memory_bytes": {key: use.memory_bytes for key, use in containers.items() if use.memory_bytes is not None},
            "memory": read_memory_use(self.places.host_root),
        }

    def scene(self) -> "Scene":
        """Return what is known now."""
        from criproxy.cli.queries.top_screen import Scene

        waits_s = 0.0 if self.asked_s is None else time.monotonic() - self.asked_s
        slow = f"{self._shown}; the daemon has not answered for {waits_s:.0f} s" if waits_s > SLOW_S else ""
        return Scene(
            at_s=time.time(),
            clock=time.strftime("%H:%M:%S"),
            host=bounded(os.uname().nodename),
            status=self.status,
            events=self.events,
            usage=self.usage,
            problem=bounded(slow or self.problem),
            blocks=self._blocks(),
            marks=self.marks,
            **self._rates,
        )

    def _blocks(self) -> list[Any]:
        """The machine, read again when CPUs have come or gone."""
        from criproxy.api.views.cpu_blocks import blocks_of
        from criproxy.host.machine import discover

        cpus = frozenset(self._reading[1])
        if self._machine[0] != cpus or not self._machine[1]:
            with suppress(CriproxyError):
                self._machine = (cpus, blocks_of(discover(self.places.host_root)))
        return self._machine[1]


def _unreadable(error: Exception) -> str:
    return f"the daemon's answer cannot be read: {error!r}; does it run another version?"


def _print_once(node: Node, interval_s: float, view: "View") -> None:
    """Print everything that two readings tell."""
    from criproxy.cli.queries.top_screen import frame
    from criproxy.cli.render.console import console, show

    node.ask()
    node.read()
    time.sleep(interval_s)
    node.read()
    lines, _ = frame(node.scene(), view, screen := console(), screen.width, NO_SCREEN)
    for line in lines[:-1]:  # without that of the keys
        if line.plain:
            show(line)


def _run(node: Node, interval_s: float, view: "View") -> None:
    from rich.console import Group
    from rich.live import Live

    from criproxy.cli.queries.top_screen import Scene, frame, pressed
    from criproxy.cli.render.console import console

    screen, wanted, (woken, wake) = console(), threading.Event(), os.pipe()
    if screen.is_dumb_terminal:
        raise click.UsageError("the screen needs a terminal that can move its cursor; --once prints everything once")
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def ask_always() -> None:
        while wanted.wait():
            wanted.clear()
            node.ask()
            with suppress(BlockingIOError):
                os.write(wake, b"\0")

    threading.Thread(target=ask_always, daemon=True).start()  # may hang in a request at the end
    live = Live(console=screen, screen=True, auto_refresh=False)
    with _taken(live) as stop_if_asked:
        next_s, scene = 0.0, node.scene()
        while True:
            stop_if_asked()
            now_s = time.monotonic()
            if now_s >= next_s:
                next_s = now_s + (interval_s if next_s else min(FIRST_S, interval_s))
                wanted.set()
                if not view.frozen:
                    node.read()
            scene = scene if view.frozen else node.scene()
            try:
                lines, skipped = frame(scene, view, screen, *screen.size)
            except (KeyError, TypeError, ValueError, AttributeError) as error:  # of a daemon of another version
                lines, skipped = frame(Scene(problem=_unreadable(error)), view, screen, *screen.size)
            view = replace(view, skipped=skipped)
            live.update(Group(*lines), refresh=True)
            for key in _keys(woken, next_s - time.monotonic()):
                changed = pressed(view, key, max(1, screen.height - LIST_MARGIN))
                if changed is None:
                    return
                view = changed


def _keys(woken: int, timeout_s: float) -> Iterator[str]:
    """Wait for keys, a signal, an answer or *timeout_s*; yield the names of the keys, ``q`` if the terminal is gone."""
    source = sys.stdin.fileno()
    ready, _, _ = select.select([source, woken], [], [], max(0.0, timeout_s))
    if woken in ready:
        os.read(woken, 4096)
    if source not in ready:
        return
    try:
        text = os.read(source, 4096).decode(errors="replace")
    except OSError:
        text = ""
    yield from () if text else ("q",)
    for sequence, character in _KEY.findall(text):
        name = _KEYS.get(sequence or character, character)
        if len(name) > 1 or name.isprintable():
            yield name


@contextmanager
def _taken(live: Any) -> Iterator[Callable[[], None]]:  # noqa: ANN401 (rich is loaded late)
    """Take the terminal, and give it back as it was; yield what stops this process if Ctrl-Z was pressed.

    The handler of Ctrl-Z does not stop it: in the middle of a frame rich would keep back what gives the terminal back.
    """
    source = sys.stdin.fileno()
    before = termios.tcgetattr(source)
    is_asked = threading.Event()

    def take() -> None:
        tty.setcbreak(source)
        live.start()

    def give_back() -> None:
        live.stop()
        with suppress(OSError, termios.error):  # it may be gone
            termios.tcsetattr(source, termios.TCSADRAIN, before)

    def stop_if_asked() -> None:
        if is_asked.is_set():
            is_asked.clear()
            give_back()
            os.kill(os.getpid(), signal.SIGSTOP)
            take()

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one must not keep the terminal from being given back
        sys.exit(128 + number)

    ending = dict.fromkeys((signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT), end)
    handlers = {**ending, signal.SIGTSTP: lambda *_: is_asked.set(), signal.SIGWINCH: lambda *_: None}
    with handling(handlers):
        try:
            take()
            yield stop_if_asked
        finally:
            give_back()
