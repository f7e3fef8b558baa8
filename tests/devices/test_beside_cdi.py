"""Cards that come as CDI devices: what stands beside their names, and which names bring none."""

from collections.abc import Mapping

import pytest

from criproxy.devices.boundary import Word, boundary
from criproxy.devices.builtin import NVIDIA
from criproxy.devices.cards import Stock
from criproxy.devices.evidence import Given, Known, weigh
from tests.devices.fixture import ANYBODY, NOTHING, STOCKS, asked, given, rules

GPU = "nvidia.com/gpu=GPU-b"


def variables(cdi: tuple[str, ...], sets: Mapping[str, bool], *envs: str, **options: object) -> list[str]:
    """What a create with these CDI names says then, with specifications that set the variable or not."""
    stock = STOCKS["nvidia"]
    stocks = {**STOCKS, "nvidia": Stock(stock.cards, stock.shared, cdi_sets=sets)}
    chosen = rules(**options)
    create = asked(*envs, cdi=cdi)
    known = (given(nvidia_com__gpu="GPU-b"),)
    done = boundary(chosen, ANYBODY, create, weigh(chosen.classes, create, known, stocks), stocks)
    again = boundary(chosen, ANYBODY, done.asked, weigh(chosen.classes, done.asked, known, stocks), stocks)
    assert again.asked == done.asked
    assert done.asked.cdi == cdi
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
