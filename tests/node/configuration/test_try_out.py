"""A configuration is tried: it goes back by itself in time, also over a restart, and containers are where they were."""

import re
import stat
import time
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from criproxy.api.live import LiveNode
from criproxy.api.views.explain import choose, to_values
from criproxy.api.views.situation import Situation
from criproxy.errors import CriproxyError, StoreError, UsageError
from criproxy.model.record import Kind
from criproxy.model.text.notices import timestamp
from criproxy.node.settings import OnError
from criproxy.store.configurations import TRIED_NAME, GoodFile, Tried, read_good, read_tried, write_tried
from tests import failing_reader
from tests.node.configuration.tried_node import LIMIT_S, LONG_S, MOVES, SHORT_S, STATIC, Node, moved, two
from tests.node.world import metric, owner, situation


async def test_it_goes_back_in_time(node: Node) -> None:
    """Who was moved by the try is where it was; the configuration, its hash and the last good file are the former."""
    first, web = await two(node)
    before, hash_before = node.world.controller.node.grants, node.hash

    answer = await node.tries(MOVES)

    assert (answer["file"], answer["policy"], answer["moved"]) == ("/root/new.yaml", "static", 2)
    assert node.hash == answer["hash"] != hash_before
    await node.at(first, "2")
    assert "try" in node.kinds()
    await node.ends()
    await node.at(first, "1")
    await node.at(web, "0,2-3")
    assert (node.world.controller.node.grants, node.hash) == (before, hash_before)
    assert node.world.controller.node.configuration == node.world.controller.context.settings.configuration
    good = read_good(node.state)
    assert good is not None
    assert good.text == STATIC
    assert "the time of the try is over: the former configuration is back" in node.world.log.events()


async def why(node: Node, container: str) -> list[str]:
    """Return what `criproxy explain` says about why a container runs where it does."""
    state = node.world.controller.context.state
    records = await state.find_history(container)
    said: list[str] = to_values(Situation(node=state.node), choose(state.node, records, container), records)["why"]
    return said


async def test_why_who_was_moved_by_a_try_is_where_it_was(node: Node) -> None:
    """Not because of the decision of the try, which no longer holds."""
    first = await moved(node)
    assert any("gets exclusive CPU 2" in each for each in await why(node, first))

    await node.ends()
    await node.at(first, "1")

    said = await why(node, first)
    assert said[0].endswith("first/main is back where it was before the try: exclusive CPU 1")
    assert not any("gets exclusive" in each for each in said)
    records = await node.world.controller.context.state.find_history(first)
    assert [each.facts["exclusive_cpus"] for each in records if each.kind is Kind.GRANTED] == ["1", "2", "1"]


async def test_it_is_kept(node: Node, first: str) -> None:
    """It stays over a restart until the policy file changes, and the difference is a problem until then."""
    await node.tries(MOVES)
    answer = await node.try_out.keep({})

    assert (answer["kept"], answer["until"]) == (True, None)
    await node.at(first, "2")
    await node.has_history("file", "tried", "kept")  # what is not written yet when criproxy stops is forgotten
    files = [node.state / TRIED_NAME, *(node.state / "configurations").iterdir()]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    await node.restart()
    await node.at(first, "2")
    assert "config-kept" in node.kinds()
    with pytest.raises(CriproxyError, match="is already kept"):
        await node.try_out.keep({})

    node.write(MOVES)

    await node.is_back()
    await node.world.poll(lambda: node.kinds() == [])  # right after a restart the runtime is listed
    assert node.world.cpus(first) == "2"
    await node.has_history("file", "tried", "kept", "file")


NOT_TRIED: list[tuple[str, float, type[CriproxyError], str]] = [
    ("policy: statik\n", LONG_S, CriproxyError, "unknown policy 'statik'"),
    (f"# a comment\n{STATIC}", LONG_S, CriproxyError, "there is nothing to try"),
    (f"{MOVES}devices: {{plugin: {{}}}}\n", LONG_S, CriproxyError, "it changes devices.plugin"),
    ('policy: static\nreservedCpus: "9"\n', LONG_S, CriproxyError, "CPU 9 is not online"),
    *((MOVES, time_s, UsageError, "between 1s and 168h") for time_s in (0.0, 1e9, float("nan"), True)),
]


async def test_what_cannot_be_tried(node: Node) -> None:
    """The reason is told, and nothing has changed."""
    before, hash_before = node.world.controller.node, node.hash
    for text, time_s, error, sentence in NOT_TRIED:
        with pytest.raises(error, match=sentence):
            await node.tries(text, time_s)

        assert (node.world.controller.node, node.hash, node.trial) == (before, hash_before, None)
        assert not (node.state / TRIED_NAME).exists()


async def test_a_client_that_asks_in_a_wrong_way(node: Node) -> None:
    """The daemon says what is wrong."""
    wrong = (
        {"text": 1, "source": "/x"},
        {"text": MOVES, "source": "x"},
        {"text": MOVES, "source": "/x\0"},
        {"text": MOVES},
    )
    for arguments in wrong:
        with pytest.raises(UsageError, match="must be the content of a policy file"):
            await node.try_out.begin({"time_s": LONG_S, **arguments})


async def test_one_at_a_time(node: Node) -> None:
    """A second try is refused while there is one."""
    await node.tries(MOVES)

    with pytest.raises(CriproxyError, match=r"/root/new.yaml is being tried until .*: run ") as caught:
        await node.tries('policy: static\nreservedCpus: "0-2"\n')
    assert str(caught.value).endswith(": run 'criproxy reload --keep' to keep it, or 'criproxy reload' to end it first")


async def test_not_on_a_released_node_and_not_in_a_bypass(node: Node) -> None:
    """Nothing could be seen of it."""
    node.try_out.why_not = lambda: "bypass is on"
    with pytest.raises(CriproxyError, match="bypass is on"):
        await node.tries(MOVES)
    node.try_out.why_not = lambda: ""
    await node.world.controller.policy_switch.release("somebody")
    with pytest.raises(CriproxyError, match="the node is released"):
        await node.tries(MOVES)


async def test_keep_after_the_time(node: Node) -> None:
    """It is too late, and the answer says when it ended."""
    with pytest.raises(CriproxyError, match="no configuration is being tried"):
        await node.try_out.keep({})
    await node.tries(MOVES, SHORT_S)
    await node.is_back()
    with pytest.raises(CriproxyError, match=r"the last one was tried until 20.*, and was not kept"):
        await node.try_out.keep({})


@pytest.mark.parametrize(
    ("file", "then"),
    [
        pytest.param(STATIC, "the policy file took effect", id="asked"),
        pytest.param(f"{STATIC}onError: refuse\n", "the policy file took effect", id="changed"),
        pytest.param(MOVES, "the policy file, whose content is the same, took effect", id="as-tried"),
    ],
)
async def test_keep_after_the_policy_file_took_effect(node: Node, file: str, then: str) -> None:
    """The answer is about the try that ended last, even if an earlier one has run out of time."""
    await node.tries(MOVES, SHORT_S)
    await node.is_back()
    await node.tries(MOVES)
    began = timestamp(time.time())
    node.file.write_text(file)
    await node.reload.command({})
    await node.is_back()

    with pytest.raises(CriproxyError, match=rf"the last one was tried until (.*); then {then}$") as caught:
        await node.try_out.keep({})

    assert str(caught.value).startswith("no configuration is being tried: ")
    until = re.search(r"until (\S+);", str(caught.value))
    assert until is not None
    assert until[1] >= began


async def test_keep_after_a_try_on_top_of_a_kept_configuration(node: Node) -> None:
    """The answer does not say that the try was kept: the configuration from before it was."""
    await node.tries(MOVES)
    await node.try_out.keep({})
    await node.tries('policy: static\nreservedCpus: "0-2"\napply: all\n', SHORT_S)
    await node.world.poll(lambda: node.try_out.in_place.tried is not None and node.try_out.in_place.tried.is_kept)

    with pytest.raises(CriproxyError, match=r"and was not kept; the configuration in effect is already kept, since"):
        await node.try_out.keep({})


async def test_the_policy_file_is_touched(node: Node) -> None:
    """As long as it says what it said when the try began, the try goes on; the same counts after a mistake in it."""
    await node.tries(MOVES)
    node.write(STATIC)
    node.write("policy: [")
    await node.world.poll(lambda: "config" in node.kinds())
    node.write(STATIC)
    await node.world.poll(lambda: "config" not in node.kinds())

    assert node.trial is not None
    assert node.source == "/root/new.yaml"


async def test_the_policy_file_changes(node: Node) -> None:
    """It is what its owner wants last: the try is over, and the file is in effect."""
    await node.tries(MOVES)
    node.write(f"{STATIC}onError: refuse\n")

    await node.is_back()

    settings = node.world.controller.context.settings
    assert (settings.on_error, settings.apply_all) == (OnError.REFUSE, False)


async def test_the_policy_file_becomes_what_is_tried(node: Node) -> None:
    """That keeps it: nobody moves."""
    first = await moved(node)
    node.write(MOVES)

    await node.is_back()

    assert node.world.cpus(first) == "2"
    assert node.source == str(node.file)


@pytest.mark.parametrize(
    ("between", "file", "cpus"),
    [
        pytest.param("policy: [", "/root/new.yaml", "2", id="bad"),
        pytest.param(MOVES, "policy.yaml", "2", id="as-tried"),
        pytest.param(f"{STATIC}# as before, in other words\n", "policy.yaml", "1", id="as-before"),
    ],
)
async def test_the_policy_file_changes_while_criproxy_is_stopped(
    node: Node, between: str, file: str, cpus: str
) -> None:
    """A good one is in effect, and a bad one leaves the try as it is."""
    first = await moved(node)

    await node.restart(between)

    await node.at(first, cpus)
    assert node.source.endswith(file)


async def test_a_disk_that_fails(node: Node, first: str) -> None:
    """Nothing is tried that a restart could not end; what is tried and cannot be kept goes back."""
    blocker = node.state / f"{TRIED_NAME}.new"
    blocker.mkdir()
    with pytest.raises(StoreError, match=r"tried\.json cannot be written"):
        await node.tries(MOVES)
    assert node.trial is None
    blocker.rmdir()
    await node.tries(MOVES)
    await node.at(first, "2")
    blocker.mkdir()

    with pytest.raises(StoreError, match=r"tried\.json cannot be written"):
        await node.try_out.keep({})

    await node.ends()
    await node.at(first, "1")


async def test_a_crash_right_after_it_was_written(node: Node, first: str) -> None:
    """The try had not begun for the containers, and its command was not answered: the start does not begin it."""
    await node.tries(MOVES)
    kept = (node.state / TRIED_NAME).read_text()
    await node.reload.command({})
    await node.is_back()
    await node.at(first, "1")
    await node.world.stop_criproxy()
    (node.state / TRIED_NAME).write_text(kept)
    await node.start()

    assert node.trial is None
    await node.is_back()
    assert node.world.cpus(first) == "1"


async def test_a_try_on_top_of_what_was_kept(node: Node, first: str) -> None:
    """It goes back to that, and the policy file still does not count."""
    await node.tries(MOVES)
    await node.try_out.keep({})
    kept = node.hash
    await node.tries('policy: static\nreservedCpus: "0-2"\napply: all\n')
    await node.at(first, "3")

    node.time_is_over()
    await node.world.poll(lambda: node.hash == kept)

    await node.at(first, "2")
    assert "config-kept" in node.kinds()
    # The time of the other one is not really over.
    await node.world.poll(lambda: read_tried(node.state) == node.try_out.in_place.tried)
    await node.restart()
    assert (node.hash, "config-kept" in node.kinds()) == (kept, True)


async def test_what_is_kept_while_the_policy_file_cannot_be_used(node: Node) -> None:
    """Nobody is sent to a file that would be refused: the notice says what is wrong with it, and what helps."""
    await node.tries(MOVES)
    node.file.write_text("policy: statik\n")

    answer = await node.try_out.keep({})

    assert (answer["kept"], answer["policy_file"]) == (True, "invalid")
    notices = {notice.kind: notice.text for notice in node.notices()}
    assert "unknown policy 'statik'" in notices["config"]
    assert "which was kept, is in effect" in notices["config"]
    assert "but the policy file cannot be used: write the kept configuration" in notices["config-kept"]
    assert "criproxy reload" not in notices["config-kept"]


async def test_a_section_of_devices_is_tried(node: Node) -> None:
    """It is in force while it is tried, and not after."""
    await node.tries(f"{STATIC}devices: {{}}\n")
    assert node.world.controller.devices.rules is not None

    await node.ends()

    assert node.world.controller.devices.rules is None


SECONDS = {"h": 3600.0, "min": 60.0, "s": 1.0}


def told(node: Node) -> list[float]:
    """How many seconds are left, wherever that is told."""
    controller = node.world.controller
    begin, wanted = LiveNode(controller).front()["configuration"]["try"], "try"
    (notice,) = [each for each in situation(controller).notices if each.kind == wanted]
    (text,) = re.findall(r"is being tried; in ([^,]+),", notice.text)
    seconds = sum(int(count) * SECONDS[unit] for count, unit in re.findall(r"(\d+) (h|min|s)\b", text))
    return [begin["left_s"], seconds, metric(controller, "config_try_remaining_seconds")]


async def test_the_clock_is_set_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told is what is really left."""
    first = await moved(node)
    clock = time.time

    with monkeypatch.context() as patch:  # calls to the runtime have deadlines by the real clock
        patch.setattr(time, "time", lambda: clock() - 7200.0)
        left_s, until = told(node), LiveNode(node.world.controller).front()["configuration"]["try"]["until"]
        latest = timestamp(time.time() + LONG_S)

    assert all(LONG_S - LIMIT_S <= each <= LONG_S for each in left_s), left_s
    assert until <= latest
    await node.ends()
    await node.at(first, "1")


async def test_the_clock_is_set_forward(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left, and the try ends; the metric shows for how long it should have ended, for an alert."""
    first = await moved(node)
    clock = time.time

    monkeypatch.setattr(time, "time", lambda: clock() + 7200.0)

    *left_s, remaining_s = told(node)
    assert left_s == [0.0, 0.0]
    assert LONG_S - 7200.0 - LIMIT_S <= remaining_s <= LONG_S - 7200.0
    await node.is_back()
    await node.at(first, "1")


async def test_a_restart_where_criproxy_fails_at_what_is_tried(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of criproxy in reading it ends the try, not the start."""
    await node.tries(f"# {failing_reader.WORD}\n{MOVES}")
    monkeypatch.setattr(failing_reader.LOAD, "parse", failing_reader.parse)

    with capture_logs() as lines:
        await node.restart()

    await node.is_back()
    mistakes = [line["mistake"] for line in lines if "what was tried cannot be used any more" in line["event"]]
    assert mistakes == [f"criproxy failed at it: {failing_reader.RAISED}"]


async def test_a_restart_after_the_clock_was_set_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The try lasts no longer than it was to last at all."""
    await node.tries(MOVES)
    await node.world.stop_criproxy()
    tried = read_tried(node.state)
    assert tried is not None
    set_back = replace(tried, begun_s=tried.begun_s + 7200.0, until_s=tried.until_s + 7200.0)
    write_tried(node.state, set_back)

    await node.start()

    assert max(told(node)) <= LONG_S


@pytest.mark.parametrize("text", [STATIC, f"# the same\n{STATIC}"], ids=["same-bytes", "same-options"])
async def test_what_is_kept_says_the_same_as_the_policy_file(node: Node, text: str) -> None:
    """Then nothing is in place of that file: it is in effect, also after a restart."""
    await node.tries(MOVES)
    await node.try_out.keep({})
    await node.tries(text)

    answer = await node.try_out.keep({})

    assert (answer["file"], answer["kept"], answer["until"]) == (str(node.file), False, None)
    await node.is_back()
    await node.has_history("file", "tried", "kept", "tried", "file")  # as above
    await node.restart()
    assert "config-kept" not in node.kinds()
    assert node.source == str(node.file)
    await node.has_history("file", "tried", "kept", "tried", "file")


async def test_a_start_finds_that_what_was_kept_says_the_same_as_the_policy_file(node: Node) -> None:
    """As an earlier version left it."""
    digest = node.world.controller.context.settings.configuration
    good = GoodFile(text=STATIC, source="/root/same.yaml", configuration=digest)
    write_tried(node.state, Tried(good=good, file_hash=node.hash))

    await node.restart()

    await node.is_back()
    assert node.source == str(node.file)


OFFERED = "class: ascend, resource: huawei.com/Ascend910"
CARDS = f"{STATIC}devices: {{classes: [ascend, amd], plugin: {{advertise: [{{{OFFERED}}}]}}}}\n"


@pytest.mark.parametrize(
    ("part", "instead", "refused"),
    [
        pytest.param("ascend, amd", "{name: ascend, replicaSeparator: '#'}, amd", True, id="class-that-is-offered"),
        pytest.param("classes", "podresources: {socket: ''}, classes", True, id="socket"),
        pytest.param(OFFERED, "class: amd, resource: amd.com/gpu", True, id="plugin"),
        pytest.param("ascend, amd", "ascend, {name: amd, replicaSeparator: '#'}", False, id="other-class"),
        pytest.param("classes", "privileged: deny, classes", False, id="rule"),
    ],
)
async def test_what_the_device_plugin_reads_cannot_be_tried(
    node: Node, part: str, instead: str, *, refused: bool
) -> None:
    """It would go on with the policy file, so that the try would not show what the change brings."""
    node.file.write_text(CARDS)
    await node.reload.command({})
    text = CARDS.replace(part, instead, 1)

    if refused:
        with pytest.raises(CriproxyError, match=r"cannot be tried because it changes devices\.plugin, a class"):
            await node.tries(text)
    else:
        await node.tries(text)

    assert (node.trial is None) is refused


async def test_who_has_no_place(node: Node) -> None:
    """It is told with the number of those who move."""
    await two(node)
    await node.world.run(owner("second"))

    answer = await node.tries('policy: static\nreservedCpus: "0-2"\napply: all\n')

    assert answer["no_place"] == 1


@pytest.mark.parametrize("text", ["", "{", '{"good": 1}'], ids=["empty", "cut", "other"])
async def test_a_damaged_file(node: Node, text: str) -> None:
    """The start says so once, and uses the policy file."""
    await node.tries(MOVES)
    await node.world.stop_criproxy()
    (node.state / TRIED_NAME).write_text(text)

    with capture_logs() as lines:
        await node.start()

    found = [line for line in lines if line["event"] == "what was tried or kept cannot be read, and is forgotten"]
    assert [line["file"] for line in found] == [str(node.state / TRIED_NAME)]
    await node.is_back()
    assert node.source == str(node.file)
