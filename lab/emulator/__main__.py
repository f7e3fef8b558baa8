"""``python -m lab.emulator``: the embedded runtime as a process of its own."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import click

from criproxy.process.systemd import Notifier
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions


@click.command()
@click.option("--socket", "path", required=True, type=click.Path(path_type=Path), help="Unix socket to listen at.")
@click.option("--containers", default=0, type=click.IntRange(0), help="Containers that run from the start.")
@click.option("--latency-ms", default=0.0, type=click.FloatRange(0), help="Duration of every call.")
@click.option("--cpus", default="0-3", help="CPUs of the machine, such as 0-3,8.")
@click.option("--mems", default="0", help="NUMA nodes of the machine.")
@click.option("--missing", multiple=True, metavar="METHOD", help="A method to be unknown; can be repeated.")
@click.option(
    "--host-root", type=click.Path(path_type=Path), help="Show processes and cgroups as files below this directory."
)
def main(path: Path, latency_ms: float, missing: tuple[str, ...], **others: Any) -> None:  # noqa: ANN401
    """Serve CRI at a socket without any containers, until SIGTERM or SIGINT.

    SIGHUP restarts it: every call under way is cut, the socket goes and comes back, containers go on.
    """
    options = RuntimeOptions(latency_s=latency_ms / 1000, missing=frozenset(missing), **others)
    try:
        asyncio.run(_serve(path, options))
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


async def _serve(path: Path, options: RuntimeOptions) -> None:
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
    async with EmbeddedRuntime(path, options) as runtime:
        click.echo(f"listening at {path}")
        Notifier(os.environ).ready("listening")
        while await signals.get() is signal.SIGHUP:
            await runtime.stop()
            await runtime.start()
            click.echo(f"listening at {path}")


if __name__ == "__main__":
    main()
