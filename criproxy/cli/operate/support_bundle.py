"""``criproxy support-bundle``: writes one file with the information for a problem report."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from criproxy.cli.client import places_options
from criproxy.cli.options import PathOption
from criproxy.cli.render.console import print_lines
from criproxy.cli.repeated_output import leaving_on
from criproxy.errors import CriproxyError, UsageError
from criproxy.model.text.bounded import bounded_text

if TYPE_CHECKING:
    from criproxy.cli.bundle.worker import Settings

STDOUT = Path("-")
_MAX_ERROR_CHARS = 300


@click.command(short_help="Write a file with the information for a problem report, without secrets.")
@click.option(
    *("-o", "--output"),
    type=PathOption(),
    metavar="FILE",
    help="The archive to write; - is standard output.  [default: criproxy-support-TIME.tar.gz in this directory]",
)
@click.option(
    "--anonymous", is_flag=True, help="Replace names of namespaces, pods, containers, registries and the node."
)
@click.option("--with-state", is_flag=True, help="Add the content of the state database.")
@click.option(
    "--config",
    type=PathOption(),
    metavar="FILE|DIR",
    help="The policy file.  [default: that of the daemon and of the unit]",
)
@click.option(
    "--runtime-endpoint",
    metavar="ADDRESS",
    default="",
    help="The container runtime's socket.  [default: that of the installed unit]",
)
@click.option(
    "--http",
    multiple=True,
    metavar="ADDRESS",
    help="Address of the metrics; may be repeated.  [default: those of the installed units]",
)
@places_options
def command(  # noqa: PLR0913 (one for each option)
    *,
    output: Path | None,
    anonymous: bool,
    with_state: bool,
    config: Path | None,
    runtime_endpoint: str,
    http: tuple[str, ...],
    control_socket: str,
    state_dir: Path,
    host_root: Path,
) -> None:
    """Write an archive with the state, the configuration and the log of criproxy on this node.

    The archive contains versions; the output of status, status --check, events, devices, usage, topology and history;
    the output of explain for up to ten containers with problems; metrics; the last hour of criproxy's log; the policy
    files; the kubelet's flags, and its settings for CPUs, memory and topology; the state of the units; the sizes and
    integrity of the state on disk; and the space on the disks. The command does not need the daemon. If a part fails
    or hangs, only that part is missing, and errors.txt has the reason. The total size of all files is at most 20 MiB.

    Values of environment variables and annotations, tokens, passwords, keys and certificates are hidden. Names are kept
    unless you use --anonymous: then each name is replaced with a pseudonym that is the same throughout the archive.
    Look through the archive before you send it.
    """
    from criproxy.cli.bundle.worker import Settings

    settings = Settings(
        control_socket=os.path.abspath(control_socket),  # noqa: PTH100 - links stay as they are
        state_dir=str(state_dir.absolute()),
        host_root=str(host_root.absolute()),
        config=str(config.absolute()) if config else "",
        runtime_endpoint=runtime_endpoint,
        http=http,
        with_state=with_state,
    )
    at_s = time.time()
    name = time.strftime("criproxy-support-%Y%m%dT%H%M%SZ", time.gmtime(at_s))
    _write(output or Path(f"{name}.tar.gz"), name, at_s, settings, is_anonymous=anonymous)


def _write(place: Path, name: str, at_s: float, settings: "Settings", *, is_anonymous: bool) -> None:
    """Collect the bundle, and write it to *place*."""
    if place == STDOUT:
        click.echo(_collected(name, at_s, settings, is_anonymous=is_anonymous, err=True), nl=False)
        return
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{place} already exists: name another file with --output") from None
    except OSError as error:
        raise _unwritable(place, error) from error
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file, leaving_on(signal.SIGTERM, signal.SIGHUP):
            content = _collected(name, at_s, settings, is_anonymous=is_anonymous, err=False)
            left = memoryview(content)
            try:
                while left:  # without a buffer, a write may take only a part
                    left = left[file.write(left) :]
            except OSError as error:
                raise _unwritable(place, error) from error
    except BaseException:
        with suppress(OSError):
            place.unlink()
        raise
    from criproxy.model.text.amounts import format_bytes

    print_lines(f"Wrote {place} ({format_bytes(len(content))}). Look through it before you send it.")


def _unwritable(place: Path, error: OSError) -> CriproxyError:
    return CriproxyError(f"{place} cannot be written ({error.strerror}): name another file with --output")


def _collected(name: str, at_s: float, settings: "Settings", *, is_anonymous: bool, err: bool) -> bytes:
    """Return the archive, and list what it contains."""
    from criproxy.cli.bundle.collect import ERRORS, archive, collect
    from criproxy.cli.bundle.redaction import Names

    texts, titles = collect(settings, Names(os.uname().nodename) if is_anonymous else None)
    content, listed = archive(name, texts, titles, at_s)
    print_lines(listed, err=err)
    if ERRORS in texts:
        print_lines(f"Something is missing or incomplete; {ERRORS} has the reasons:", err=err)
        for error in texts[ERRORS].splitlines():
            print_lines(f"  {bounded_text(' '.join(error.split()), _MAX_ERROR_CHARS)}", err=err)
    return content
