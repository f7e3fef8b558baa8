"""``criproxy simulate`` with policies of other packages that are wrong: a sentence, and no traceback."""

from pathlib import Path

import pytest

from tests.cli.offline.test_simulate import simulate
from tests.config.files import write
from tests.config.packages import install

SPEC = """
machine: 1s/2n/4c/2t
duration: 5m
every: 5s
pods: [{pod: web, ns: shop, qos: burstable, cpu_req: 250m, lifetime: 1m}]
"""
CASES = """
topologies: {two: {threads: none, nodes: {0: {cpus: 0-3, mem: 2G}, 1: {cpus: 4-7, mem: 2G}}}}
vectors:
  - {id: one, topology: two, policy: static, steps: [{create: {pod: p, qos: besteffort}}]}
"""
CODE = """
from criproxy.model.grant import Change, Grant
from criproxy.placement.policies import Entry
from criproxy.placement.policies.static import StaticOptions, StaticPolicy


class Raising(StaticPolicy):
    def place(self, node, container):
        return node.grants["nobody"]


class Careless(StaticPolicy):
    def place(self, node, container):
        one = frozenset({1})
        return Change({container.key: Grant(one, node.topology.mems, exclusive=one)})


class Stubborn(StaticPolicy):
    def release(self, node, left):
        raise RuntimeError("who was that?")


class Unmade(StaticPolicy):
    def __init__(self, options):
        raise OSError("no such file")


raising, careless, stubborn, unmade = (Entry(StaticOptions, kind) for kind in (Raising, Careless, Stubborn, Unmade))
"""
NAMES = ("raising", "careless", "stubborn", "unmade")


@pytest.fixture(autouse=True)
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the policies, and return the folder with a file for each and a load."""
    install(tmp_path, monkeypatch, CODE, points="\n".join(f"{name} = wild:{name}" for name in NAMES), name="wild")
    for name in NAMES:
        write(tmp_path / "files" / f"my-{name}.yaml", f"policy: {name}\n")
    (tmp_path / "files/load.yaml").write_text(SPEC)
    (tmp_path / "files/cases.yaml").write_text(CASES)
    return tmp_path / "files"


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("raising", "at ContainerCreating of shop/web-1/webc0: KeyError in {wild}:9: 'nobody'"),
        ("careless", "at ContainerCreating of shop/web-2/webc0: its placement is broken: CPU 1 is exclusive to both"),
        ("stubborn", "at PodStopped of shop/web-2: RuntimeError in {wild}:20: who was that?"),
    ],
)
def test_a_policy_that_fails_under_a_load(strangers: Path, policy: str, said: str) -> None:
    """Which one, at what moment and at whose request, on one line; exit status 1."""
    options = ("--policy", strangers / f"my-{policy}.yaml")

    result = simulate("--load", strangers / "load.yaml", *options)

    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: the policy 'my-{policy}' is at fault ")
    assert f" s after the beginning, {said.format(wild=strangers.parent / 'wild/wild.py')}" in line


def test_a_policy_that_cannot_be_made(strangers: Path) -> None:
    """With its file and what its code raised: it is judged before anything is played."""
    file = strangers / "my-unmade.yaml"
    said = f"{file}: the policy 'unmade' cannot be built from these options: OSError('no such file')"

    loaded = simulate("--load", strangers / "load.yaml", "--policy", file)
    case = simulate(strangers / "cases.yaml", "--policy", file)

    assert (loaded.exit_code, loaded.stderr) == (2, f"Error: {said}\n")
    assert (case.exit_code, case.stderr) == (2, f"Error: {said}\n")
