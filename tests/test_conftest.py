"""The rules of `make test`: nothing skipped in CI, the same examples each time; and the shared facts."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from psutil import pid_exists

from tests.addresses import ports
from tests.conftest import ROOT

PASSES = "def test_one():\n    pass\n"
SKIPS = "import pytest\n\n\n@pytest.mark.skip(reason='no root')\ndef test_two():\n    pass\n"
SKIPS_FILE = "import pytest\n\npytest.importorskip('no_such_module')\n"
FAILS_AS_EXPECTED = "import pytest\n\n\n@pytest.mark.xfail\ndef test_two():\n    assert False\n"
DRAWS = """
import pathlib

from hypothesis import given, strategies

@given(strategies.integers(0, 2**64))
def test_two(number):
    with pathlib.Path('drawn').open('a') as drawn:
        print(number, file=drawn)
"""
THOROUGH = "import pytest\n\n\n@pytest.mark.thorough\ndef test_two():\n    pass\n"
HANGS_UP = """
import os
import signal
import subprocess
import sys

def test_two():
    dies = [sys.executable, '-c', 'import os, signal; os.kill(os.getpid(), signal.SIGHUP)']
    assert subprocess.run(dies, check=False).returncode == -signal.SIGHUP
    os.kill(os.getpid(), signal.SIGHUP)
"""
LEAVES = """
import subprocess

def test_two():
    left = subprocess.Popen(['sleep', '1001'], start_new_session=True)
    del left
    subprocess.run(['sh', '-c', 'setsid sleep 1002 >&- 2>&- &'], check=True)
    subprocess.run(['sh', '-c', 'setsid sleep 0.3 >&- 2>&- &'], check=True)
"""


def run(
    folder: Path, source: str, *options: str, before: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest, without plugins, with our conftest on a passing test and on a file of *source*."""
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_passes.py").write_text(PASSES)
    (folder / "test_source.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CRIPROXY_", "PYTEST_"))}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [*before, sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, cwd=folder, env=kept | environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        pytest.param(SKIPS, (), 1, id="mark"),
        pytest.param(SKIPS_FILE, (), 1, id="whole-file"),
        pytest.param(SKIPS, ("-k", "one"), 1, id="deselected"),
        pytest.param(FAILS_AS_EXPECTED, (), 0, id="expected-failure"),
    ],
)
def test_ci_accepts_no_test_left_out(tmp_path: Path, source: str, options: tuple[str, ...], expected: int) -> None:
    """A run that left a test out fails where CRIPROXY_NO_SKIP is set."""
    assert expected == run(tmp_path, source, *options, CRIPROXY_NO_SKIP="1").returncode


@pytest.mark.parametrize(
    ("options", "same", "count"),
    [pytest.param((), True, 50, id="make-test"), pytest.param(("--thorough",), False, 100, id="rigs")],
)
def test_examples_are_the_same_in_every_run(tmp_path: Path, options: tuple[str, ...], same: bool, count: int) -> None:
    """A commit passes or fails each time; the rigs see others in each run, and more of them."""
    drawn = []
    for attempt in ("first", "second"):
        folder = tmp_path / attempt
        folder.mkdir()
        assert run(folder, DRAWS, *options).returncode == 0
        drawn.append((folder / "drawn").read_text().split())

    assert len(drawn[0]) >= count
    assert (drawn[0] == drawn[1]) is same


def test_what_takes_minutes_is_left_to_the_rigs(tmp_path: Path) -> None:
    """It is not among those that CI counts as left out, and runs beside the others where it is asked for."""
    for options, count in ((), 1), (("--thorough",), 2):
        done = run(tmp_path, THOROUGH, *options, CRIPROXY_NO_SKIP="1")
        assert (done.returncode, re.findall(r"(\d+) passed", done.stdout)) == (0, [str(count)])


def test_a_run_that_no_hangup_ends_starts_programs_that_one_ends(tmp_path: Path) -> None:
    """Under nohup, too, what tests say about signals is about the programs, and the run itself goes on."""
    result = run(tmp_path, HANGS_UP, before=("nohup",))

    assert "2 passed" in result.stdout, result.stdout


def test_processes_that_a_run_leaves_behind_fail_it(tmp_path: Path) -> None:
    """A child and an orphan are named, and ended; what is about to end is waited for."""
    result = run(tmp_path, LEAVES)

    assert result.returncode == 1
    left = re.findall(r"process (\d+) is left: sleep (\d+)", result.stdout)
    assert sorted(seconds for _, seconds in left) == ["1001", "1002"]
    assert not any(pid_exists(int(pid)) for pid, _ in left)


@pytest.mark.parametrize(("first", "last"), [(32768, 60999), (1024, 65535)])
def test_the_ports_of_tests_are_open_to_browsers_and_not_handed_out(first: int, last: int) -> None:
    """Chromium refuses some up to 10080; those that the kernel gives to other programs are the last resort."""
    found = ports(first, last)

    assert found
    assert min(found) > 10_080
    assert max(found) < 65_536
    assert not {*found} & {*range(first, last + 1)} or {*range(10_081, 65_536)} <= {*range(first, last + 1)}
