"""Cards that come as CDI devices: what stands beside their names, and which names bring none."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from criproxy.devices.boundary import Boundary, Word, boundary
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.cards import Stock
from criproxy.devices.evidence.evidence import Given, Known, weigh
from criproxy.errors import StatusCode
from tests.devices.fixture import ANYBODY, NOTHING, STOCKS, asked, given, rules, words

GPU = "nvidia.com/gpu=GPU-b"
CLAIM = "k8s.gpu.nvidia.com/claim=uid-gpu-0"
UNRESOLVED = (CLAIM, "k8s.gpu.nvidia.com/device=gpu-0", "management.nvidia.com/gpu=all")
FOREIGN = "nic.example.com/nic=a"
ALL = "NVIDIA_VISIBLE_DEVICES=all"
VOID = "NVIDIA_VISIBLE_DEVICES=void"
MOUNTS = "/var/run/nvidia-container-devices"


def beside(
    cdi: tuple[str, ...],
    *envs: str,
    sets: Mapping[str, bool] | None = None,
    known: Sequence[Known] = (),
    mounts: tuple[str, ...] = (),
    **options: Any,  # noqa: ANN401 (those of `DeviceRules`)
) -> Boundary:
    """What becomes of a create with these CDI names, with specifications that set the variable or not."""
    stock = STOCKS["nvidia"]
    stocks = {**STOCKS, "nvidia": Stock(stock.cards, stock.shared, cdi_sets=sets or {})}
    chosen = rules(**options)
    create = asked(*envs, cdi=cdi, mounts=mounts)
    done = boundary(chosen, ANYBODY, create, weigh(chosen.classes, create, known, stocks), stocks)
    again = boundary(chosen, ANYBODY, done.asked, weigh(chosen.classes, done.asked, known, stocks), stocks)
    assert again.asked == done.asked
    assert done.asked.cdi == cdi
    return done


def variables(cdi: tuple[str, ...], sets: Mapping[str, bool], *envs: str, **options: Any) -> list[str]:  # noqa: ANN401
    """What such a create says then, of a container that has a card by the kubelet."""
    return values(beside(cdi, *envs, sets=sets, known=(given(nvidia_com__gpu="GPU-b"),), **options))


def values(done: Boundary) -> list[str]:
    """The variables, as ``A=1``."""
    return [f"{name}={value.decode()}" for name, value in done.asked.envs]


@pytest.mark.parametrize(
    ("cdi", "sets", "envs", "then"),
    [
        pytest.param((GPU,), {GPU: False}, (), ["NVIDIA_VISIBLE_DEVICES=void"], id="silent"),
        pytest.param((GPU,), {GPU: True}, (), [], id="set"),
        pytest.param((GPU,), {}, (), [], id="no-spec"),
        pytest.param((GPU, "nvidia.com/gpu=0"), {GPU: False}, (), [], id="one-unknown"),
        pytest.param((GPU, "nvidia.com/gpu=0"), {GPU: False, "nvidia.com/gpu=0": True}, (), [], id="one-sets"),
        pytest.param(
            (GPU,),
            {GPU: False},
            ("NVIDIA_VISIBLE_DEVICES=GPU-b", "NVIDIA_VISIBLE_DEVICES=all"),
            ["NVIDIA_VISIBLE_DEVICES=void"],
            id="never-an-id",
        ),
    ],
)
def test_void_beside_cdi(
    cdi: tuple[str, ...], sets: Mapping[str, bool], envs: tuple[str, ...], then: list[str]
) -> None:
    """Where the specification leaves the image's variable alone, it is hidden: else the hook shows every card."""
    assert variables(cdi, sets, *envs) == then


def test_nothing_is_hidden_beside_cdi_where_nothing_is_hidden() -> None:
    """With hideUnallocated off or report the image's variable is left alone here, too."""
    assert not variables((GPU,), {GPU: False}, hide_unallocated="off")
    assert not variables((GPU,), {GPU: False}, hide_unallocated="report")


@pytest.mark.parametrize("known", [(), (NOTHING,)], ids=["untold", "told"])
@pytest.mark.parametrize("name", UNRESOLVED)
def test_what_a_pod_asks_for_goes_beside_a_device_that_tells_no_card(name: str, known: tuple[Known, ...]) -> None:
    """The device brings its card itself: whatever the pod says beside it could only bring others."""
    own = (ALL, "NVIDIA_IMEX_CHANNELS=0-2047", "NVIDIA_NVSWITCH=enabled")

    done = beside((name,), "A=1", *own, known=known, mounts=(f"{MOUNTS}/all", f"{MOUNTS}/GPU-a", "/data"))

    assert values(done) == ["A=1"]
    assert [mount.container_path for mount in done.asked.mounts] == ["/data"]
    assert words(done) == [Word.CDI_UNRESOLVED, Word.STRIPPED]
    unresolved, stripped = (finding.sentence for finding in done.findings)
    assert unresolved == (
        "nvidia: one of its CDI devices does not identify its card, so it is unknown which cards it sees"
    )
    assert stripped == (
        "nvidia: it asked for cards itself: criproxy removed NVIDIA_VISIBLE_DEVICES, NVIDIA_IMEX_CHANNELS, "
        f"NVIDIA_NVSWITCH, mount {MOUNTS}/all, mount {MOUNTS}/GPU-a"
    )


def test_what_its_plugin_passes_stays_beside_a_device_that_tells_no_card() -> None:
    """Channel 0 comes with a card, whichever it is."""
    done = beside((CLAIM,), "NVIDIA_IMEX_CHANNELS=0", mounts=(f"{MOUNTS}/imex/0",))

    assert values(done) == ["NVIDIA_IMEX_CHANNELS=0"]
    assert [mount.container_path for mount in done.asked.mounts] == [f"{MOUNTS}/imex/0"]
    assert words(done) == [Word.CDI_UNRESOLVED]


@pytest.mark.parametrize(
    ("sets", "options", "then"),
    [
        pytest.param({CLAIM: False}, {}, ["NVIDIA_VISIBLE_DEVICES=void"], id="silent"),
        pytest.param({CLAIM: True}, {}, [], id="set"),
        pytest.param({}, {}, [], id="no-spec"),
        pytest.param({CLAIM: False}, {"hide_unallocated": "report"}, [], id="reported"),
        pytest.param({CLAIM: False}, {"hide_unallocated": "off"}, [], id="off"),
        pytest.param({CLAIM: False}, {"user_override": "keep"}, [ALL], id="kept"),
        pytest.param({CLAIM: False}, {"user_override": "report"}, [ALL], id="override-reported"),
    ],
)
def test_void_beside_a_device_that_tells_no_card(
    sets: Mapping[str, bool], options: Mapping[str, Any], then: list[str]
) -> None:
    """As beside any other: by its specification, and only where cards are hidden and the pod's own words go."""
    done = beside((CLAIM,), ALL, sets=sets, **options)

    assert values(done) == then
    kept = "user_override" in options
    assert words(done) == [Word.CDI_UNRESOLVED, Word.OVERRIDE if kept else Word.STRIPPED]
    if not kept:
        assert values(beside((CLAIM,), sets=sets, **options)) == then


@pytest.mark.parametrize("cdi", [CLAIM, GPU])
@pytest.mark.parametrize(
    ("sets", "options"),
    [
        pytest.param(True, {}, id="set"),
        pytest.param(None, {}, id="no-spec"),
        pytest.param(False, {"hide_unallocated": "report"}, id="reported"),
        pytest.param(False, {"hide_unallocated": "off"}, id="off"),
    ],
)
def test_a_pod_that_hides_cards_itself_hides_them(cdi: str, sets: bool | None, options: Mapping[str, Any]) -> None:
    """Without its variable, that of the image would count, which may be all cards."""
    done = beside((cdi,), VOID, sets={} if sets is None else {cdi: sets}, **options)

    assert values(done) == [VOID]
    assert Word.STRIPPED not in words(done)


@pytest.mark.parametrize("mode", ["hide", "fail"])
def test_the_image_shows_nothing_beside_a_device_of_an_unknown_kind(mode: str) -> None:
    """The device brings what is in it itself, so that nobody has to wait for an answer that may never come."""
    done = beside((FOREIGN,), "A=1", on_no_evidence=mode)
    again = beside((FOREIGN,), VOID, on_no_evidence=mode)

    assert done.refusal is None
    assert values(done) == ["A=1", VOID]
    (finding,) = done.findings
    assert finding.word is Word.HIDDEN
    assert finding.sentence == (
        "nvidia: a CDI device of an unknown kind may include a card: NVIDIA_VISIBLE_DEVICES=void hides every other card"
    )
    assert (values(again), words(again)) == ([VOID], [])


@pytest.mark.parametrize("mode", ["hide", "fail"])
def test_what_would_be_hidden_beside_a_device_of_an_unknown_kind(mode: str) -> None:
    """It is told where nothing is hidden, and the image's variable counts."""
    reported = beside((FOREIGN,), on_no_evidence=mode, hide_unallocated="report")
    off = beside((FOREIGN,), on_no_evidence=mode, hide_unallocated="off")

    assert (values(reported), words(reported)) == ([], [Word.WOULD_HIDE])
    assert (values(off), words(off)) == ([], [])


def test_a_device_of_an_unknown_kind_is_no_answer_to_what_a_plugin_may_have_passed() -> None:
    """A variable may be that of a plugin: with fail it waits, and with keep nothing changes."""
    refused = beside((FOREIGN,), ALL, on_no_evidence="fail").refusal
    kept, image = beside((FOREIGN,), ALL), beside((FOREIGN,))

    assert refused is not None
    assert refused.code is StatusCode.UNAVAILABLE
    assert (values(kept), words(kept)) == ([ALL], [Word.NO_EVIDENCE])
    assert (values(image), words(image)) == ([], [Word.CDI_UNRESOLVED])


@pytest.mark.parametrize("name", ["imex-channel", "gdrcopy", "gds", "mofed"])
def test_what_nvidias_plugin_passes_beside_cards(name: str) -> None:
    """Its devices of other kinds are known, bring no card, and do not blur which cards there are."""
    beside = f"k8s.device-plugin.nvidia.com/{name}=all"
    plugin = "k8s.device-plugin.nvidia.com/gpu=GPU-b"

    with_card = weigh((NVIDIA,), asked(cdi=(plugin, beside)), (), STOCKS)["nvidia"]
    alone = weigh((NVIDIA,), asked("NVIDIA_VISIBLE_DEVICES=all", cdi=(beside,)), (NOTHING,), STOCKS)["nvidia"]
    untold = weigh((NVIDIA,), asked(cdi=(beside,)), (), STOCKS)["nvidia"]

    assert (with_card.given, with_card.ids) == (Given.CARDS, ("GPU-b",))
    assert alone.given is Given.NONE
    assert (untold.given, untold.source) == (Given.NONE, "request")


@pytest.mark.parametrize(
    "path",
    [
        "/var/run/nvidia-container-devicesall",
        "/var/run/nvidia-container-devicesGPU-b",
        "/var/run/./nvidia-container-devicesall/",
        "/var/run/nvidia-container-devices0/x",
    ],
)
def test_a_mount_asks_without_the_slash(path: str) -> None:
    """NVIDIA's toolkit compares the beginning of a path and nothing else."""
    create = asked(mounts=(path, "/var/run/nvidia", "/data"))
    evidence = weigh((NVIDIA,), create, (Known("podresources", {}, complete=True),), STOCKS)

    done = boundary(rules(), ANYBODY, create, evidence, STOCKS)

    assert [mount.container_path for mount in done.asked.mounts] == ["/var/run/nvidia", "/data"]
    assert Word.STRIPPED in [finding.word for finding in done.findings]


def test_what_would_be_hidden_is_not_called_enforced() -> None:
    """Who reads of a node that only reports sees that nothing was done."""
    done = boundary(
        rules(hide_unallocated="report"), ANYBODY, asked(), weigh((NVIDIA,), asked(), (NOTHING,), STOCKS), {}
    )

    (finding,) = done.findings
    assert finding.sentence == (
        "nvidia: no card is allocated to it (podresources), and it may see the cards that its image asks for, because "
        "hideUnallocated is report; with enforce, NVIDIA_VISIBLE_DEVICES=void hides every card"
    )


def test_ids_are_told_shortened() -> None:
    """However long those of a device plugin are, and however many."""
    ids = [f"GPU-{number}-{'x' * 5000}" for number in range(500)]
    create = asked(annotations={"devices.criproxy.io/nvidia.com_gpu": ",".join(ids)})

    done = boundary(rules(), ANYBODY, create, weigh((NVIDIA,), create, (), STOCKS), STOCKS)

    assert sum(len(finding.sentence) for finding in done.findings) < 3000
    assert "and 484 more" in done.findings[0].sentence
    assert done.asked.envs[0].value == ",".join(ids).encode()
