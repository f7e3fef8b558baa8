"""One command, or a shell, in a throw-away Linux guest with NUMA nodes of your choice.

    python -m lab.vm --list
    python -m lab.vm --topology 2s-4n-smt                      # a shell
    python -m lab.vm --topology 4s-8n --cmd 'lscpu; .venv/bin/criproxy topology'
    python -m lab.vm --topology custom --smp sockets=2,cores=3 --node 512:0-5 --node 256:-:pmem --cmd …

All that is installed on this machine is there, with cgroup v2; what the command writes goes with the guest, except
below a --share. Exit status: the command's own; 124 when its time was over; 125 if the guest did not get to its end;
2 for wrong use.
"""

import argparse
import os
import shlex
import signal
import sys
from pathlib import Path

from lab.vm import guest, kernel, machines, qemu

_TIMED_OUT, _NOT_RUN = 124, 125


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.vm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--list", action="store_true", help="print the named machines")
    add("--fetch", action="store_true", help="fetch the guests' kernel if it is missing, and run nothing")
    add("--topology", default="2s-4n-smt", metavar="NAME|custom", help="the machine (default: %(default)s)")
    add("--smp", default="", help="custom: sockets=N,dies=N,cores=N,threads=N")
    add("--node", action="append", default=[], metavar="MIB[:CPUS[:pmem]]", help="custom: one for each node, in order")
    add("--dist", default="", metavar="ROWS", help="custom: distances such as '10,21;21,10'")
    add("--pci", action="append", default=[], metavar="NODE[:gpu|nic|DEVICE]", help="a PCI device on that node")
    add("--append", default="", metavar="ARGS", help="more kernel arguments, such as 'isolcpus=2,3'")
    add("--modules", default="", metavar="A,B", help="more kernel modules")
    add("--share", action="append", default=[], metavar="DIR[:PLACE]", help="writable in the guest (at /share)")
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="for the command")
    add("--systemd", action="store_true", help="systemd is the first process, with the command as its only service")
    add("--accel", choices=("auto", "kvm", "tcg"), default="auto", help="default: KVM where it works")
    add(
        "--timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="for all of it (default: %(default)g); a shell has none",
    )
    add("--cmd", help="for bash; neither this nor WORDS: a shell")
    add("words", nargs="*", metavar="WORDS", help="the command as words, behind --")
    return parser


def _hardware(options: argparse.Namespace) -> qemu.Hardware:
    if options.topology == "custom":
        machine = machines.custom(options.smp, options.node, options.dist)
    else:
        machine = machines.named(options.topology)
    pci = tuple(qemu.parse_pci(text, machine) for text in options.pci)
    accelerator = qemu.accelerator() if options.accel == "auto" else options.accel
    return qemu.Hardware(machine, pci, kernel_arguments=options.append, accelerator=accelerator)


def _job(options: argparse.Namespace) -> guest.Job:
    if options.cmd and options.words:
        raise machines.UsageError("--cmd and words behind -- are two ways to say the same: give one")
    command = options.cmd or shlex.join(options.words) or None
    if command is None and not sys.stdin.isatty():
        raise machines.UsageError("a shell needs a terminal; --cmd gives a command")
    environment = dict(text.partition("=")[::2] for text in options.env)
    if not all(name.isidentifier() for name in environment):
        raise machines.UsageError("--env: NAME=VALUE")
    return guest.Job(
        command=command,
        directory=Path.cwd(),
        timeout_s=options.timeout if command else float("inf"),
        shares=dict(_parse_share(text) for text in options.share),
        environment=environment,
        systemd=options.systemd,
        modules=tuple(filter(None, options.modules.split(","))),
    )


def _parse_share(text: str) -> tuple[Path, str]:
    folder, _, place = text.partition(":")
    place = place or "/share"
    if not place.startswith("/") or len(place.split()) != 1:
        raise machines.UsageError(f"--share: {place!r} is no absolute path without blanks")
    if not Path(folder).is_dir():
        raise machines.UsageError(f"--share: there is no folder {folder}")
    return Path(folder).resolve(), place


def _fetch() -> int:
    if not kernel.find(kernel.cache_directory()):
        print(f"fetching the kernel of guests to {kernel.cache_directory()}", file=sys.stderr)
        kernel.fetch(kernel.cache_directory())
    return os.EX_OK


def main() -> int:
    """Do what the command line says."""
    options = _parser().parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))  # in order: the guest is ended, too
    if options.list:
        print("\n".join(f"{machine.name:<12} {machine.about}" for machine in machines.NAMED.values()))
        return os.EX_OK
    try:
        if options.fetch:
            return _fetch()
        return guest.run(_hardware(options), _job(options), sys.stdout.buffer, sys.stderr.buffer).status
    except machines.UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except guest.GuestTimeoutError as error:
        print(error, file=sys.stderr)
        return _TIMED_OUT
    except kernel.GuestError as error:
        print(error, file=sys.stderr)
        return _NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
