"""One command, or a shell, in a throw-away Linux guest with NUMA nodes of your choice.

    python -m lab.vm --list
    python -m lab.vm --topology 2s-4n-smt                      # a shell
    python -m lab.vm --topology 4s-8n --cmd 'lscpu; .venv/bin/criproxy topology'

All that is installed on this machine is there, with cgroup v2; what the command writes goes with the guest, except
below --share. Exit status: the command's own; 124 when its time was over; 125 if the guest did not get to its end;
2 for wrong use.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from lab.vm import guest, kernel, qemu
from tests.runtimes.debian import FetchError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.vm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--list", action="store_true", help="print the machines")
    add("--fetch", action="store_true", help="fetch the guests' kernel if it is missing, and run nothing")
    add("--topology", default="2s-4n-smt", choices=qemu.NAMED, help="the machine (default: %(default)s)")
    add("--pci", action="append", default=[], metavar="NODE[:gpu|nic|DEVICE]", help="a PCI device on that node")
    add("--append", default="", metavar="ARGS", help="more kernel arguments, such as 'isolcpus=2,3'")
    add("--share", type=Path, metavar="DIR", help="writable in the guest, at /share")
    add("--timeout", type=float, default=600.0, metavar="S", help="for all of it; a shell has none")
    add("--cmd", help="for bash; without it: a shell")
    return parser


def _run(options: argparse.Namespace) -> int:
    machine = qemu.NAMED[options.topology]
    pci = tuple(qemu.parse_pci(text, machine) for text in options.pci)
    if options.cmd is None and not sys.stdin.isatty():
        raise ValueError("a shell needs a terminal; --cmd gives a command")
    if options.share and not options.share.is_dir():
        raise ValueError(f"--share: there is no folder {options.share}")
    hardware = qemu.Hardware(machine, pci, kernel_arguments=options.append)
    timeout_s = float("inf") if options.cmd is None else options.timeout
    job = guest.Job(options.cmd, Path.cwd(), timeout_s, share=options.share and options.share.resolve())
    return guest.run(hardware, job, sys.stdout.buffer, sys.stderr.buffer)


def _fetch() -> int:
    if not kernel.find():
        print(f"fetching the kernel of guests to {kernel.CACHE}", file=sys.stderr)
        kernel.fetch()
    return os.EX_OK


def main() -> int:
    """Do what the command line says."""
    parser = _parser()
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))  # in order: the guest is ended, too
    if options.list:
        print("\n".join(f"{machine.name:<12} {machine.about}" for machine in qemu.NAMED.values()))
        return os.EX_OK
    try:
        return _fetch() if options.fetch else _run(options)
    except ValueError as error:
        parser.error(str(error))
    except (kernel.GuestError, FetchError) as error:
        print(error, file=sys.stderr)
        return error.status if isinstance(error, kernel.GuestError) else kernel.GuestError.status


if __name__ == "__main__":
    sys.exit(main())
