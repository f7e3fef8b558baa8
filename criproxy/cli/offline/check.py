"""``criproxy check``: whether the daemon would use a policy file on this machine."""

import os
from pathlib import Path

import click

from criproxy.cli.options import PathOption, format_option, host_root_option


def _named(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check the name of a host or group, if one is given."""
    if value is not None:
        from criproxy.config.files import why_no_name

        if wrong := why_no_name(value):
            raise click.BadParameter(wrong, ctx, param)
    return value


@click.command(short_help="Check a policy file by itself and against this machine.")
@click.argument("paths", nargs=-1, required=True, type=PathOption(), metavar="FILE|DIR...")
@host_root_option("Directory that contains /sys, /proc and the cgroup tree of the machine to check against.")
@click.option("--no-machine", is_flag=True, help="Check the files by themselves, not against this machine.")
@click.option(
    "--hostname",
    metavar="NAME",
    callback=_named,
    help="Check the file in DIR for the host with this name.  [default: this host's name]",
)
@click.option(
    "--group",
    metavar="LABEL",
    callback=_named,
    help="Check the file in DIR for this group of nodes.  [default: the content of /etc/criproxy/group]",
)
@click.option("--nri", is_flag=True, help="Note what cannot be done if criproxy is an NRI plugin of the runtime.")
@format_option
@click.pass_context
def command(  # noqa: PLR0913 (one for each option)
    ctx: click.Context,
    *,
    paths: tuple[Path, ...],
    host_root: Path,
    no_machine: bool,
    hostname: str | None,
    group: str | None,
    nri: bool,
    output: str,
) -> None:
    """Report errors in policy files as FILE:LINE:COLUMN, or print the resulting options.

    A file can also have NodePolicy objects, which are checked as a whole.

    In a directory, the command checks the file that this node would use: HOSTNAME.yaml, else group-GROUP.yaml, else
    default.yaml.

    If a policy file names a file of NVIDIA's device plugin, the command checks that file, too, with the flags and
    variables in /etc/default/criproxy-device-plugin and with NVIDIA's variables in its own environment.

    Exit status: 0 the daemon and the device plugin would accept all files, 1 they would not, 2 a usage error.
    """
    from criproxy.cli.offline.check_invocation import Place
    from criproxy.cli.offline.check_report import print_report

    host = os.uname().nodename if hostname is None else hostname
    place = Place(host_root=host_root, has_machine=not no_machine, hostname=host, group=group, nri=nri)
    ctx.exit(print_report(paths, place, output))
