"""Shows an answer once, or repeatedly until the user interrupts."""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

import click

from criproxy.cli.options import format_option
from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render.console import console, print_answer, show
from criproxy.errors import CriproxyError

F = TypeVar("F", bound=Callable[..., Any])
Values = dict[str, Any]
Ask = Callable[[], Values]
Render = Callable[[Values, int, int | None], "rich.RenderableType"]
"""Renders an answer for a number of columns and, if it matters, of lines."""


def _a_number(_context: click.Context, _option: click.Parameter, value: float) -> float:
    if math.isnan(value):  # it passes the checks of minimum and maximum
        raise click.BadParameter("must be a number of seconds")
    return value


def interval_option(most_s: int, text: str) -> Callable[[F], F]:
    """Return the option for a pause of at most *most_s*, with *text* as its help."""
    kind, names = click.FloatRange(min=0.2, max=most_s), ("--interval", "interval_s")
    shown: dict[str, Any] = {"default": 2.0, "show_default": True, "metavar": "SECONDS", "help": text}
    return click.option(*names, type=kind, callback=_a_number, **shown)


def watch_options(command: F) -> F:
    """Add the options of a command that shows an answer once or repeatedly; see `show_answer`."""
    repeats = "Repeat until Ctrl-C; with JSON, print one line each time."
    for option in (
        format_option,
        interval_option(86_400, "Pause between two outputs of --watch."),
        click.option("-w", "--watch", is_flag=True, help=repeats),
    ):
        command = option(command)
    return command


def show_answer(ask: Ask, output: str, render: Render, *, watch: bool, interval_s: float) -> None:
    """Show the answer of *ask* once, or every *interval_s*; errors are then shown as well, since they may be temporary.

    Args:
        ask: returns the answer; may raise CriproxyError.
        output: ``json`` or ``table``.
        render: renders the answer; one with the key ``error`` has no other keys.
        watch: whether to repeat it.
        interval_s: the pause.
    """
    if not watch:
        print_answer(ask(), output, lambda values: render(values, console().width, None))
        return
    with suppress(KeyboardInterrupt), leaving_on(signal.SIGTERM):  # it restores the screen first
        if output == "json":
            while True:
                click.echo(json.dumps(_or_error(ask)))
                time.sleep(interval_s)
        _live(ask, interval_s, render)


def _live(ask: Ask, interval_s: float, render: Render) -> None:
    """Show answers on the alternate screen; if the output is not a terminal, one below the other."""
    screen = console()
    if not screen.is_terminal:
        while True:
            show(render(_or_error(ask), screen.width, None))
            time.sleep(interval_s)

    from rich.live import Live

    with Live(console=screen, screen=True, auto_refresh=False) as shown:
        while True:
            shown.update(render(_or_error(ask), screen.width, screen.height), refresh=True)
            time.sleep(interval_s)


def _or_error(ask: Ask) -> Values:
    try:
        return ask()
    except CriproxyError as error:
        return {"error": str(error)}


def leaving_on(*signals: signal.Signals) -> AbstractContextManager[None]:
    """Exit with 128 plus the number when one of *signals* arrives; no change outside the main thread.

    Signals that this process has ignored from its start stay ignored: under nohup, nothing ends with the terminal.
    """

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    return handling({number: leave for number in signals if signal.getsignal(number) is not signal.SIG_IGN})


@contextmanager
def handling(handlers: Mapping[signal.Signals, Callable[[int, Any], object]]) -> Iterator[None]:
    """Let *handlers* handle these signals; no change outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
