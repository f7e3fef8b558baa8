"""What NVIDIA's file may say, and what is wrong with one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.configuration.nvidia_file import read

SHARED = "sharing: {timeSlicing: {resources: [%s]}}"
MPS = "flags: {mpsRoot: /m, migStrategy: %s}\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        pytest.param("version: v2", "version: unknown version: v2; write 'version: v1'", id="version"),
        pytest.param("version: 1", "version: unknown version: 1; write 'version: v1'", id="number-as-version"),
        pytest.param("- 1", "the file must be a mapping of keys to values, not a list", id="list"),
        pytest.param("flags: {gdsEnabled: 5}", "flags.gdsEnabled: must be true or false, not 5", id="bool"),
        pytest.param(
            "flags: {nvidiaDriverRoot: 5}",
            "flags.nvidiaDriverRoot: must be text, not 5; in quotes it is text",
            id="text",
        ),
        pytest.param(
            "flags: {migStrategy: all}",
            "flags.migStrategy: unknown MIG strategy: all; it can be none, single or mixed",
            id="mig",
        ),
        pytest.param(
            "flags: {plugin: {deviceListStrategy: [envvar, cdi]}}",
            "flags.plugin.deviceListStrategy[1]: invalid --device-list-strategy option: invalid strategy: cdi; "
            "it can be envvar, volume-mounts, cdi-annotations or cdi-cri",
            id="list-strategy",
        ),
        pytest.param(
            "flags: {plugin: {deviceListStrategy: 5}}",
            "flags.plugin.deviceListStrategy: must be a list, such as [a, b], not 5",
            id="number-as-list-strategy",
        ),
        pytest.param(
            "flags: {deviceDiscoveryStrategy: vfio}",
            "flags.deviceDiscoveryStrategy: invalid --device-discovery-strategy option vfio; it can be auto, nvml or "
            "tegra",
            id="discovery",
        ),
        pytest.param(
            "flags: {gfd: {sleepInterval: 1d}}",
            "flags.gfd.sleepInterval: invalid duration; write a number with a unit, such as 60s or 1h30m, or infinite",
            id="duration",
        ),
        pytest.param("flags: {gfd: {sleepInterval: 1e999}}", "the number 1e999 is too large", id="infinite-duration"),
        pytest.param(
            "resources: {gpus: [{name: gpu}]}", "the option 'resources.gpus[0].pattern' is missing", id="pattern"
        ),
        pytest.param(
            "imex: {channelIDs: [0, 2]}",
            "imex.channelIDs: invalid IMEX channel IDs: invalid IMEX config: channelIDs must be [] or [0]; found [0 2]",
            id="imex",
        ),
        pytest.param(
            "flags: {MIGSTRATEGY: mixed}",
            "flags.MIGSTRATEGY: write 'migStrategy', with these capitals",
            id="other-capitals",
        ),
        pytest.param(
            SHARED % "{name: gpu, Replicas: 2}",
            "sharing.timeSlicing.resources[0].Replicas: write 'replicas', with these capitals",
            id="other-capitals-below-sharing",
        ),
        pytest.param(
            MPS % "mixed",
            "sharing: using --mig-strategy=mixed is not supported with MPS; use another strategy, or timeSlicing",
            id="mps-with-mixed",
        ),
        pytest.param(
            MPS.replace("/m", "''") % "none",
            "sharing: using MPS requires --mps-root to be specified; flags.mpsRoot, or the variable MPS_ROOT, is "
            "usually /run/nvidia/mps",
            id="mps-without-its-root",
        ),
        pytest.param(
            "version: v1\n---\nflags: {}",
            "a second document begins here: a file has one, without '---' in between",
            id="two-documents",
        ),
        pytest.param(
            SHARED % "{name: g, replicas: 2, devices: 0}",
            "sharing.timeSlicing.resources[0].devices: devices set as '0' but a count of devices must be > 0; write "
            "all, a count, or a list of indexes (1), MIG indexes (1:0) and UUIDs (GPU-\u2026, MIG-\u2026)",
            id="no-devices",
        ),
        pytest.param(
            SHARED % "{name: g, replicas: 2, devices: []}",
            "sharing.timeSlicing.resources[0].devices: devices set as '[]', which shares no card; write all, a count,"
            " or a list of indexes (1), MIG indexes (1:0) and UUIDs (GPU-\u2026, MIG-\u2026)",
            id="an-empty-list-of-devices",
        ),
        pytest.param("version: v1\nversion: v1", "'version' is given twice, first in line 1", id="twice"),
    ],
)
def test_a_mistake_says_where_what_and_what_would_be_right(text: str, mistake: str) -> None:
    """NVIDIA's message, if it has one, stands between the key and our advice."""
    assert mistake in read(text).mistakes


def test_all_mistakes_are_reported() -> None:
    """Each with its place, in the order of the file."""
    found = read("flags:\n  migStrategy: all\n  gdsEnabled: x\nimex: 5\n").mistakes

    assert [mistake.partition(":")[0] for mistake in found] == ["flags.migStrategy", "flags.gdsEnabled", "imex"]


WORDS = st.sampled_from(
    "version flags resources sharing imex plugin gfd gpus mig timeSlicing mps name replicas devices rename pattern "
    "channelIDs required v1 all nvidia.com/gpu sleepInterval deviceListStrategy migStrategy".split()
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=15,
)


@given(VALUES)
def test_any_values_are_read_or_are_a_mistake(data: object) -> None:
    """Known keys in wrong places and of wrong types lead to no other error."""
    contents = read(json.dumps(data))

    assert (contents.config is None) is bool(contents.mistakes)
