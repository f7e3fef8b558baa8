"""MIG devices, which exist, are given to profiles as vGPUs."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.cards.instances import Assigned, Instance, assign, satisfies
from criproxy.devices.classes.vgpu_profiles import CardChoice, CardSize, Profile

GPU = CardSize(id="GPU-a", index=0, model="NVIDIA H100 80GB HBM3", memory_mib=81559)
PLAIN = CardSize(id="GPU-b", index=1, model="Tesla T4", memory_mib=16384)
SIZES = {"1g.10gb": (9856, 14), "2g.20gb": (20096, 28), "3g.40gb": (40320, 42)}
SMALL = Profile(name="small", kind="nvidia", memory_mib=8192, enforce=("mig",))
LARGE = Profile(name="large", kind="nvidia", memory_mib=16384, cores_percent=25, enforce=("mig", "watch"))


def device(number: int, profile: str, card: CardSize = GPU) -> Instance:
    """Return ``MIG-0`` for 0, and so on."""
    memory_mib, cores_percent = SIZES[profile]
    return Instance(id=f"MIG-{number}", card=card, profile=profile, memory_mib=memory_mib, cores_percent=cores_percent)


def devices(*profiles: str) -> list[Instance]:
    """Return the parts of one GPU."""
    return [device(number, profile) for number, profile in enumerate(profiles)]


def names(found: Assigned) -> dict[str, list[str]]:
    """The MIG devices of each profile."""
    return {name: [vgpu.card for vgpu in vgpus] for name, vgpus in found.vgpus.items()}


def by_name(name: str, *patterns: str) -> Profile:
    """Return a profile of all MIG devices with these names."""
    return Profile(name=name, kind="nvidia", select=CardChoice(mig=patterns), enforce=("mig",))


@pytest.mark.parametrize(
    ("instances", "profiles", "expected"),
    [
        pytest.param(["1g.10gb"] * 2, [SMALL], {"small": ["MIG-0", "MIG-1"]}, id="each-is-one-vgpu"),
        pytest.param(
            ["1g.10gb", "3g.40gb"], [SMALL, LARGE], {"small": ["MIG-0"], "large": ["MIG-1"]}, id="who-asks-for-more"
        ),
        pytest.param(
            ["1g.10gb", "2g.20gb", "3g.40gb"],
            [by_name("a", "1g.*"), by_name("b", "3g.40gb")],
            {"a": ["MIG-0"], "b": ["MIG-2"]},
            id="by-their-names",
        ),
        pytest.param(
            ["1g.10gb", "2g.20gb"],
            [Profile(name="fast", kind="nvidia", cores_percent=20, enforce=("mig",))],
            {"fast": ["MIG-1"]},
            id="cores-alone",
        ),
        pytest.param(
            ["1g.10gb", "3g.40gb"],
            [Profile(name="third", kind="nvidia", memory_percent=33, enforce=("mig",))],
            {"third": ["MIG-1"]},
            id="a-share-of-the-cards-memory",
        ),
        pytest.param([], [SMALL], {"small": []}, id="no-device"),
    ],
)
def test_a_device_serves_the_profile_that_asks_for_most(
    instances: list[str], profiles: list[Profile], expected: dict[str, list[str]]
) -> None:
    """A profile has the MIG devices with what it asks for, unless another one asks for more."""
    assert names(assign([GPU], devices(*instances), profiles, [])) == expected


@pytest.mark.parametrize(
    ("instances", "profiles", "sentence"),
    [
        pytest.param(
            ["1g.10gb", "1g.10gb", "2g.20gb"],
            [Profile(name="huge", kind="nvidia", memory_mib=65536, cores_percent=50, enforce=("mig",))],
            "profile huge (65536 MiB and 50 % of the cores) has no MIG device; there are 2 x 1g.10gb (9856 MiB and "
            "14 % of the cores), 1 x 2g.20gb (20096 MiB and 28 % of the cores); without MIG: GPU-b",
            id="too-small",
        ),
        pytest.param(
            [],
            [SMALL],
            "profile small (8192 MiB) has no MIG device; the cards that it selects have none: GPU-a; "
            "without MIG: GPU-b",
            id="none-was-made",
        ),
        pytest.param(
            ["1g.10gb"],
            [by_name("other", "2g.20gb", "3g.*")],
            "profile other (2g.20gb or 3g.*) has no MIG device; there are 1 x 1g.10gb (9856 MiB and 14 % of "
            "the cores); without MIG: GPU-b",
            id="no-such-name",
        ),
        pytest.param(
            ["2g.20gb", "3g.40gb"],
            [SMALL, LARGE],
            "profile small (8192 MiB) has no MIG device; 2 that would serve it belong to profiles that ask for "
            "more: large; without MIG: GPU-b",
            id="another-asks-for-more",
        ),
        pytest.param(
            ["3g.40gb"],
            [LARGE, Profile(name="wide", kind="nvidia", memory_percent=10, cores_percent=40, enforce=("mig",))],
            "a MIG device 3g.40gb (40320 MiB and 42 % of the cores) serves large (16384 MiB and 25 % of the cores) and "
            "wide (8155 MiB and 40 % of the cores), of which none asks for more than the others; give them different "
            "MIG profiles in select.mig",
            id="more-memory-or-more-cores",
        ),
        pytest.param(
            ["1g.10gb"] * 7,
            [SMALL, Profile(name="same", kind="nvidia", memory_mib=8192, enforce=("mig",))],
            "a MIG device 1g.10gb (9856 MiB and 14 % of the cores) serves small (8192 MiB) and same (8192 MiB), of "
            "which none asks for more than the others; give them different MIG profiles in select.mig",
            id="as-much-said-once",
        ),
    ],
)
def test_what_contradicts_each_other(instances: list[str], profiles: list[Profile], sentence: str) -> None:
    """A profile without MIG devices, and a MIG device of two profiles, are refused with all sizes."""
    assert assign([GPU], devices(*instances), profiles, [PLAIN]).problems == (sentence,)


HALVES = [
    Profile(name="half", kind="nvidia", memory_mib=8192, enforce=("mig",), select=CardChoice(share_percent=50)),
    Profile(name="half", kind="nvidia", memory_percent=50, enforce=("mig",)),
]
UNKNOWN = CardSize(id="GPU-c", index=2, model=GPU.model, memory_mib=0)
LACKS = "profile small (8192 MiB) has no MIG device; "
SMALLER = replace(device(0, "3g.40gb"), profile="1c.3g.40gb")


@pytest.mark.parametrize(
    ("problems", "sentence"),
    [
        pytest.param(
            assign([GPU], devices(*["1g.10gb"] * 7), HALVES[:1], [PLAIN]).problems,
            "profile half (8192 MiB) has no MIG device; only cards with MIG count, and share: 50% of 1 card is less "
            "than one card; without MIG: GPU-b",
            id="a-share-of-one-card",
        ),
        pytest.param(
            assign([UNKNOWN], [device(0, "1g.10gb", UNKNOWN)], HALVES[1:], []).problems,
            "profile half (50 % of the memory) has no MIG device; there are 1 x 1g.10gb (9856 MiB and 14 % of the "
            "cores); the memory of the whole card is unknown: GPU-c",
            id="a-share-of-unknown-memory",
        ),
        pytest.param(
            assign([GPU], [], [SMALL], [], [SMALLER] * 3).problems,
            f"{LACKS}compute instances that are smaller than their GPU instance cannot be vGPUs: 3 x 1c.3g.40gb",
            id="compute-instances",
        ),
        pytest.param(assign([GPU], [], [SMALL], [GPU]).problems, f"{LACKS}without MIG: GPU-a", id="switched-off"),
        pytest.param(
            assign([GPU], [replace(device(0, "1g.10gb"), id="MIG-GPU-a/1/0")], [SMALL], []).problems,
            "MIG-GPU-a/1/0 cannot be a vGPU: only drivers since R470 give MIG devices a UUID",
            id="id-of-an-old-driver",
        ),
        pytest.param(assign([], [], [SMALL], []).problems, "", id="no-cards"),
    ],
)
def test_other_reasons(problems: tuple[str, ...], sentence: str) -> None:
    """A profile for which there is nothing, where there are cards at all."""
    assert problems == ((sentence,) if sentence else ())


def test_a_device_of_two_profiles_is_nobodys() -> None:
    """It is no vGPU, and is not to be offered otherwise: its container would have more than a profile says."""
    same = Profile(name="same", kind="nvidia", memory_mib=8192, enforce=("mig",))
    found = assign([GPU], devices("1g.10gb"), [SMALL, same], [])

    assert names(found) == {"small": [], "same": []}
    assert found.taken == {"MIG-0"}


_PROFILES = st.lists(
    st.builds(
        Profile,
        name=st.sampled_from("abcd"),
        kind=st.just("nvidia"),
        memory_mib=st.sampled_from([0, 4096, 8192, 20000]),
        cores_percent=st.sampled_from([0, 10, 28, 40]),
        select=st.builds(CardChoice, mig=st.sampled_from([(), ("1g.*",), ("2g.20gb", "3g.*")])),
        enforce=st.just(("mig",)),
    ),
    unique_by=lambda profile: profile.name,
    max_size=4,
)


@given(st.lists(st.sampled_from(sorted(SIZES)), max_size=7), _PROFILES)
def test_no_device_is_given_twice(profiles: list[str], wanted: list[Profile]) -> None:
    """A MIG device is of one profile at the most, which it satisfies, and no other that it satisfies asks for more."""
    instances = devices(*profiles)
    found = assign([GPU], instances, wanted, [])
    given_ = [card for cards in names(found).values() for card in cards]

    assert all(one != other for one, other in pairwise(sorted(given_)))
    by_id = {each.id: each for each in instances}
    for profile in wanted:
        for vgpu in found.vgpus[profile.name]:
            assert satisfies(by_id[vgpu.card], profile)
            others = [each for each in wanted if each is not profile and satisfies(by_id[vgpu.card], each)]
            assert all(
                (each.memory_mib, each.cores_percent) < (profile.memory_mib, profile.cores_percent) for each in others
            )
