"""The options with which simulating commands use another machine than that of their file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from criproxy.model.cpuset import CpuSet
    from criproxy.model.machine.hardware import HugePages
    from criproxy.model.machine.topology import Topology

F = TypeVar("F", bound=Callable[..., None])

EXISTING = click.Path(exists=True, path_type=Path)


def machine_options(command: F) -> F:
    """Add the options for `chosen_machine` to *command*."""
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


def chosen_machine(machine: str | None, host_root: Path | None) -> "Topology | None":
    """Return the machine that the options select; None without options.

    Raises:
        UsageError: the options select two machines, or an invalid one.
    """
    from criproxy.errors import UsageError
    from criproxy.simulate.hosts import of_host, shaped

    if machine is not None and host_root:
        raise UsageError("--machine and --host-root both select a machine: use one of them")
    return shaped(machine) if machine is not None else of_host(host_root) if host_root else None


def cards_chosen(machine: str | None, host_root: Path | None) -> "Sequence[CpuSet]":
    """Return the closest NUMA nodes of each accelerator of the selected machine; a shape has none."""
    from criproxy.simulate.hosts import cards_of_host

    return cards_of_host(host_root) if host_root else ()


def pages_chosen(machine: str | None, host_root: Path | None) -> "tuple[HugePages, ...]":
    """Return the huge pages of the selected machine; a shape has none."""
    from criproxy.simulate.hosts import pages_of_host

    return pages_of_host(host_root) if host_root else ()
