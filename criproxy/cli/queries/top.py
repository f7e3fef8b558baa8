"""``criproxy top``: the CPUs, containers, devices and events of this node on a screen, as they are now."""

import sys
import time
from typing import Any

import click

from criproxy.cli.daemon.daemon_queries import DaemonQueries, places_options
from criproxy.cli.repeated_output import a_number


@click.command(short_help="Show a live full-screen view of CPUs, containers and devices.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.2, max=3600),
    callback=a_number,
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Pause between two readings.",
)
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
    asked = DaemonQueries(**places)
    if once:
        _print_once(asked, interval_s, text)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("the screen needs a terminal; --once prints everything once")
    _run(asked, interval_s, text)


def _run(places: DaemonQueries, interval_s: float, text: str) -> None:
    from criproxy.cli.screen.asker import Asker
    from criproxy.cli.screen.loop import Loop
    from criproxy.cli.screen.render.view import View
    from criproxy.cli.screen.scenes import Scenes
    from criproxy.cli.screen.terminal import Terminal

    try:
        with Terminal() as terminal:
            asker = Asker(places, terminal.wake)
            asker.start()
            Loop(terminal, Scenes(places.host_root), asker, View(text=text), interval_s).run()
    except KeyboardInterrupt:
        return


def _print_once(places: DaemonQueries, interval_s: float, text: str) -> None:
    """Two readings, and everything that they tell."""
    from criproxy.cli.render.console import console
    from criproxy.cli.screen.asker import answer_once
    from criproxy.cli.screen.paint import printed
    from criproxy.cli.screen.render.frame import once
    from criproxy.cli.screen.render.view import View
    from criproxy.cli.screen.scenes import Scenes

    scenes, told = Scenes(places.host_root), answer_once(places)
    scenes.read(told)
    time.sleep(interval_s)
    scenes.read(told)
    screen = console()
    for line in once(scenes.scene(told), View(text=text), screen.width):
        click.echo(printed(line, screen))
