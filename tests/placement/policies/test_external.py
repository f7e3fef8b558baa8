"""A policy package from a folder is installed, checked, placed by and served like ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from criproxy.config.settings import find
from criproxy.simulate.hosts import machine
from tests.config.files import write
from tests.conftest import ROOT
from tests.placement.policies.example import FOLDER, install

MACHINE = machine(nodes=1, cores=4, threads=1)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder to import the example from."""
    return install(tmp_path_factory.mktemp("example"))


@pytest.fixture
def installed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process import the example."""
    monkeypatch.syspath_prepend(packages)


def criproxy(packages: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command of criproxy in an environment that has the example."""
    environ = {**os.environ, "PYTHONPATH": f"{packages}:{ROOT}"}
    command = [sys.executable, "-m", "criproxy", *map(str, arguments)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        pytest.param("policy: quiet\nbatchCpus: '0'\n", 0, "quiet", id="good"),
        pytest.param(
            "policy: quiet\nbatchCpu: '0'\n", 1, "unknown option 'batchCpu'; did you mean 'batchCpus'?", id="typo"
        ),
    ],
)
def test_its_policy_files_are_checked(packages: Path, tmp_path: Path, text: str, status: int, said: str) -> None:
    """`criproxy check` knows its options as if they were ours."""
    done = criproxy(packages, "check", write(tmp_path / "policy.yaml", text))

    assert done.returncode == status, done.stderr
    assert said in done.stdout + done.stderr


def test_its_scenarios_run_as_the_tutorial_says(packages: Path) -> None:
    """`criproxy simulate` runs the cases beside it; docs/policies/external.md shows the first and the output."""
    page, file = (ROOT / "docs/policies/external.md").read_text(), FOLDER / "scenario.yaml"
    done = criproxy(packages, "simulate", file, "--verbose")
    first = file.read_text().partition("vectors:\n")[2].partition("  - id: another-file")[0]

    assert done.returncode == 0, done.stdout + done.stderr
    assert "".join(f"    {line}\n" for line in done.stdout.splitlines()) in page
    assert f"```yaml\n{first}```" in page


@pytest.mark.usefixtures("installed")
def test_what_it_asks_of_the_machine_is_checked(tmp_path: Path) -> None:
    """Someone has to be left a CPU."""
    options = find("quiet").options.model_validate({"batchCpus": "0-3"})

    assert [misfit.text for misfit in options.misfits(MACHINE)] == [
        "takes every CPU that pods may use (0-3): leave at least one"
    ]
