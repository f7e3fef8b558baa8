"""``criproxy fit``: the policy of a daemon at work is asked about a pod that does not exist."""

import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from criproxy.api.views.fit import read
from criproxy.cli.queries.fit import render
from criproxy.cli.render.console import console
from criproxy.errors import UsageError
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from tests.asking import daemon, invoke, serving
from tests.cli.render.test_free_cards import OTHER_VGPU, TWO_PROFILES, VGPU
from tests.cli.test_hostile_text import is_harmless
from tests.node.world import owner, sharer

ASSUMED = "a Guaranteed pod has a memory limit, and none was given: a limit of 100 MiB is assumed"
TOPOLOGY_AWARE = TopologyAwarePolicy(TopologyAwareOptions.model_validate({"reservedCpus": "0"}))


async def fit(directory: Path, *arguments: str) -> Result:
    """Run the command."""
    return await invoke("fit", *arguments, "--control-socket", str(directory / "control.sock"))


async def test_it_fits_and_who_would_move(tmp_path: Path) -> None:
    """Its CPUs, and the containers that would give some up; a pod of that size gets just these afterwards."""
    async with daemon(tmp_path) as world:
        await world.run(sharer("web"))
        before = world.controller.node
        result = await fit(tmp_path, "--cpu", "2")
        assert world.controller.node is before
        trader = await world.run(owner("trader", 2))
        got = world.controller.node.grants[trader].cpus

    assert result.exit_code == 0
    assert got == {1, 2}
    assert result.output.splitlines()[0].startswith("It fits: CPUs 1-2 on NUMA node 0, exclusive")
    assert "\nContainers that would move\n  default/web/main: CPUs 0-3 → 0,3\n" in result.output


async def test_it_does_not_fit(tmp_path: Path) -> None:
    """Exit status 1, the policy's sentence, and who is in the way."""
    async with daemon(tmp_path, TOPOLOGY_AWARE) as world:
        await world.run(owner("trader", 2))
        result = await fit(tmp_path, "--cpu", "3", "--memory", "1Gi", "-n", "shop")
        values = json.loads((await fit(tmp_path, "--cpu", "3", "--format", "json")).output)

    assert result.exit_code == 1
    assert result.output.startswith("It does not fit: container shop/fit/main asks for 3")
    assert (
        "\n  default/trader/main\n  it would fit without this container; no shorter list makes room\n" in result.output
    )
    assert (values["fits"], values["placed"], values["cpus"]) == (False, False, "")
    assert values["choice"]["leavers"]["containers"] == ["default/trader/main"]


TOO_MANY = "It does not fit: container default/fit/main asks for {} CPUs, and the machine has 4 CPUs for pods"
SAID = {
    "2 --qos burstable": "It fits: CPUs 0-3 on NUMA node 0, shared",
    "1500m": "It fits: CPUs 0-3 on NUMA node 0, shared",
    "3 --pod a --container b": "It fits: CPUs 1-3",
    "4": "It does not fit: container default/fit/main asks for 4",
    "900000": TOO_MANY.format(900000),
    "5000 --qos burstable": TOO_MANY.format(5000),
    "1 --memory 999Ti": "It does not fit: container default/fit/main asks for 999 TiB of memory, and the machine has ",
}


async def test_what_a_policy_says(tmp_path: Path) -> None:
    """Size and class count as in a create message; sizes that no message can say are compared with the machine."""
    async with daemon(tmp_path):
        found = {asked: (await fit(tmp_path, "--cpu", *asked.split())).output for asked in SAID}

    assert {asked: output for asked, output in found.items() if SAID[asked] not in output} == {}


async def test_a_guaranteed_pod_has_a_memory_limit(tmp_path: Path) -> None:
    """Without one it would not be Guaranteed: if none is given, one is assumed, and the answer says so."""
    async with daemon(tmp_path, TOPOLOGY_AWARE):
        for arguments, assumed in (((), [ASSUMED]), (("--memory", "1Gi"), []), (("--qos", "burstable"), [])):
            values = json.loads((await fit(tmp_path, "--cpu", "1", *arguments, "--format", "json")).output)
            shown = (await fit(tmp_path, "--cpu", "1", *arguments)).output

            assert values["assumed"] == assumed
            assert [line[6:] for line in shown.splitlines() if line.startswith("Note: ")] == assumed
            assert ("without a memory limit" in shown) == ("burstable" in arguments)


async def test_an_annotation_counts(tmp_path: Path) -> None:
    """One with a value that no policy takes is the answer no; one that no policy reads is wrong use."""
    async with daemon(tmp_path, TOPOLOGY_AWARE):
        shared = await fit(tmp_path, "--cpu", "1", "--annotation", "prefer-shared-cpus.criproxy.io/pod=true")
        wrong = await fit(tmp_path, "--cpu", "1", "--annotation", "prefer-shared-cpus.criproxy.io/pod=perhaps")
        unread = await fit(tmp_path, "--cpu", "1", "--annotation", "example.com/x=1")

    assert (shared.exit_code, wrong.exit_code, unread.exit_code) == (0, 1, 2)
    assert "It fits: CPUs 1-3 on NUMA node 0, shared" in shared.output
    assert "It does not fit: container default/fit/main: annotation " in wrong.output
    assert "annotation 'example.com/x': no policy reads it" in unread.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param((), "Missing option '--cpu'", id="no-size"),
        pytest.param(("--cpu", "many"), "must be an amount", id="cpu"),
        pytest.param(("--cpu", "0"), "'--cpu': must be from 1m to 1000000 CPUs, not 0", id="none"),
        pytest.param(("--cpu", "1000001"), "'--cpu': must be from 1m to 1000000 CPUs, not 1000001", id="too-many"),
        pytest.param(("--cpu", "1", "--memory", "2048Pi"), "'--memory': must be at most 1024 PiB", id="too-much"),
        pytest.param(("--cpu", "\x1b[2J"), "must be an amount", id="hostile"),
        pytest.param(("--cpu", "1", "--memory", "4Gb"), "must be a size", id="memory"),
        pytest.param(("--cpu", "1", "--qos", "besteffort"), "'besteffort' is not one of", id="class"),
        pytest.param(("--cpu", "1", "--label", "app"), "'app' must be KEY=VALUE", id="label"),
        pytest.param(("--device", "nvidia.com/gpu"), "must be KEY=VALUE", id="no-number"),
        pytest.param(("--device", "nvidia.com/gpu=0"), "must be a number from 1 to", id="no-card"),
        pytest.param(("--device", "nvidia.com/gpu=\u0662"), "must be a number from 1 to", id="other-digits"),
        pytest.param(("--gpu", "0"), "not in the range", id="no-gpu"),
    ],
)
async def test_wrong_input(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    """Exit status 2 and a sentence, without asking anybody."""
    result = await fit(tmp_path, *arguments)

    assert result.exit_code == 2
    assert said in result.output
    assert is_harmless(result.output)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"cpu_milli": "1"}, id="text"),
        pytest.param({"cpu_milli": True}, id="bool"),
        pytest.param({"cpu_milli": 1000, "memory_bytes": -1}, id="negative"),
        pytest.param({"cpu_milli": 1000, "qos": ["guaranteed"]}, id="class"),
        pytest.param({"cpu_milli": 1000, "labels": {"app": 1}}, id="label"),
        pytest.param({"cpu_milli": 1000, "names": []}, id="names"),
    ],
)
def test_a_client_that_asks_in_a_wrong_way(arguments: dict[str, Any]) -> None:
    """The daemon says what is wrong; it has not failed."""
    with pytest.raises(UsageError, match="must be"):
        read(arguments)


async def test_a_daemon_is_needed(tmp_path: Path) -> None:
    """Nobody else knows the policy."""
    result = await fit(tmp_path, "--cpu", "1")

    assert result.exit_code == 1
    assert "no criproxy daemon listens on" in result.output


async def test_a_released_node(tmp_path: Path) -> None:
    """While no container is placed, it says so."""
    async with daemon(tmp_path) as world:
        await world.controller.policy_switch.release("for a test")
        result = await fit(tmp_path, "--cpu", "2")

    assert result.exit_code == 0
    assert "It fits: the policy leaves it alone" in result.output
    assert "for a test" in result.output


async def test_unknown_cards(tmp_path: Path) -> None:
    """Without a section about devices nobody knows which are free."""
    async with daemon(tmp_path):
        result = await fit(tmp_path, "--gpu", "1")

    assert (result.exit_code, "the policy file has no devices section" in result.output) == (1, True)


async def test_two_vgpus_never_fit(tmp_path: Path) -> None:
    """The device plugin and criproxy refuse them, however many are free."""

    async def devices(_: Mapping[str, Any]) -> dict[str, Any]:
        return TWO_PROFILES

    async with serving(tmp_path, {"devices": devices}):
        one, two = [await fit(tmp_path, "--device", f"{VGPU}={count}") for count in (1, 2)]
        profiles = await fit(tmp_path, "--device", f"{VGPU}=1", "--device", f"{OTHER_VGPU}=1")
        shown = json.loads((await fit(tmp_path, "--device", f"{VGPU}=2", "--format", "json")).output)

    assert (one.exit_code, two.exit_code, profiles.exit_code) == (0, 1, 1)
    text = "a container can have at most one vGPU, and this one asks for 2"
    assert two.output.replace("\n", " ").strip() == f"2 {VGPU} do not fit: {text}"
    assert (shown["fits"], shown["devices"][0]["free"], shown["devices"][0]["refused"]) == (False, 2, text)


PLACED = {
    "notices": [],
    "assumed": [],
    "fits": True,
    "refusal": "",
    "placed": True,
    "why": ["it asks for 2"],
    "moved": [],
    "cpus": "1-2",
    "exclusive_cpus": "1-2",
    "mems": "",
    "numa_nodes": "0",
    "pool": "",
    "choice": None,
}
REFUSED = {**PLACED, "fits": False, "refusal": "no room", "why": []}


def cards(resource: str, free: int | None) -> dict[str, Any]:
    """One card is asked for."""
    found = {
        "resource": resource,
        "wanted": 1,
        "fits": bool(free),
        "free": free,
        "unknown": "" if free else "no report",
    }
    return {**found, "refused": "", "free_by_numa_node": [], "numa_nodes_with_room": []}


ANSWERS = {
    "no-card": (
        PLACED,
        [cards("a.com/gpu", 2), cards("b.com/gpu", 0)],
        [
            "It does not fit: too few cards are free",
            "1 b.com/gpu does not fit: 0 free",
            "1 a.com/gpu fits: 2 free",
            "Without the cards, it would fit: CPUs 1-2 on NUMA node 0, exclusive",
        ],
    ),
    "unknown": (
        PLACED,
        [cards("a.com/gpu", None)],
        [
            "It is unknown whether it fits",
            "It is unknown whether 1 a.com/gpu fits: no report",
            "Without the cards, it would fit: CPUs 1-2 on NUMA node 0, exclusive",
        ],
    ),
    "never-so-many": (
        PLACED,
        [{**cards("criproxy.io/half", 2), "fits": False, "refused": "one is enough"}],
        [
            "It does not fit: one is enough",
            "1 criproxy.io/half does not fit: one is enough",
            "Without the cards, it would fit: CPUs 1-2 on NUMA node 0, exclusive",
        ],
    ),
    "both": (
        PLACED,
        [cards("a.com/gpu", 2)],
        ["It fits: CPUs 1-2 on NUMA node 0, exclusive", "1 a.com/gpu fits: 2 free"],
    ),
    "neither": (REFUSED, [cards("a.com/gpu", 0)], ["It does not fit: no room", "1 a.com/gpu does not fit: 0 free"]),
    "cards-alone": (
        None,
        [cards("a.com/gpu", 2), cards("b.com/gpu", 0)],
        ["1 b.com/gpu does not fit: 0 free", "1 a.com/gpu fits: 2 free"],
    ),
}


@pytest.mark.parametrize(("values", "found", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_the_whole_answer_comes_first(
    values: dict[str, Any] | None, found: list[dict[str, Any]], expected: list[str]
) -> None:
    """Who reads only the first line knows whether all of the pod fits."""
    screen = console(StringIO(), 120)
    screen.print(render(values, found))
    assert isinstance(screen.file, StringIO)

    assert screen.file.getvalue().splitlines()[: len(expected)] == expected
