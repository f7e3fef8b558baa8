"""Policy files are read, and every mistake is named with its place."""

import subprocess
import sys
from pathlib import Path

import pytest

from criproxy.config import Settings, load
from criproxy.errors import ConfigError
from criproxy.model.cpuset import parse_cpuset
from criproxy.placement.options.usable import AvailableCpus, HostReader
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.policies.static import StaticPolicy
from criproxy.simulate.hosts import machine
from tests.config.files import told, write

FOUR_CPUS = machine(nodes=1, cores=2, threads=2, allowed=frozenset({0, 1, 2}))


def read(tmp_path: Path, text: str) -> Settings:
    """The settings of a file with this text."""
    return load(write(tmp_path / "p.yaml", text), "node1")


def test_a_full_file(tmp_path: Path) -> None:
    """All options arrive, and the policy can be built."""
    settings = read(tmp_path, 'policy: static\nreservedCpus: "0-1,8"\nonError: refuse\n')

    assert (settings.common.policy, settings.common.on_error) == ("static", "refuse")
    assert settings.options.reserved_cpus == {0, 1, 8}
    assert settings.source == tmp_path / "p.yaml"
    assert isinstance(settings.build_policy(), StaticPolicy)


def test_defaults(tmp_path: Path) -> None:
    """Only the policy must be named."""
    settings = read(tmp_path, "\ufeffpolicy: none\n")

    assert settings.values() == {
        "policy": "none",
        "onError": "shared",
        "adopt": "pin",
        "promote": None,
        "apply": "new",
        "devices": None,
        "reservedCpus": "",
        "cpuQuota": "keep",
        "annotations": {"allow": {}, "deny": {}},
        "rules": "nri",
        "availableResources": {"cpu": None},
        "reservedResources": {"cpu": None},
        "memoryTypes": ["dram", "pmem", "hbm"],
    }
    assert settings.explicit() == {"policy"}
    assert isinstance(settings.build_policy(), NonePolicy)


def test_a_digest_says_whether_two_files_mean_the_same(tmp_path: Path) -> None:
    """Comments, order and notation do not count, and neither do defaults of another version; everything said does."""
    first = read(tmp_path, 'policy: static\nreservedCpus: "0-1"\n').digest()

    assert read(tmp_path, "# a comment\nreservedCpus: [1, 0]\npolicy: 'static'\n").digest() == first
    for other in (
        "policy: static",
        'policy: static\nreservedCpus: "0-1"\napply: all',
        'policy: static\nreservedCpus: "0"',
    ):
        assert read(tmp_path, other).digest() != first


@pytest.mark.parametrize(
    ("written", "cpus"),
    [
        pytest.param("0", {0}, id="number"),
        pytest.param("0-1", {0, 1}, id="plain-text"),
        pytest.param('"0,2"', {0, 2}, id="quoted"),
        pytest.param("[0, 3]", {0, 3}, id="list"),
        pytest.param('""', set(), id="empty"),
    ],
)
def test_ways_to_write_cpus(tmp_path: Path, written: str, cpus: set[int]) -> None:
    """CPUs are a text in kernel notation, a number or a list of numbers."""
    assert read(tmp_path, f"policy: static\nreservedCpus: {written}\n").options.reserved_cpus == cpus


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    """Nobody has to run a check once per mistake: they come together, in the order of the file."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "reservedCpus: x\nonError: maybe\npolicy: static\nextra: 1\nextra: 2\n")

    places = [line.removeprefix(f"{tmp_path}/p.yaml:").split(": ")[0] for line in str(caught.value).splitlines()]
    assert places == ["1:15", "2:10", "4:1", "5:1"]


def test_very_many_mistakes(tmp_path: Path) -> None:
    """Of thousands the first fifty are told, and how many follow."""
    lines = told(tmp_path, "policy: none\n" + "".join(f"k{i}: 1\n" for i in range(5000)))

    assert (len(lines), lines[0]) == (51, "2:1: unknown option 'k0'")
    assert lines[-1] == "52:1: 4950 more mistakes here and below"


def test_a_mistake_is_one_short_line(tmp_path: Path) -> None:
    """What a message quotes can neither break the line, nor steer a terminal, nor fill it."""
    lines = told(tmp_path, 'policy: none\n"a\\nb\\e[31m": 1\n' + "x" * 900 + ": 1\n")

    assert lines[0] == r"2:1: unknown option 'a\nb\x1b[31m'"
    assert len(lines[1]) < 450


@pytest.mark.parametrize(
    ("cpus", "said"),
    [
        pytest.param("0-1", [], id="fits"),
        pytest.param(
            "0,7", ["2:15: reservedCpus: CPU 7 is not online in this machine, which has 0-3"], id="does-not-exist"
        ),
        pytest.param("2-3", ["2:15: reservedCpus: CPU 3 is not for pods: their cgroup allows 0-2"], id="not-for-pods"),
        pytest.param(
            "0-2", ["2:15: reservedCpus: reserves every CPU that pods may use (0-2): leave at least one"], id="all"
        ),
        pytest.param(
            "0-9",
            [
                "2:15: reservedCpus: CPU 3 is not for pods: their cgroup allows 0-2",
                "2:15: reservedCpus: CPUs 4-9 are not online in this machine, which has 0-3",
                "2:15: reservedCpus: reserves every CPU that pods may use (0-2): leave at least one",
            ],
            id="everything",
        ),
    ],
)
def test_against_a_machine(tmp_path: Path, cpus: str, said: list[str]) -> None:
    """What a machine has not is a mistake, with what it has; without a machine it is none."""
    text = f'policy: static\nreservedCpus: "{cpus}"\n'

    assert (told(tmp_path, text, FOUR_CPUS), told(tmp_path, text)) == (said, [])


def test_machine_and_file_together(tmp_path: Path) -> None:
    """A mistake elsewhere in the file does not hide what the machine has not."""
    lines = told(tmp_path, "policy: static\nreservedCpus: 9\nonError: no\n", FOUR_CPUS)

    assert [line[:4] for line in lines] == ["2:15", "3:10"]


def test_a_cgroup_says_what_is_available(tmp_path: Path) -> None:
    """Its CPUs are read with the file; other CPUs in it are another configuration."""
    file = write(tmp_path / "p.yaml", "policy: static\navailableResources: {cpu: /pods}\n")
    said = iter(map(parse_cpuset, ("1-2", "1-3", "1-2")))
    loaded = [load(file, "node1", host=HostReader(lambda path: next(said))) for _ in range(3)]

    assert [settings.options.available_resources.cpu for settings in loaded] == [
        AvailableCpus("/pods", parse_cpuset(cpus)) for cpus in ("1-2", "1-3", "1-2")
    ]
    assert len({settings.digest() for settings in loaded}) == 2


def test_contradictions_need_no_machine(tmp_path: Path) -> None:
    """What no machine can give is a mistake with its place in the file alone."""
    text = "policy: static\navailableResources: {cpu: 'cpuset:4-7'}\nreservedResources:\n  cpu: cpuset:3-4\n"

    assert told(tmp_path, text) == [
        "4:8: reservedResources.cpu: CPU 3 is not among the available ones, 4-7",
    ]


@pytest.mark.parametrize(("section", "imported"), [("", False), ("devices:\n", False), ("devices: {}\n", True)])
def test_models_of_devices_are_imported_where_a_file_needs_them(tmp_path: Path, section: str, imported: bool) -> None:
    """They take a tenth of the time until a daemon places its first container."""
    path = write(tmp_path / "policy.yaml", f"policy: none\n{section}")
    program = (
        "import sys, pathlib, criproxy.daemon.start; from criproxy.config.load import load\n"
        f"load(pathlib.Path({str(path)!r}), 'any')\n"
        "print(any(name.startswith('criproxy.devices.options') for name in sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == f"{imported}\n"


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        pytest.param("policy: topology-aware\n", False, id="none"),
        pytest.param("policy: static\nclasses: {a: {irq: away}}\n", True, id="classes"),
        pytest.param("policy: balloons\nballoonTypes: [{name: a, cpuClass: b}]\n", True, id="of-nri-plugins"),
    ],
)
def test_models_of_classes_are_imported_where_a_file_needs_them(tmp_path: Path, text: str, imported: bool) -> None:
    """A start without classes is not slower."""
    path = write(tmp_path / "policy.yaml", text)
    program = (
        "import sys, pathlib, criproxy.daemon.start; from criproxy.config.load import load\n"
        f"load(pathlib.Path({str(path)!r}), 'any')\n"
        "print(any(name.startswith('criproxy.placement.classes') for name in sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == f"{imported}\n"
