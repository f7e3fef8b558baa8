"""What every test may use, and the rules of a run: no test is skipped in CI, and no process is left."""

import asyncio
import os
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

from criproxy.process.tasks import Tasks
from tests import gates

ROOT = Path(__file__).resolve().parent.parent

for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # which Python ignores, but children do not
    if signal.getsignal(number) is signal.SIG_IGN:  # under nohup, or in a shell's background; children would, too
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else lambda *_: None)
os.environ.pop("COLUMNS", None)  # how wide the terminal is in which they run is no part of what tests claim
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of hundreds of processes would compile all that it imports
sys.dont_write_bytecode = False
os.umask(0o022)  # policy files that tests write must not be writable by a group

_RUN = "CRIPROXY_TEST_RUN"
os.environ[_RUN] = f"{os.getpid()} since {psutil.Process().create_time()}"  # in the environment of all that it starts
_END_S = 5.0
"""How long processes may take to end that tests have killed, or whose parents have ended."""

_left_out: list[str] = []
_left_running: list[str] = []


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Return the folder of shared facts: CRIPROXY_SHARED, else ``shared`` beside the repository; skip without one."""
    path = Path(os.environ.get("CRIPROXY_SHARED") or ROOT.parent / "shared")
    if not (path / "reference").is_dir():
        pytest.skip(f"no shared facts at {path} (CRIPROXY_SHARED names another place)")
    return path


@pytest.fixture(autouse=True)
def _no_word_of_closed_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep from a test what calls of an earlier test left behind.

    gRPC has one poller for all event loops of a process. A call whose loop was closed before its end makes a callback
    fail in the loop of a later test; in a daemon, which has one loop, that cannot be.
    """
    unhandled = Tasks._unhandled

    def told(self: Tasks, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        closed = str(context.get("exception")) == "Event loop is closed"
        if not closed or "PollerCompletionQueue" not in f"{context.get('message')} {context.get('handle')}":
            unhandled(self, loop, context)

    monkeypatch.setattr(Tasks, "_unhandled", told)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which the tests marked ``chance`` run."""
    parser.addoption("--chance", action="store_true", help="run only the tests whose verdict needs luck (make chaos)")
    parser.addoption(
        "--thorough",
        action="store_true",
        help="also what takes minutes, and other examples each time (make thorough, vm)",
    )
    parser.addoption("--runtime", metavar="NAME", help="the one containerd for tests/e2e, such as 2 (make runtimes)")


def pytest_configure(config: pytest.Config) -> None:
    """Choose hypothesis' examples: the same in every run, so that a commit passes always or never; thorough, others."""
    kind, count = ("default", 100) if config.getoption("--thorough") else ("ci", 50)
    parent = settings.get_profile(kind)
    settings.register_profile("criproxy", parent, deadline=None, max_examples=count)  # a busy machine is no failure
    settings.load_profile("criproxy")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what needs luck or minutes out of every run that does not ask for it: that belongs to the rigs."""
    chance, thorough = bool(config.getoption("--chance")), bool(config.getoption("--thorough"))
    items[:] = [item for item in items if (item.get_closest_marker("chance") is not None) == chance]
    items[:] = [item for item in items if thorough or item.get_closest_marker("thorough") is None]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Let the threads that a test holds up go on when it has ended: its event loop waits for them when it is closed."""
    try:
        return (yield)
    finally:
        gates.open_all()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note skipped tests; an expected failure is none."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _left_out.append(f"skipped {report.nodeid}")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note files that were skipped as a whole."""
    if report.skipped:
        _left_out.append(f"skipped {report.nodeid}")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Note tests that an option left out."""
    _left_out.extend(f"deselected {item.nodeid}" for item in items)


def _running() -> list[psutil.Process]:
    """Processes of this run, wherever they are now: those that have its variable, and children without it."""
    found = {*psutil.Process().children(recursive=True), *filter(_is_ours, psutil.process_iter())}
    return [each for each in found - {psutil.Process()} if not _is_over_or_tracker(each)]


def _is_ours(process: psutil.Process) -> bool:
    try:
        return process.environ().get(_RUN) == os.environ[_RUN]
    except psutil.Error:
        return False  # it has ended, or is another user's


def _is_over_or_tracker(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE or "resource_tracker" in " ".join(process.cmdline())
    except psutil.Error:
        return True


def _end_processes() -> None:
    """End what runs after the last test, and note it."""
    _, left = psutil.wait_procs(_running(), timeout=_END_S)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            _left_running.append(f"process {process.pid} is left: {' '.join(process.cmdline())}")
            process.kill()
    psutil.wait_procs(left, timeout=_END_S)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that left processes running, or tests out where CRIPROXY_NO_SKIP is set."""
    _end_processes()
    if _left_running and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if os.environ.get("CRIPROXY_NO_SKIP") and _left_out and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if hasattr(session.config, "workeroutput"):  # this is a worker of pytest-xdist, whose verdict is not heard
        session.config.workeroutput["left running"] = _left_running


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ANN401 (of pytest-xdist)
    """Note what a worker of pytest-xdist has found running at its end."""
    _left_running.extend(getattr(node, "workeroutput", {}).get("left running", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what still ran, and what was left out, and that CI does not accept it."""
    if _left_running:
        terminalreporter.section("processes that tests started still ran, the run fails", red=True)
        for line in _left_running:
            terminalreporter.line(line)
    if os.environ.get("CRIPROXY_NO_SKIP") and _left_out:
        terminalreporter.section(f"CRIPROXY_NO_SKIP is set: {len(_left_out)} not run, the run fails", red=True)
        for line in _left_out:
            terminalreporter.line(line)
