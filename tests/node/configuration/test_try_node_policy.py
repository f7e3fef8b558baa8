"""What a NodePolicy says is tried, kept and ended like a file, but the policy file does not take its place."""

import pytest

from criproxy.errors import CriproxyError, StoreError, UsageError
from criproxy.model.text.notices import Values
from criproxy.model.text.sources import node_policy_of
from criproxy.store.configurations import TRIED_NAME
from tests.node.configuration.tried_node import LONG_S, MOVES, STATIC, Node

SOURCE = "NodePolicy/all"
SAME = f"# said by a NodePolicy\n{STATIC}"


async def tries(node: Node, text: str = MOVES, source: str = SOURCE) -> Values:
    """Try what a NodePolicy says."""
    return await node.try_out.begin({"text": text, "source": source, "time_s": LONG_S})


@pytest.mark.parametrize("file", [f"{STATIC}onError: refuse\n", MOVES, f"{STATIC}# other words\n"])
async def test_the_policy_file_does_not_take_the_place_of_what_was_kept(node: Node, first: str, file: str) -> None:
    """Neither while criproxy runs nor at a restart; it does as soon as somebody asks for it."""
    await tries(node)
    await node.try_out.keep({})
    await node.at(first, "2")
    node.file.write_text(file)
    async with node.reload.one:
        assert not await node.reload._once(asked=False)
    await node.at(first, "2")

    await node.restart(file)

    await node.at(first, "2")
    assert node.source == SOURCE
    assert "config-kept" not in node.kinds()
    await node.reload.command({})
    assert node.source == str(node.file)
    assert node.trial is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            '{"policy": "static",\n "reservedCpus": "99"}', "spec.policy.reservedCpus: CPU 99 is not online", id="value"
        ),
        pytest.param(
            '{"policy": "pools", "pools": [\n{"name": "a"}]}',
            "spec.policy.pools[0]: pool 'a' has no size",
            id="in-a-list",
        ),
        pytest.param('{"policy": "static",\n "reserved": 1}', "spec.policy: unknown option 'reserved'", id="unknown"),
    ],
)
async def test_a_refusal_names_the_option_and_no_line(node: Node, text: str, said: str) -> None:
    """Nobody but the agent sees the lines of the text that it makes of an object."""
    with pytest.raises(CriproxyError) as caught:
        await tries(node, text)

    assert str(caught.value).startswith(f"{SOURCE}: {said}")


async def test_a_policy_file_that_changes_ends_a_try(node: Node) -> None:
    """Somebody on the node wants something else now; the agent sees it, and decides what comes next."""
    await tries(node)
    node.write(f"{STATIC}onError: refuse\n")

    await node.is_back()

    assert node.source == str(node.file)


async def test_what_is_in_effect_already_is_kept_at_once(node: Node, first: str) -> None:
    """Nobody moves, and the restart still knows that it is from a NodePolicy."""
    answer = await tries(node, SAME)

    assert (answer["file"], answer["kept"], answer["until"], answer["moved"]) == (SOURCE, True, None, 0)
    assert node.source == SOURCE
    await node.restart()
    assert node.source == SOURCE
    await node.at(first, "1")


async def test_what_is_kept_although_the_file_says_the_same_is_from_the_node_policy(node: Node) -> None:
    """Else the agent would take the node for one that has left the NodePolicy."""
    await tries(node)
    node.file.write_text(MOVES)

    await node.try_out.keep({})

    assert node.source == SOURCE


async def test_a_try_is_ended_when_somebody_wants_that(node: Node, first: str) -> None:
    """All return to their places at once, and it is counted; a second end finds nothing to end."""
    await tries(node)
    await node.at(first, "2")

    with pytest.raises(CriproxyError, match="is being tried, not 'something else'"):
        await node.try_out.back({"hash": "something else"})
    answer = await node.try_out.back({"hash": node.hash})

    assert (answer["file"], answer["until"], answer["kept"]) == (str(node.file), None, False)
    await node.is_back()
    await node.at(first, "1")
    assert node.world.counters.tries_ended == {"asked": 1}
    with pytest.raises(CriproxyError, match="no configuration is being tried: the last one was tried until"):
        await node.try_out.back({})


async def test_a_disk_that_fails(node: Node, first: str) -> None:
    """Nothing comes into force that a restart would not know, also where nobody would move."""
    (node.state / f"{TRIED_NAME}.new").mkdir()

    for text in (MOVES, SAME):
        with pytest.raises(StoreError, match=r"tried\.json cannot be written"):
            await tries(node, text)

    assert (node.source, node.trial) == (str(node.file), None)
    assert node.world.cpus(first) == "1"


async def test_the_agent_has_no_part_in_what_people_try(node: Node) -> None:
    """It neither keeps nor ends it, and brings no file into force."""
    agent = node.try_out.for_node_policy
    with pytest.raises(CriproxyError, match="not '/etc/shadow'"):
        await agent(node.try_out.begin, {"text": MOVES, "source": "/etc/shadow", "time_s": LONG_S})
    await node.tries(MOVES)
    for command in (node.try_out.keep, node.try_out.back):
        with pytest.raises(
            CriproxyError, match=r"only try, keep and end what a NodePolicy says, not '/root/new\.yaml'"
        ):
            await agent(command, {})
    assert node.trial is not None


@pytest.mark.parametrize(
    "source",
    ["NodePolicy/", "NodePolicy/../x", "NodePolicy/A", "nodepolicy/a", "NodePolicy/a\n", f"NodePolicy/{'a' * 254}", ""],
)
async def test_a_source_is_a_path_or_a_node_policy(node: Node, source: str) -> None:
    """Names are those that Kubernetes allows."""
    assert not node_policy_of(source)
    with pytest.raises(UsageError, match="its absolute path or NodePolicy/NAME"):
        await tries(node, source=source)
