"""A try of a configuration meets kills, releases and mistakes in the policy file."""

import shutil

import pytest

from criproxy.errors import CriproxyError, UsageError
from criproxy.store.configurations import LAST_GOOD_NAME as LAST_GOOD
from criproxy.store.configurations import read_good
from tests.node.configuration.tried_node import MOVES, STATIC, Node
from tests.node.world import owner

NONE = "policy: none\n"
MISTAKE = "policy: ["


async def comes_under_none(node: Node, *, tried: bool) -> str:
    """Run a container that asks for a CPU of its own while the policy is none; returns its id."""
    if tried:
        await node.tries(NONE)
    else:
        node.file.write_text(NONE)
        await node.reload.command({})
    second = await node.world.run(owner("second"))
    assert node.world.cpus(second) == "0,2-3"
    return second


@pytest.mark.parametrize("tried", [True, False], ids=["try", "policy-file"])
async def test_who_came_under_none_shares(node: Node, first: str, tried: bool) -> None:
    """Running containers stay where they are when the policy is another one, and a try's end is no exception."""
    second = await comes_under_none(node, tried=tried)
    if tried:
        await node.ends()
    else:
        node.file.write_text(STATIC)
        await node.reload.command({})

    await node.world.rested()

    assert (node.world.cpus(first), node.world.cpus(second)) == ("1", "0,2-3")
    assert node.world.owned() == {1}


@pytest.mark.parametrize("tried", [True, False], ids=["try", "policy-file"])
async def test_who_came_under_none_shares_after_a_kill(node: Node, first: str, tried: bool) -> None:
    """The same, where criproxy was killed before the disk had the container: the start finds it in the runtime."""
    third = await comes_under_none(node, tried=tried)
    await node.world.rested()
    await node.has_history("file", "tried" if tried else "file")  # nothing is written while it is copied
    good = STATIC if tried else NONE
    await node.world.poll(lambda: (found := read_good(node.state)) is not None and found.text == good)
    shutil.copytree(node.state, saved := node.directory / "saved")
    second = await node.world.run(owner("last"))
    await node.world.stop_criproxy()
    shutil.rmtree(node.state)
    shutil.copytree(saved, node.state)
    if tried:
        node.time_is_over_at_start()
    else:
        node.file.write_text(STATIC)
    await node.start()
    await node.is_back()

    await node.world.rested()

    assert [node.world.cpus(each) for each in (first, second, third)] == ["1", "0,2-3", "0,2-3"]
    assert node.world.owned() == {1}


async def test_a_release_while_none_is_tried(node: Node, first: str) -> None:
    """What is tried has the policy none, and not the policy file; the end of the try leads out of it."""
    await node.tries(NONE)

    answer = await node.world.controller.policy_switch.release("somebody")

    said = answer["configuration"]
    assert (said["file"], said["kept"], bool(said["until"])) == ("/root/new.yaml", False, True)
    with pytest.raises(UsageError, match=r"/root/new.yaml, which is being tried until 20.*, has policy none"):
        await node.world.controller.policy_switch.undo()
    await node.reload.command({})
    assert node.world.controller.node.released == "somebody"
    await node.world.controller.policy_switch.undo()
    await node.at(first, "1")


async def test_a_release_while_none_is_kept(node: Node, first: str) -> None:
    """The policy file leads out of it, and ends the release."""
    await node.tries(NONE)
    await node.try_out.keep({})

    answer = await node.world.controller.policy_switch.release("somebody")

    assert answer["configuration"] == {
        "file": "/root/new.yaml",
        "until": None,
        "kept": True,
        "policy_file": "different",
    }
    with pytest.raises(UsageError, match=r"/root/new\.yaml, which was kept, has policy none"):
        await node.world.controller.policy_switch.undo()
    await node.reload.command({})
    await node.at(first, "1")


async def broken(node: Node) -> None:
    """The policy file cannot be used any more."""
    node.write(MISTAKE)
    await node.world.poll(lambda: "config" in node.kinds())


async def test_a_mistake_in_the_policy_file(node: Node, first: str) -> None:
    """Log, status and `criproxy reload` say what is in effect and what comes back; the last good file does."""
    before = node.hash
    until = (await node.tries(MOVES))["until"]
    await broken(node)
    tried = f"/root/new.yaml, which is being tried, is in effect until {until} unless it is kept"
    back = f"the last good one, read from {node.file}, is in effect"

    assert node.instead == f"{tried}; then {back} again"
    assert node.instead in [keys.get("instead") for _, keys in node.world.log.lines]
    with pytest.raises(CriproxyError, match="which is being tried, is in effect until"):
        await node.reload.command({})
    await node.at(first, "2")
    await node.ends()

    assert (node.instead, node.hash) == (back, before)
    await node.at(first, "1")
    await node.restart()
    assert (node.instead, node.hash) == (back, before)
    assert node.world.cpus(first) == "1"


@pytest.mark.parametrize("is_lost", [False, True], ids=["last-good", "no-last-good"])
async def test_a_mistake_in_the_policy_file_and_a_restart(node: Node, first: str, is_lost: bool) -> None:
    """If the time is over at the start, what was there before the try is back, whether or not it was saved."""
    before = node.hash
    await node.tries(MOVES)
    await node.at(first, "2")
    await broken(node)
    await node.restart()
    assert node.instead.startswith("/root/new.yaml, which is being tried, is in effect until")
    await node.world.stop_criproxy()
    node.time_is_over_at_start()
    if is_lost:
        (node.state / LAST_GOOD).unlink()
    await node.start()

    await node.is_back()

    assert (node.instead, node.hash) == (f"the last good one, read from {node.file}, is in effect", before)
    await node.at(first, "1")


async def test_ends_are_counted(node: Node) -> None:
    """By what has ended the try, also at a start."""
    counts = node.world.counters.tries_ended
    await node.tries(MOVES)
    await node.ends()
    await node.tries(MOVES)
    await node.reload.command({})
    await node.is_back()
    assert counts == {"time": 1, "file": 1}
    await node.tries(MOVES)
    await node.try_out.keep({})
    await node.reload.command({})
    assert counts == {"time": 1, "file": 1, "kept": 1}
    await node.tries(MOVES)
    await node.world.stop_criproxy()
    node.time_is_over_at_start()
    await node.start()
    assert node.world.counters.tries_ended == {"time": 1}
