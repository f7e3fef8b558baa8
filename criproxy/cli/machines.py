"""The options by which commands that simulate take another machine than their file says."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from criproxy.model.cpuset import CpuSet
    from criproxy.model.topology import Topology

F = TypeVar("F", bound=Callable[..., None])

EXISTING = click.Path(exists=True, path_type=Path)


def machine_options(command: F) -> F:
    """Give *command* the options that `chosen` takes."""
    shape = click.option(
        "--machine",
        metavar="SHAPE",
        help="Use a machine such as 2s/4n/16c/2t: 2 sockets, 4 NUMA nodes, 16 cores, 2 threads per core.",
    )
    copy = click.option(
        "--host-root",
        type=EXISTING,
        metavar="DIR|TAR",
        help="Use the machine whose /sys and /proc are in this directory or archive.",
    )
    return shape(copy(command))


def chosen(machine: str | None, host_root: Path | None) -> "Topology | None":
    """The machine that was named; None if none was.

    Raises:
        UsageError: two were, or there is no such machine.
    """
    from criproxy.errors import UsageError
    from criproxy.simulate.hosts import of_host, shaped

    if machine is not None and host_root:
        raise UsageError("--machine and --host-root both select a machine: use one of them")
    return shaped(machine) if machine is not None else of_host(host_root) if host_root else None


def cards_chosen(machine: str | None, host_root: Path | None) -> "Sequence[CpuSet]":
    """For each accelerator of the machine that was named the NUMA nodes next to it; a shape has none."""
    from criproxy.simulate.hosts import cards_of_host

    return cards_of_host(host_root) if host_root else ()
