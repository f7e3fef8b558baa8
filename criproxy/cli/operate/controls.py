"""``criproxy controls``: applies what classes set outside of CRI."""

import click

from criproxy.cli.options import PathOption, host_root_option, log_options, program_log
from criproxy.controls import DEFAULT_SOCKET, DEFAULT_STATE_DIR


@click.command(short_help="Apply what classes set outside of CRI.")
@click.option(
    "--socket", default=DEFAULT_SOCKET, show_default=True, metavar="PATH", help="Where the daemon connects, as root."
)
@click.option(
    "--state-dir",
    type=PathOption(folder=True),
    default=DEFAULT_STATE_DIR,
    show_default=True,
    metavar="DIR",
    help="Where is stored what was there before.",
)
@host_root_option("Directory that contains the host's /sys, /proc and /run.")
@click.option(
    "--put-back", is_flag=True, help="Only put back all that the command has changed, and end; while it does not serve."
)
@log_options
def command(log_level: str, log_format: str, put_back: bool, **options: object) -> None:
    """Apply what classes set outside of CRI: interrupts, frequencies, idle states, scheduling, caches, block I/O.

    The daemon sends all that is desired. What was there before is stored first, and put back when it is not desired
    any more. While the daemon is away, everything stays as it is.

    SIGTERM and SIGINT stop it; what is applied stays.
    """
    with program_log(log_format, log_level) as writer:
        from criproxy.controls import serve

        chosen = serve.ControlsOptions(**options)  # type: ignore[arg-type]  # click has checked them
        if put_back:
            serve.put_back(chosen)
        else:
            serve.run(chosen, writer)
