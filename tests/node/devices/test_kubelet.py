"""Evidence from a kubelet: a node between the embedded runtime and a kubelet's podresources and checkpoint."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.podresources import Devices, PodresourcesClient
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from criproxy.devices.evidence.device_request import DeviceRequest
from criproxy.devices.evidence.evidence import Given, Known, Subject
from criproxy.node.counters import Counters
from criproxy.node.devices import kubelet as module
from criproxy.node.devices.kubelet import MAX_NAMES, Kubelet, PodNames
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from lab.kubelet.kubelet import PodSpec, sandbox_config
from tests.allocations import Allocated, Allocations
from tests.node.devices.test_guard import VOID, envs, world
from tests.node.world import FAST, RecordingLog, World, refusal, sharer, soon

GPU = "nvidia.com/gpu"
FILES = KubeletFiles(socket="/k/sock", checkpoint="/k/checkpoint", timeout_s=60.0)
"""With so long a bound, whatever is not silent is waited for on a busy machine, too."""
RULES = DeviceRules(classes=(NVIDIA,), kubelet=FILES)
WEB = Allocated(pod="web", pod_uid="u1", resource=GPU, ids=("GPU-b",), numa=1)
MAIN = Subject(sandbox_id="s1", pod_uid="u1", namespace="default", pod="web", container="main")
GIVEN = Known("podresources", {GPU: ("GPU-b",)}, complete=True)
CONFIRMED = replace(GIVEN, by_uid=True)


@pytest.fixture
async def allocations(tmp_path: Path) -> AsyncIterator[Allocations]:
    """A kubelet that has given the pod ``web`` a card, serves podresources, and has no checkpoint yet."""
    kubelet = Allocations(tmp_path / "k/sock", tmp_path / "k/checkpoint")
    kubelet.entries = [WEB]
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


def kubelet(files: KubeletFiles, directory: Path) -> Kubelet:
    """A source that asks the kubelet with these files below *directory*."""
    log = RecordingLog()
    tasks = Tasks(log, Failures(), first_pause_s=0.01)
    return Kubelet(files, directory, Counters(), log, tasks, scan_s=FILES.timeout_s)


@pytest.fixture
async def source(allocations: Allocations, tmp_path: Path) -> AsyncIterator[Kubelet]:
    """The source that asks it."""
    source = kubelet(FILES, tmp_path)
    yield source
    await source.close()
    await source.tasks.stop()


async def told(source: Kubelet, who: Subject) -> Known | None:
    """What it says of allocations; on which NUMA nodes cards are is another matter."""
    known = await source.known(who)
    return known and replace(known, near={})


def of(pod_uid: str, sandbox_id: str = "") -> Subject:
    """The container of another pod of that name."""
    return replace(MAIN, pod_uid=pod_uid, sandbox_id=sandbox_id or f"s-{pod_uid}")


async def create(node: World, uid: str, *variables: str, name: str = "web") -> Mapping[str, bytes]:
    """Run the pod *name* with this UID; returns the variables that its container got."""
    pod = PodSpec(name, sharer(name).containers, given_uid=uid)

    def change(request: api.CreateContainerRequest) -> None:
        for value in variables:
            request.config.envs.add(key="NVIDIA_VISIBLE_DEVICES", value=value.encode())

    config = sandbox_config(pod, attempt=len(node.runtime.core.records.sandboxes))
    return envs((await node.create_as(pod, change, config=config))[1])


async def test_a_container_of_a_pod_with_a_card_gets_it(allocations: Allocations, tmp_path: Path) -> None:
    """With NVIDIA's plugin as it comes, which leaves a variable only, the kubelet tells whose card it is."""
    async with world(tmp_path, rules=RULES) as node:
        assert await create(node, "u1", "GPU-b", "all") == {"NVIDIA_VISIBLE_DEVICES": b"GPU-b"}
        assert node.counters.device_evidence == {("podresources", "answered"): 1, ("checkpoint", "absent"): 1}
        assert allocations.asked == {"Get": 1}


async def test_a_pod_made_anew_does_not_inherit(allocations: Allocations, tmp_path: Path) -> None:
    """While podresources still tells of the former pod of a name, the checkpoint says whose card it is."""
    allocations.write()
    async with world(tmp_path, rules=RULES) as node:
        assert await create(node, "u2", "all") == VOID
        assert node.counters.device_evidence["podresources", "another-pod"] == 1

        allocations.entries = [replace(WEB, pod_uid="u3", ids=("GPU-a",))]
        allocations.write()

        assert await create(node, "u3", "GPU-a") == {"NVIDIA_VISIBLE_DEVICES": b"GPU-a"}


@pytest.mark.parametrize("checkpoint", ["off", "never whole", "damaged"])
async def test_without_a_checkpoint_a_name_is_no_evidence_for_its_second_pod(
    allocations: Allocations, tmp_path: Path, checkpoint: str
) -> None:
    """Nobody can tell whose the card is: `fail` refuses who asks for one, and who asks for none sees none."""
    files = replace(FILES, checkpoint="") if checkpoint == "off" else FILES
    if checkpoint == "damaged":
        allocations.write()
    elif checkpoint == "never whole":
        allocations.checkpoint.write_bytes(b"{")
    async with world(tmp_path, rules=replace(RULES, on_no_evidence="fail", kubelet=files)) as node:
        assert await create(node, "u1", "GPU-b") == {"NVIDIA_VISIBLE_DEVICES": b"GPU-b"}
        allocations.checkpoint.write_bytes(b"{")
        await refusal(create(node, "u2", "all"), "it is unknown whether a card is allocated to it")
        assert await create(node, "u2") == VOID
        assert node.counters.device_evidence["podresources", "doubtful"] == 2

        if checkpoint != "off":
            allocations.entries = [replace(WEB, pod_uid="u3")]
            allocations.write()
            assert await create(node, "u3", "GPU-b", "all") == {"NVIDIA_VISIBLE_DEVICES": b"GPU-b"}


async def test_with_keep_an_answer_in_doubt_is_a_limit(allocations: Allocations, tmp_path: Path) -> None:
    """By using a name again nobody sees more than podresources says; who asks for no card gets none."""
    async with world(tmp_path, rules=replace(RULES, kubelet=replace(FILES, checkpoint=""))) as node:
        await create(node, "u1", "GPU-b")
        assert await create(node, "u2", "all") == {"NVIDIA_VISIBLE_DEVICES": b"GPU-b"}
        assert await create(node, "u3") == VOID
        allocations.entries = [replace(WEB, pod_uid="u4", resource="", ids=())]
        assert await create(node, "u4", "all") == VOID


async def test_a_container_that_runs_keeps_its_cards_in_doubt(allocations: Allocations, tmp_path: Path) -> None:
    """To find out whether updates may take a card away, whatever podresources says counts."""
    rules = replace(RULES, on_no_evidence="fail", kubelet=replace(FILES, checkpoint=""))
    async with world(tmp_path, rules=rules) as node:
        await create(node, "u1", "GPU-b")
        evidence = node.controller.devices.evidence
        found = await evidence.gather(rules, of("u2"), DeviceRequest(), runs=True)
        assert found.evidence["nvidia"].ids == ("GPU-b",)
        created = await evidence.gather(rules, of("u2"), DeviceRequest())
        assert created.evidence["nvidia"].given is Given.NONE


async def test_a_name_is_known_after_a_restart(allocations: Allocations, tmp_path: Path) -> None:
    """The pods on the node count, too: the former one of a name may have come before criproxy started."""
    files = replace(FILES, checkpoint="")
    async with world(tmp_path, rules=replace(RULES, on_no_evidence="hide", kubelet=files)) as node:
        await create(node, "u1", "GPU-b")
        await node.stop_criproxy()
        await node.start_criproxy()
        assert await create(node, "u2", "GPU-b") == VOID


async def test_who_is_in_doubt_is_asked_for_again(
    allocations: Allocations, source: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint may be readable again at the next try of the kubelet."""
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    assert await told(source, MAIN) == GIVEN
    assert await told(source, of("u2")) == replace(GIVEN, certain=False)
    allocations.entries = [replace(WEB, pod_uid="u2")]
    allocations.write()

    assert await told(source, of("u2")) == CONFIRMED
    assert await told(source, of("u1", "s9")) == Known("checkpoint", {}, complete=True, by_uid=True)


async def test_a_reload_moves_the_files(allocations: Allocations, tmp_path: Path) -> None:
    """Other paths in the policy file are those that are asked from then on; that nothing answers there is told."""
    wrong = replace(RULES, kubelet=replace(FILES, socket="/none", checkpoint="/nothing"))
    async with world(tmp_path, rules=wrong) as node:
        evidence, in_force = node.controller.devices.evidence, node.controller.context.in_force
        for uid, rules in (("u0", wrong), ("u1", RULES), ("u2", wrong)):
            in_force.settings = replace(in_force.settings, devices=rules)
            variables, name = (("GPU-b", "all"), "web") if rules is RULES else (("GPU-b",), f"other-{uid}")

            assert await create(node, uid, *variables, name=name) == {"NVIDIA_VISIBLE_DEVICES": b"GPU-b"}
            assert ("has not answered on /none and /nothing since" in evidence.silence) is (rules is wrong)
            assert allocations.asked == ({} if uid == "u0" else {"Get": 1})


async def test_what_was_prefetched_is_not_asked_again(allocations: Allocations, source: Kubelet) -> None:
    """One question for all containers of a pod, however late they come, until its sandbox is gone."""
    allocations.entries.append(Allocated(pod="web", pod_uid="u1", container="plain"))
    await source.prefetch(replace(MAIN, container=""))
    assert await told(source, MAIN) == GIVEN
    allocations.entries.clear()

    assert await told(source, replace(MAIN, container="plain")) == Known("podresources", {}, complete=True)
    assert allocations.asked == {"Get": 1}

    source.forget("s1")

    assert await told(source, MAIN) is None
    assert allocations.asked == {"Get": 2}


async def test_a_pod_that_is_not_there_yet_is_asked_for_again(allocations: Allocations, source: Kubelet) -> None:
    """A kubelet that does not list the pod has not said that it has no card."""
    allocations.entries.clear()
    await source.prefetch(MAIN)
    assert await told(source, MAIN) is None

    allocations.entries = [WEB]

    assert await told(source, MAIN) == GIVEN


async def test_init_containers_are_in_the_checkpoint_only(allocations: Allocations, source: Kubelet) -> None:
    """Podresources leaves them out: that says nothing, and the checkpoint has them."""
    init = replace(MAIN, container="init")
    assert await told(source, init) is None
    allocations.entries.append(replace(WEB, container="init", ids=("GPU-a",)))
    allocations.write()
    allocations.entries.pop()

    assert await told(source, replace(init, sandbox_id="s2")) == Known(
        "checkpoint", {GPU: ("GPU-a",)}, complete=True, by_uid=True
    )


async def test_a_kubelet_that_restarts(allocations: Allocations, source: Kubelet) -> None:
    """While it is away the checkpoint tells; the next pod after that is asked for again, and the log says both."""
    allocations.write()
    assert await told(source, MAIN) == CONFIRMED
    await allocations.stop()
    allocations.socket.unlink(missing_ok=True)
    assert await told(source, of("u1", "s2")) == replace(CONFIRMED, source="checkpoint")

    await allocations.start()

    assert await told(source, of("u1", "s3")) == CONFIRMED
    assert isinstance(source.log, RecordingLog)
    assert [(event.split(" what")[0], keys["source"]) for event, keys in source.log.lines] == [
        ("the kubelet does not report", "podresources"),
        ("the kubelet reports again", "podresources"),
    ]


async def test_a_silent_one_is_waited_for_once(allocations: Allocations, tmp_path: Path) -> None:
    """The second container of a pod does not wait for an answer that the first has waited for in vain.

    What the checkpoint says counts meanwhile, and the answer as soon as it comes.
    """
    allocations.answers.clear()
    allocations.write()
    source = kubelet(replace(FILES, timeout_s=0.05), tmp_path)
    await source.known(MAIN)
    source.files = replace(FILES, timeout_s=3600.0)  # to wait now would outlast the test
    await source._inquiries["s1"].reading

    assert await told(source, MAIN) == replace(CONFIRMED, source="checkpoint")
    assert source.counters.device_evidence["podresources", "late"] == 2

    allocations.answers.set()
    await asyncio.wait({source._inquiries["s1"].asking, source._inquiries["s1"].reading})
    assert await told(source, MAIN) == CONFIRMED
    await source.close()
    assert await told(source, MAIN) is None
    await source.tasks.stop()


async def test_the_checkpoint_counts_whatever_limit_a_create_has(allocations: Allocations, tmp_path: Path) -> None:
    """With NRI, it waits for less time than the kubelet's files have: a silent podresources takes nothing away."""
    allocations.answers.clear()
    allocations.write()
    rules, limits = replace(RULES, on_no_evidence="hide"), replace(FAST.device_limits, source_s=1.0)
    async with world(tmp_path, rules=rules, limits=limits) as node:
        assert await create(node, "u1", "all") == {"NVIDIA_VISIBLE_DEVICES": b"GPU-b"}
        assert node.counters.device_evidence["podresources", "late"] == 1
        allocations.answers.set()


async def test_a_silent_one_is_asked_again_whatever_fails(
    allocations: Allocations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody expected is told, and does not end the questions whether it is back."""
    monkeypatch.setattr(module, "RECHECK_S", 0.01)
    allocations.answers.clear()
    source = kubelet(replace(FILES, timeout_s=0.05), tmp_path)
    await source.known(MAIN)
    ask, failures = PodresourcesClient.pods, [TypeError("planted")]

    async def fails_once(*args: Any) -> list[Devices]:  # noqa: ANN401 (those of the method)
        if failures:
            raise failures.pop()
        return await ask(*args)

    monkeypatch.setattr(PodresourcesClient, "pods", fails_once)
    source.forget(MAIN.sandbox_id)  # nothing else asks any more
    await soon(lambda: not failures)
    allocations.answers.set()
    await soon(lambda: not source.patience.hanging)
    assert isinstance(source.log, RecordingLog)
    assert "background work failed" in source.log.events()
    await source.close()
    await source.tasks.stop()


async def test_one_that_comes_late_is_heard_without_another_pod(
    allocations: Allocations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a boot, where the pods come before its socket does: nothing says for hours that it never answered."""
    monkeypatch.setattr(module, "RECHECK_S", 0.01)
    await allocations.stop()
    allocations.socket.unlink(missing_ok=True)
    source = kubelet(FILES, tmp_path)
    await source.known(MAIN)
    assert source.counters.device_evidence["podresources", "failed"] > 0
    source.forget(MAIN.sandbox_id)

    await allocations.start()

    await soon(lambda: source.counters.device_evidence["podresources", "answered"] > 0)
    await source.tasks.until_ended("wait for podresources")
    await source.close()
    await source.tasks.stop()


async def test_a_checkpoint_that_hangs_is_told_of_once(allocations: Allocations, source: Kubelet) -> None:
    """However often creates ask for it; that it is back is told, too."""
    path = source._checkpoint.path
    os.mkfifo(path)
    source._checkpoint.timeout_s = 0.01
    for number in range(3):
        inquiry = source._inquire(of(f"u{number}"))
        assert inquiry is not None
        await inquiry.reading
    assert isinstance(source.log, RecordingLog)
    assert source.log.events().count("the kubelet does not report what it allocated") == 1
    assert source.counters.device_evidence["checkpoint", "hanging"] == 3

    with path.open("w"):
        path.unlink()
    await soon(lambda: not source.patience.hanging)
    source._checkpoint.timeout_s = 60.0  # it does not hang any more
    inquiry = source._inquire(of("u9"))
    assert inquiry is not None
    await inquiry.reading
    assert "the kubelet reports again what it allocated" in source.log.events()


async def test_a_damaged_checkpoint_keeps_what_was_known(allocations: Allocations, source: Kubelet) -> None:
    """What it said before still counts; that somebody is not in it says nothing any more, until it is whole again."""
    await allocations.stop()
    allocations.socket.unlink(missing_ok=True)
    allocations.write()
    assert await told(source, MAIN) == replace(CONFIRMED, source="checkpoint")
    whole = allocations.checkpoint.read_bytes()
    allocations.checkpoint.write_bytes(whole[: len(whole) // 2])

    assert await told(source, of("u1", "s2")) == Known("checkpoint", {GPU: ("GPU-b",)}, complete=False, by_uid=True)
    assert await told(source, of("u2", "s3")) == Known("checkpoint", {}, complete=False, by_uid=True)
    assert source.counters.device_evidence["checkpoint", "failed"] == 2
    assert isinstance(source.log, RecordingLog)
    problems = [str(keys["error"]) for _, keys in source.log.lines if keys["source"] == "checkpoint"]
    assert [problem.partition(":")[2][:16] for problem in problems] == [" not valid JSON:"]

    allocations.checkpoint.write_bytes(whole)

    assert await told(source, of("u2", "s4")) == Known("checkpoint", {}, complete=True, by_uid=True)


async def test_two_pods_of_one_name(allocations: Allocations, source: Kubelet) -> None:
    """Where the kubelet lists both, only the checkpoint can tell them apart; without it nobody can."""
    allocations.get = "unknown"
    allocations.entries.append(replace(WEB, pod_uid="u2", ids=("GPU-a",)))
    assert await told(source, MAIN) is None
    allocations.write()

    assert await told(source, of("u2")) == Known("checkpoint", {GPU: ("GPU-a",)}, complete=True, by_uid=True)
    assert await told(source, of("u1")) == replace(CONFIRMED, source="checkpoint")


@pytest.mark.parametrize("answers", [True, False])
async def test_nodes_of_cards_come_from_the_checkpoint(
    allocations: Allocations, source: Kubelet, answers: bool
) -> None:
    """Whichever of both tells what was given."""
    if not answers:
        await allocations.stop()
        allocations.socket.unlink(missing_ok=True)
    allocations.write()

    known = await source.known(MAIN)

    assert known is not None
    assert (known.source == "podresources") is answers
    assert known.near == {"GPU-b": frozenset({1})}


def test_a_name_that_two_pods_had_is_reused_for_both() -> None:
    """Each of them is the other one's former or later namesake; a third one as well, and nobody of another name."""
    names = PodNames()
    for uid in ("u1", "u1", "u2", "u3"):
        names.add("shop", "web", uid)
    names.add("shop", "api", "u1")
    names.add("team", "web", "u9")

    assert [names.is_reused("shop", "web", uid) for uid in ("u1", "u2", "u3", "u4")] == [True] * 4
    assert not names.is_reused("shop", "api", "u1")
    assert names.is_reused("shop", "api", "u2")
    assert not names.is_reused("team", "web", "u9")
    assert not names.is_reused("team", "db", "u9")


def test_what_is_remembered_is_bounded() -> None:
    """The names seen last stay."""
    names = PodNames()
    names.add("shop", "first", "u1")
    names.add("shop", "second", "u1")
    for number in range(MAX_NAMES - 2):
        names.add("shop", f"w{number}", "u1")
    names.add("shop", "first", "u1")
    names.add("shop", "last", "u1")

    assert names.is_reused("shop", "first", "u2")
    assert not names.is_reused("shop", "second", "u2")
