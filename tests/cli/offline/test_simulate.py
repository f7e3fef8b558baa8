"""``criproxy simulate`` as users type it."""

import json
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import Result

from criproxy.cli import main
from criproxy.placement.policies.static import StaticPolicy
from criproxy.simulate.hosts import machine
from tests.asking import criproxy
from tests.sysfs import write_sysfs

CASES = """
topologies:
  two: {threads: consecutive, nodes: {0: {cpus: 0-3, mem: 2G}, 1: {cpus: 4-7, mem: 2G}}}
vectors:
  - id: fits
    title: it fits
    applies: [crirm, nri]
    topology: two
    policy: static
    config: {reserved: "cpuset:0"}
    steps:
      - create: {pod: p, qos: guaranteed, cpu: 2}
      - expect: [{c: pc0, cpus: 2-3}]
  - id: does-not
    topology: two
    policy: static
    steps:
      - create: {pod: p}
      - expect: [{c: pc0, cpus: 0-3}]
  - {id: function, kind: unit, call: best_pool}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one case that is as expected, one that is not and one that is for tests."""
    path = tmp_path / "cases.yaml"
    path.write_text(CASES)
    return path


def simulate(*arguments: object) -> Result:
    """What the command says."""
    return criproxy("simulate", *arguments)


def test_a_line_for_each_case(file: Path) -> None:
    """How it went by each of its rules, the first thing that is not as expected, and who is where; exit status 1."""
    result = simulate(file)

    assert result.exit_code == 1
    assert result.stdout == (
        "fits      crirm  ok     | pc0 2-3! m0\n"
        "fits      nri    ok     | pc0 2-3! m0\n"
        "does-not  nri    FAILED  line 19: pc0: cpus should be 0-3, are 0-7 | pc0 0-7 m0-1\n"
        "function  -      unit    it is about a single function: for tests\n"
        "2 ok, 1 FAILED, 1 unit\n"
    )


def test_some_cases(file: Path) -> None:
    """Those that are named; exit status 0 where all is as expected."""
    result = simulate(file, "fits")

    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "2 ok, 0 FAILED")


def test_json(file: Path) -> None:
    """The same for programs, with the reasons if they are wanted."""
    plain = json.loads(simulate(file, "--format", "json").stdout)
    told = json.loads(simulate(file, "fits", "--format", "json", "--verbose").stdout)

    assert (plain["ok"], plain["failed"], len(plain["cases"])) == (False, 1, 4)
    assert plain["cases"][0]["placement"] == {"pc0": {"cpus": "2-3", "own": "2-3", "mems": "0", "pool": ""}}
    assert plain["cases"][2]["failure"] == {"line": 19, "text": "pc0: cpus should be 0-3, are 0-7"}
    assert [case["status"] for case in plain["cases"]] == ["ok", "ok", "failed", "unit"]
    assert told["cases"][0]["reasons"][0]["line"] == 12
    assert "gets exclusive CPUs 2-3" in told["cases"][0]["reasons"][0]["text"]


def test_the_reasons(file: Path) -> None:
    """What the policy said at which line, below each case."""
    lines = simulate(file, "fits", "-v").stdout.splitlines()

    assert lines[1].startswith("    line 12: default/p/pc0 gets exclusive CPUs 2-3: its pod is Guaranteed")


def test_another_machine(file: Path, tmp_path: Path) -> None:
    """Of a shape, or copied from a host; expectations may fail then."""
    write_sysfs(tmp_path / "host", machine(nodes=1, cores=2, threads=1))

    shaped = simulate(file, "does-not", "--machine", "1s/1n/2c/2t")
    copied = simulate(file, "does-not", "--host-root", tmp_path / "host")

    assert (shaped.exit_code, shaped.stdout.splitlines()[0][-10:]) == (0, "pc0 0-3 m0")
    assert "pc0: cpus should be 0-3, are 0-1" in copied.stdout


def test_another_policy(file: Path, tmp_path: Path) -> None:
    """Every case is run once by that of the file."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("policy: none\n")

    result = simulate(file, "fits", "--policy", policy)

    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith("fits  nri    FAILED  line 13: pc0: cpus should be 2-3, are 0-7")


def test_a_policy_that_does_not_fit_the_machine(file: Path, tmp_path: Path) -> None:
    """The case fails with the place in the policy file."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("policy: static\nreservedCpus: 90\n")

    result = simulate(file, "fits", "--policy", policy)

    assert (result.exit_code, result.stderr) == (1, "")
    assert f"the policy does not start: {policy}:2:15: reservedCpus: CPU 90 is not online" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.yaml"], "missing.yaml: there is no such file"),
        (["FILE", "fit"], "has no case 'fit'; did you mean 'fits'?"),
        (["FILE", "--machine", "big"], "must be a shape such as 2s/4n/16c/2t"),
        (["FILE", "--machine", ""], "must be a shape such as 2s/4n/16c/2t"),
        (["FILE", "--machine", "1s/1n/1c/1t", "--host-root", "/"], "use one of them"),
        (["FILE", "--policy", "FILE"], "unknown option 'vectors'"),
        (["FILE", "--host-root", "FILE"], "is not a host root"),
        (["FILE", "--host-root", "nowhere"], "does not exist"),
    ],
)
def test_wrong_use(file: Path, arguments: list[str], said: str) -> None:
    """Exit status 2, and a sentence."""
    result = simulate(*(str(file) if word == "FILE" else word for word in arguments))

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_bad_file(file: Path) -> None:
    """Exit status 2, and every mistake with its line; cases without one are run all the same."""
    file.write_text(
        CASES.replace("cpus: 2-3", "cpu: 2-3").replace("two, nodes", "too").replace("- create: {pod: p}", "- x")
    )

    result = simulate(file)

    assert result.exit_code == 2
    assert f"{file}:13:" in result.stderr
    assert "there is no assertion 'cpu'; did you mean 'cpus'?" in result.stderr
    assert f"{file}:18:" in result.stderr
    assert result.stdout.splitlines() == [
        "function  -      unit    it is about a single function: for tests",
        "0 ok, 0 FAILED, 1 unit, 2 not read: see above",
    ]
    told = json.loads(simulate(file, "--format", "json").stdout)
    assert (told["ok"], [mistake["line"] for mistake in told["mistakes"]]) == (False, [13, 18])


@pytest.mark.parametrize(("begun", "ids"), [("", ["fits", "does-not", "function"]), ("f", ["fits", "function"])])
def test_ids_are_completed(file: Path, begun: str, ids: list[str]) -> None:
    """By those of the file; by nothing where it cannot be read."""
    complete = ShellComplete(main, {}, "criproxy", "_CRIPROXY_COMPLETE")

    assert [item.value for item in complete.get_completions(["simulate", str(file)], begun)] == ids
    assert not complete.get_completions(["simulate", "missing.yaml"], begun)


REFUSED = """
vectors:
  - id: crowded
    topology: {nodes: {0: {cpus: 0-3, mem: 2G}, 1: {cpus: 4-7, mem: 2G}}, threads: none}
    policy: topology-aware
    config: {reserved: "cpuset:0"}
    steps:
      - create: {pod: one, qos: guaranteed, cpu: 4, mem: 1Gi}
      - create: {pod: two, qos: guaranteed, cpu: 2, mem: 1Gi}
      - create: {pod: three, qos: guaranteed, cpu: 3, mem: 1Gi, expect: error}
"""


def test_each_decision_can_be_explained(tmp_path: Path) -> None:
    """With --explain the candidates of each, by the line that asked for it, and who is in the way of a refused one."""
    path = tmp_path / "crowded.yaml"
    path.write_text(REFUSED)
    result = simulate(path, "--explain")
    (case,) = json.loads(simulate(path, "--explain", "--format", "json").stdout)["cases"]

    assert result.exit_code == 0
    assert "\nline 8: default/one/onec0\n\nHow the pools compared when it was placed\n" in result.stdout
    assert "  the machine  lacks 2 CPUs\n" in result.stdout
    assert "\n  default/two/twoc0\n  it would fit without this container; no shorter list makes room\n" in result.stdout
    assert [(each["line"], each["decision"]) for each in case["choices"]] == [
        *((8, "placed"), (9, "placed")),
        (10, "refused"),
    ]
    assert case["choices"][0]["candidates"]["chosen"] == "NUMA node 1"


def test_without_explain_nothing_is_compared(file: Path) -> None:
    """The JSON has no choices then; and there are none for whoever only shares with static."""
    plain, explained = (
        json.loads(simulate(file, "--format", "json", *more).stdout)["cases"] for more in ((), ("--explain",))
    )

    assert [case.get("choices") for case in plain] == [None] * 4
    assert [len(case["choices"]) for case in explained] == [1, 1, 0, 0]


def test_a_policy_that_fails_at_explaining_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the case, the line and what happened."""
    monkeypatch.setattr(StaticPolicy, "candidates", lambda *_: 1 / 0)
    result = simulate(file, "fits", "--explain")

    assert result.exit_code == 1
    assert "fits, line 12: the policy cannot show its candidates: ZeroDivisionError" in result.output


def test_a_load_is_not_explained(file: Path) -> None:
    """It has too many decisions."""
    result = simulate("--load", file, "--explain")

    assert result.exit_code == 2
    assert "--explain is for a scenario FILE" in result.output


RESIZED = """
topologies:
  two: {threads: consecutive, nodes: {0: {cpus: 0-7, mem: 8G}, 1: {cpus: 8-15, mem: 8G}}}
vectors:
  - id: memory
    topology: two
    policy: topology-aware
    config: {reservedCpus: "0"}
    steps:
      - create: {pod: a, qos: guaranteed, cpu: 2, mem: 5G}
      - create: {pod: b, qos: guaranteed, cpu: 2, mem: 5G}
      - create: {pod: c, qos: guaranteed, cpu: 1, mem: 2G}
      - resize: {c: ac0, mem: 7G}
      - expect: [{c: ac0, n_mems: 2}]
      - resize: {c: ac0, mem: 3G}
      - expect: [{c: ac0, mems: "1"}]
  - id: cpus
    topology: two
    policy: static
    config: {reservedCpus: "0"}
    steps:
      - create: {pod: a, qos: guaranteed, cpu: 2, mem: 1G}
      - create: {pod: b, qos: guaranteed, cpu: 4, mem: 1G}
      - create: {pod: d, qos: guaranteed, cpu: 1, mem: 1G}
      - resize: {c: ac0, cpu: 6}
      - delete: [d]
      - expect: [{c: ac0, mems: "0-1"}]
      - resize: {c: ac0, cpu: 2}
      - expect: [{c: ac0, mems: "0"}]
"""


def test_memory_comes_back_after_a_resize_down(tmp_path: Path) -> None:
    """A container has memory from more nodes only as long as its limit or its CPUs need them."""
    (tmp_path / "cases.yaml").write_text(RESIZED)

    result = simulate(tmp_path / "cases.yaml")

    assert result.exit_code == 0, result.output
    assert "2 ok, 0 FAILED" in result.output


def test_huge_pages_of_a_copied_host(tmp_path: Path) -> None:
    """With --host-root, the machine has the huge pages of the copy, and none that the file says of its own machine."""
    root = tmp_path / "host"
    write_sysfs(root, machine(nodes=2, cores=2, threads=1))
    folder = root / "sys/devices/system/node/node1/hugepages/hugepages-2048kB"
    folder.mkdir(parents=True)
    for name in ("nr_hugepages", "free_hugepages"):
        (folder / name).write_text("8\n")
    file = tmp_path / "cases.yaml"
    file.write_text(
        "vectors:\n"
        "  - id: dpdk\n"
        "    topology: {threads: none, nodes: {0: {cpus: 0-1, mem: 1G}}}\n"
        "    hugepages: {0: {2Mi: 8}}\n"
        "    policy: static\n"
        "    config: {reservedCpus: '0'}\n"
        "    steps:\n"
        "      - create: {pod: p, qos: guaranteed, cpu: 1, hugepages: {2Mi: 4Mi}}\n"
        "      - expect: [{c: pc0, mems: 0-1}]\n"
    )

    result = simulate(file, "--host-root", root)

    assert result.exit_code == 0, result.output
