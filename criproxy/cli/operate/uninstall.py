"""``criproxy uninstall``: takes criproxy out of the way between the kubelet and the runtime."""

from pathlib import Path

import click

from criproxy.cli.options import check_root, host_options
from criproxy.cli.render.console import print_lines


@click.command(short_help="Release all containers, and remove criproxy from this node.")
@host_options
@click.option(
    "--force",
    is_flag=True,
    help="Continue even if containers may still be pinned, and also remove criproxy's files that somebody has changed.",
)
def command(*, dry_run: bool, host_root: Path, force: bool) -> None:
    """Undo `criproxy install`: the node is then as it was before, and its pods keep running.

    First, all containers are released. If that fails, nothing else happens, except with --force. Then the kubelet's
    files are restored (if somebody has changed them since, only criproxy's setting is removed), the kubelet restarts,
    and criproxy is stopped and removed. A Debian package stays installed. After an installation by hand, the
    command only points the kubelet back at the runtime, and stops criproxy.

    Exit status: 0 criproxy is uninstalled, 1 it is not; correct the cause and repeat the command, 2 a usage error.
    """
    check_root(dry_run=dry_run)
    from criproxy.install.host import Host
    from criproxy.install.operate import Operator

    Operator(Host(host_root), print_lines).uninstall(dry_run=dry_run, force=force)
