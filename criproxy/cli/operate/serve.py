"""``criproxy serve``: the daemon."""

from typing import Any

import click

from criproxy.cli.client import DEFAULT_CONTROL_SOCKET, state_dir_option
from criproxy.cli.options import config_option, host_root_option, log_options, page_options, runtime_endpoint_option
from criproxy.errors import CriproxyError


@click.command(short_help="Serve CRI between the kubelet and the runtime.")
@config_option
@click.option(
    "--listen",
    default="unix:///run/criproxy/criproxy.sock",
    show_default=True,
    metavar="ADDRESS",
    help="Socket for the kubelet; sockets that systemd passes take precedence.",
)
@runtime_endpoint_option("The container runtime's socket.")
@click.option(
    "--image-listen", metavar="ADDRESS", help="Socket for the kubelet's image calls, if the image service is separate."
)
@click.option("--image-endpoint", metavar="ADDRESS", help="The image service behind --image-listen.")
@click.option(
    "--nri",
    metavar="ADDRESS",
    help="Be a plugin of the runtime on this NRI socket, usually unix:///run/nri/nri.sock, instead of serving CRI: "
    "the kubelet's endpoint stays as it is.",
)
@state_dir_option("Directory that keeps the state across restarts.")
@host_root_option(
    "Directory that contains the host's /sys, /proc, /dev and cgroup tree, CDI files, and the kubelet's files."
)
@page_options
@click.option(
    "--control-socket",
    default=DEFAULT_CONTROL_SOCKET,
    show_default=True,
    metavar="PATH",
    help="Socket through which the other commands reach this daemon. In its directory, read-only/pod/NAME answers only "
    "queries, and agent/pod/NAME is for criproxy agent.",
)
@log_options
@click.option(
    "--trace-calls",
    multiple=True,
    metavar="METHOD",
    help="Log requests and replies of this method (CreateContainer, a full path, or '*') without secrets. Repeatable.",
)
def command(log_level: str, log_format: str, **options: object) -> None:
    """Serve CRI to the kubelet, forward every call to the runtime, and place containers on the way.

    SIGTERM and SIGINT stop the daemon; it waits at most 2 s for calls in flight.
    """
    from criproxy.process import log  # first: prevents structlog from loading what we never use

    writer = log.setup(log_format, log_level)
    try:
        from criproxy.daemon.options import Options
        from criproxy.daemon.serve import run

        run(Options(**options), writer)  # type: ignore[arg-type]  # click has checked them
    except Exception as error:
        if log.chosen(log_format) == "console" and not isinstance(error, OSError):  # whose traceback would be lost
            raise
        raise click.exceptions.Exit(_log_failure(log.structlog.get_logger("criproxy"), error)) from error


def _log_failure(logger: Any, error: Exception) -> int:  # noqa: ANN401 - structlog's own type
    """Log why the daemon does not start or has failed; return the exit status."""
    if isinstance(error, CriproxyError):
        logger.critical("cannot serve", error=str(error))
        return error.exit_status
    logger.critical("failed because of a bug in criproxy", error=repr(error), exc_info=error)
    return CriproxyError.exit_status
