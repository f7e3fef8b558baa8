"""Notices which processes have exited, by a pidfd of each: one system call for all of them.

A pidfd stays with its process: if another process gets the PID, the pidfd says that the first one has exited.
"""

import os
import resource
import select

MOST = 1024
"""How many processes are kept at most, if the limit of open files permits it."""
_SHARE = 4
"""One of so many files that may be open is a pidfd at most: the process needs others."""


class Pidfds:
    """The pidfds of the processes that are kept; without pidfds (Linux before 5.3), none is.

    Only one thread at a time may use an object.
    """

    def __init__(self) -> None:
        self._by_pid: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._epoll: select.epoll | None = None
        self._most = min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE)

    def __del__(self) -> None:
        """Close all: a class that is not watched any more needs none."""
        for descriptor in self._pids:
            os.close(descriptor)

    def keep(self, pid: int) -> bool:
        """Notice from now on when the process that has this PID now exits; return whether that is possible."""
        if pid in self._by_pid:
            return True
        if len(self._by_pid) >= self._most:
            return False
        try:
            self._epoll = self._epoll or select.epoll()
            descriptor = os.pidfd_open(pid)
        except OSError:
            return False
        self._by_pid[pid], self._pids[descriptor] = descriptor, pid
        try:
            self._epoll.register(descriptor, select.EPOLLIN)
        except OSError:
            self.drop(pid)
            return False
        return True

    def drop(self, pid: int) -> None:
        """Do not notice the exit of a process any more."""
        descriptor = self._by_pid.pop(pid, None)
        if descriptor is not None:
            del self._pids[descriptor]
            os.close(descriptor)

    def exited(self) -> list[int]:
        """Return the PIDs of the processes that have exited since the last call; they are not kept any more."""
        found = self._epoll.poll(0, self._most) if self._by_pid and self._epoll else ()
        pids = [self._pids[descriptor] for descriptor, _ in found]
        for pid in pids:
            self.drop(pid)
        return pids
