"""The command line as users type it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from criproxy import __version__
from criproxy.cli import COMMANDS, main
from criproxy.cli.options import LOG_FORMATS, LOG_LEVELS
from criproxy.process import log
from tests.asking import criproxy


def test_the_version() -> None:
    """It is that of the package."""
    result = criproxy("--version")

    assert (result.exit_code, result.output) == (0, f"criproxy, version {__version__}\n")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str) -> None:
    """Each is listed with a sentence, and explains itself and each of its options."""
    listed = criproxy("--help")
    own = criproxy(name, "--help")
    command = main.get_command(None, name)  # type: ignore[arg-type]  # our group needs no context

    assert f"  {name}" in listed.output
    assert (own.exit_code, command is not None and bool(command.help)) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["xyzzy"], "No such command"),
        (["srve"], "Did you mean 'serve'?"),
        (["statsu"], "Did you mean 'status'?"),
        (["status", "--json"], "Did you mean '--format json'?"),
        (["status", "--josn"], "No such option"),
        (["bypass"], "Missing argument"),
        (["bypass", "maybe"], "'maybe' is not one of"),
        (["serve", "--trace-calls"], "requires an argument"),
        (["serve", "--log-level", "loud"], "'loud' is not one of"),
    ],
)
def test_wrong_use(arguments: list[str], said: str) -> None:
    """Exit status 2, and what is wrong on standard error."""
    result = criproxy(*arguments)

    assert result.exit_code == 2
    assert said in result.stderr


def test_commands_are_loaded_when_called() -> None:
    """Asking for the version loads no command and none of the heavy libraries."""
    code = "import sys, criproxy.cli; print([m for m in sys.modules if m.startswith(('criproxy.cli.', 'grpc'))])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        ("criproxy.daemon.serve", "criproxy.api criproxy.devices criproxy.placement google pydantic sqlite3 yaml"),
        ("criproxy.daemon.start", "criproxy.api criproxy.deviceplugin criproxy.devices.options criproxy.install"),
    ],
)
def test_serve_loads_nothing_that_it_may_not_need(module: str, unneeded: str) -> None:
    """No call waits for HTTP, metrics, gRPC, what structlog would load for colours, or what begins after the start."""
    libraries = "aiohttp asyncinotify ctypes grpc prometheus_client psutil rich"
    code = f"import sys, criproxy.process.log, {module}; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = done.stdout.split()
    assert module in loaded
    wrong = tuple(f"{name}." for name in f"{libraries} {unneeded}".split())
    assert [name for name in loaded if f"{name}.".startswith(wrong)] == []


def test_commands_load_rich_only_for_tables() -> None:
    """It takes 60 ms, which JSON and completion at the prompt do without."""
    commands = [module for name, module in COMMANDS.items() if name not in ("top", "topology")]
    code = f"import sys, {', '.join(commands)}; print([name for name in sys.modules if name.startswith('rich')])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_the_choices_of_serve_are_those_of_the_log() -> None:
    """They are written twice, so that --help needs not load the log."""
    assert (LOG_LEVELS, LOG_FORMATS) == (log.LEVELS, log.FORMATS)


@pytest.mark.parametrize("arguments", [["schema"], ["--help"], ["schema", "--help"]], ids=" ".join)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_what_cannot_be_written_is_a_sentence(arguments: list[str], unbuffered: str) -> None:
    """Exit status 1, one line, no traceback, on a disk that is full."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "criproxy", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )

    assert (done.returncode, done.stderr) == (1, "Error: No space left on device\n")


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says, and of which file."""

    def failing(**_: object) -> None:
        raise PermissionError(13, "Permission denied", "/etc/secret")

    monkeypatch.setattr(main.get_command(None, "schema"), "callback", failing)  # type: ignore[arg-type]

    result = criproxy("schema")

    assert (result.exit_code, result.stderr) == (1, "Error: Permission denied: /etc/secret\n")


def test_who_reads_no_more_ends_it_quietly() -> None:
    """``criproxy schema | head -1`` says nothing of its pipe."""
    code = "import sys, subprocess; p = subprocess.Popen([sys.executable, '-m', 'criproxy', 'schema'], stdout=-1); "
    code += "p.stdout.close(); sys.exit(p.wait())"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *(
            (command, "--state-dir")
            for command in ("serve", "status", "explain x", "devices", "release", "bypass status")
        ),
        *((command, "--host-root") for command in ("serve", "status", "check x")),
        ("serve", "--config"),
        ("devices", "--config"),
        *((command, name) for command, name in (("check", "FILE|DIR..."), ("simulate", "FILE"), ("record", "FILE"))),
    ],
)
def test_an_empty_place_is_wrong_use(command: str, option: str) -> None:
    """It is a variable of a script that is not set, and no name of the working directory."""
    result = criproxy(*command.split(), *([option] if option.startswith("-") else []), "")

    assert result.exit_code == 2
    assert f"Invalid value for '{option}': must not be empty" in result.output


@pytest.mark.parametrize("columns", ["0", ""])
def test_a_terminal_without_a_width_shows_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """As where no width is said."""
    command = ["devices", "--control-socket", str(tmp_path / "control.sock"), "--state-dir", str(tmp_path)]
    command += ["--host-root", str(tmp_path)]  # other tests make cards of this machine
    usual = criproxy(*command)
    monkeypatch.setenv("COLUMNS", columns)

    result = criproxy(*command)

    assert result.stdout == usual.stdout != ""


@pytest.mark.parametrize("command", ["status --check", "explain x", "devices", "bypass status"])
def test_who_may_not_read_the_state_hears_of_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The default folder is closed to all but root: that it cannot be read is no wrong use of an option."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    where = ["--control-socket", str(tmp_path / "control.sock"), "--state-dir", str(tmp_path)]
    result = criproxy(*command.split(), *where)

    assert result.exit_code == (0 if command == "devices" else 1)
    assert "no criproxy daemon listens on" in result.output


@pytest.mark.parametrize("command", ["status", "events", "explain x", "who 0", "top --once"])
def test_an_unreadable_state_is_no_exception_text(tmp_path: Path, command: str) -> None:
    """The system's reason is given in words, without its number, and the path only once."""
    (tmp_path / "criproxy.db").mkdir()
    where = ["--control-socket", str(tmp_path / "control.sock"), "--state-dir", str(tmp_path)]
    result = criproxy(*command.split(), *where)

    assert result.exit_code == (0 if command == "top --once" else 1)
    assert f"; the state database {tmp_path}/criproxy.db cannot be read: Is a directory" in result.output
    assert "Errno" not in result.output


def test_an_interrupt_while_the_program_is_imported_shows_no_traceback() -> None:
    """Whoever presses Ctrl-C right after Enter reads what they would read later."""
    program = """
import sys

class Interrupted:
    def find_spec(self, name, path, target=None):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
from criproxy.__main__ import run
run()
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout, result.stderr) == (1, "", "\nAborted!\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_fail_no_command(closed: str) -> None:
    """What a script has closed takes no text, and the exit status tells all the same."""
    command = f'exec "{sys.executable}" -m criproxy topology {closed}'
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stderr) == (0, "")
