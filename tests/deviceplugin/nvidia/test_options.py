"""What NVIDIA's file may say, and what is wrong with one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.configuration.nvidia_file import read
from criproxy.deviceplugin.nvidia.options import PluginConfig, ResourcePattern, Sharing, resource_name
from tests.deviceplugin.nvidia.files import config_of, mistakes_of

UUID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
SHARED = "sharing: {timeSlicing: {resources: [%s]}}"
MPS = "flags: {mpsRoot: /m, migStrategy: %s}\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"


@pytest.mark.parametrize(
    "text",
    ["", "version: v1", "flags:\nsharing: ~", "sharing: {}", "sharing: {mps: null}", "flags: {gdsEnabled: null}", "{}"],
)
def test_what_a_file_does_not_set_has_its_default(text: str) -> None:
    """A key whose value is null sets nothing."""
    assert config_of(text) == PluginConfig()


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
        pytest.param("version: v1\nversion: v1", "'version' is given twice, first in line 1", id="twice"),
    ],
)
def test_a_mistake_says_where_what_and_what_would_be_right(text: str, mistake: str) -> None:
    """NVIDIA's message, if it has one, stands between the key and our advice."""
    assert mistake in mistakes_of(text)


def test_all_mistakes_are_reported() -> None:
    """Each with its place, in the order of the file."""
    found = mistakes_of("flags:\n  migStrategy: all\n  gdsEnabled: x\nimex: 5\n")

    assert [mistake.partition(":")[0] for mistake in found] == ["flags.migStrategy", "flags.gdsEnabled", "imex"]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param("all", "all", id="all"),
        pytest.param("2", 2, id="count"),
        pytest.param("2.0", 2, id="whole-float"),
        pytest.param("[]", (), id="empty"),
        pytest.param("[0, '1', 2.0]", ("0", "1", "2"), id="indexes"),
        pytest.param("[1:0, 0:1]", ("1:0", "0:1"), id="mig-indexes"),
        pytest.param(f"[GPU-{UUID.upper()}, MIG-{UUID}]", (f"GPU-{UUID.upper()}", f"MIG-{UUID}"), id="uuids"),
        pytest.param(f"[MIG-GPU-{UUID}/10/0]", (f"MIG-GPU-{UUID}/10/0",), id="mig-before-r470"),
    ],
)
def test_devices_are_all_a_count_or_a_list(devices: str, expected: object) -> None:
    """Each form is kept as what it is."""
    found = config_of(SHARED % f"{{name: gpu, replicas: 2, devices: {devices}}}").sharing.time_slicing

    assert found is not None
    assert found.resources[0].devices == expected


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        pytest.param("null", "has no value: give one, or leave the line out", id="null-entry"),
        pytest.param("{name: gpu}", "replicas' is missing", id="no-replicas"),
        pytest.param("{replicas: 2}", "name' is missing", id="no-name"),
        pytest.param("{name: gpu, replicas: true}", "must be a whole number, not true", id="bool"),
        pytest.param("{name: gpu, replicas: 1}", "number of replicas must be >= 2; it is 1", id="one"),
        pytest.param("{name: gpu, replicas: 10001}", "10001 replicas of a card are too many", id="too-many"),
        pytest.param("{name: gpu, replicas: 2.5}", "must be a whole number, not 2.5", id="fraction"),
        pytest.param("{name: gpu, replicas: 012}", "a number must not begin with 0", id="octal"),
        pytest.param(
            "{name: gpu, replicas: 2, rename: A}", "incorrect format for resource name 'nvidia.com/A'", id="rename"
        ),
        pytest.param("{name: 5, replicas: 2}", "must be text, not 5", id="number-as-name"),
        pytest.param("{name: gpu, replicas: 2, devices: x}", "devices set as 'x' but the only valid", id="text"),
        pytest.param("{name: gpu, replicas: 2, devices: 0}", "devices set as '0' but a count of devices", id="none"),
        pytest.param("{name: gpu, replicas: 2, devices: 2.5}", "unrecognized type for devices spec: 2.5", id="part"),
        pytest.param("{name: gpu, replicas: 2, devices: {a: 1}}", "unrecognized type for devices spec", id="mapping"),
        pytest.param("{name: gpu, replicas: 2, devices: [-1]}", "device in devices list: -1, string", id="negative"),
        pytest.param("{name: gpu, replicas: 2, devices: [[0]]}", "device in devices list: , string", id="list-in-list"),
        pytest.param("{name: gpu, replicas: 2, devices: [GPU-0]}", "devices list: GPU-0, string", id="no-uuid"),
        pytest.param("{name: gpu, replicas: 2, devices: ['1:0:2']}", "devices list: 1:0:2", id="index-of-three"),
        pytest.param(
            f"{{name: gpu, replicas: 2, devices: [MIG-GPU-{UUID}/1]}}", f"MIG-GPU-{UUID}/1, string", id="mig-cut"
        ),
    ],
)
def test_a_wrong_entry_is_a_mistake(entry: str, message: str) -> None:
    """The mistake has the path of the entry, if YAML itself can read it."""
    found = mistakes_of(SHARED % entry)

    assert any(message in mistake for mistake in found), found


@pytest.mark.parametrize("section", ["{}", "{resources: []}", "{resources: null}"])
def test_a_section_that_shares_nothing_is_a_mistake(section: str) -> None:
    """Whoever writes it wants to share something."""
    for key in ("timeSlicing", "mps"):
        (found,) = mistakes_of(f"sharing: {{{key}: {section}}}")
        assert "no resources specified" in found
    (found,) = mistakes_of("sharing:\n  timeSlicing:\n")
    assert "no resources specified" in found


def test_a_default_name_replaces_a_missing_one() -> None:
    """`renameByDefault` leaves an explicit name alone."""
    entries = "[{name: gpu, replicas: 2}, {name: gpu, replicas: 2, rename: fast}]"
    found = config_of(f"sharing: {{timeSlicing: {{renameByDefault: true, resources: {entries}}}}}").sharing.shared

    assert found is not None
    assert [entry.rename for entry in found.resources] == ["nvidia.com/gpu.shared", "nvidia.com/fast"]


@pytest.mark.parametrize(
    ("setting", "time_slicing", "mps"),
    [
        pytest.param("", False, True, id="not-set"),
        pytest.param("failRequestsGreaterThanOne: null,", False, True, id="null"),
        pytest.param("failRequestsGreaterThanOne: false,", False, False, id="no"),
        pytest.param("failRequestsGreaterThanOne: true,", True, True, id="yes"),
    ],
)
def test_mps_refuses_large_requests_unless_the_file_allows_them(setting: str, time_slicing: bool, mps: bool) -> None:
    """The default of `failRequestsGreaterThanOne` depends on the section."""
    section = f"{{{setting} resources: [{{name: gpu, replicas: 2}}]}}"
    found = config_of(f"flags: {{mpsRoot: /m}}\nsharing: {{timeSlicing: {section}, mps: {section}}}").sharing

    assert isinstance(found, Sharing)
    assert found.time_slicing is not None
    assert found.mps is not None
    assert found.time_slicing.fail_requests_greater_than_one is time_slicing
    assert found.mps.fail_requests_greater_than_one is mps
    assert found.shared is found.mps


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        pytest.param("flags: {nvidiaDriverRoot: /a}", {}, "/a", id="of-the-driver"),
        pytest.param("flags: {nvidiaDriverRoot: /a, nvidiaDevRoot: ''}", {}, "/a", id="empty"),
        pytest.param("flags: {nvidiaDriverRoot: /a, nvidiaDevRoot: /b}", {}, "/b", id="its-own"),
        pytest.param("flags: {nvidiaDevRoot: /b}", {"driver-root": "/c"}, "/b", id="of-the-file"),
        pytest.param("flags: {nvidiaDevRoot: /b}", {"dev-root": ""}, "/", id="unset-by-a-flag"),
        pytest.param("", {}, "/", id="default"),
    ],
)
def test_device_nodes_are_below_the_drivers_root_unless_it_is_set(
    text: str, flags: dict[str, str], expected: str
) -> None:
    """An empty root counts as not set."""
    assert config_of(text, flags).flags.nvidia_dev_root == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("envvar", ("envvar",), id="one"),
        pytest.param("[envvar, cdi-cri]", ("envvar", "cdi-cri"), id="list"),
        pytest.param("[]", (), id="none"),
        pytest.param("null", ("envvar",), id="not-set"),
    ],
)
def test_list_strategies_are_one_text_or_a_list(value: str, expected: tuple[str, ...]) -> None:
    """Commas separate them only in flags and variables."""
    text = f"flags: {{plugin: {{deviceListStrategy: {value}}}}}"

    assert config_of(text).flags.plugin.device_list_strategy == expected
    assert mistakes_of("flags: {plugin: {deviceListStrategy: 'envvar,cdi-cri'}}")


@pytest.mark.parametrize("value", ["5", "0", "1.9", "60s", "1h30m", "250ms", "-1s", "'0'", "infinite"])
def test_intervals_have_units_or_are_nanoseconds(value: str) -> None:
    """Only an infinite one has an effect: the labels outlive the program."""
    gfd = config_of(f"flags: {{gfd: {{sleepInterval: {value}}}}}").flags.gfd

    assert gfd.outlives_program is (value == "infinite")


def test_patterns_get_full_names() -> None:
    """As resources everywhere."""
    found = config_of("resources: {gpus: [{pattern: '*T4*', name: t4}], mig: null}").resources

    assert found.gpus == (ResourcePattern(pattern="*T4*", name="nvidia.com/t4"),)
    assert found.mig == ()


@pytest.mark.parametrize(
    ("name", "full"),
    [
        pytest.param("gpu", "nvidia.com/gpu", id="domain-added"),
        pytest.param("nvidia.com/gpu", "nvidia.com/gpu", id="domain-given"),
        pytest.param("mig-1g.5gb", "nvidia.com/mig-1g.5gb", id="dots-and-dashes"),
        pytest.param("a" * 52, f"nvidia.com/{'a' * 52}", id="longest"),
    ],
)
def test_names_get_their_domain(name: str, full: str) -> None:
    """A name without NVIDIA's domain gets it."""
    assert resource_name(name) == full


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("", "incorrect format for resource name 'nvidia.com/'", id="empty"),
        pytest.param("example.com/gpu", "incorrect format for resource name 'nvidia.com/example.com/gpu'", id="domain"),
        pytest.param("GPU", "incorrect format for resource name 'nvidia.com/GPU'", id="capitals"),
        pytest.param("-gpu", "incorrect format", id="dash-first"),
        pytest.param("a..b", "incorrect format", id="empty-part"),
        pytest.param("gpu\n", "incorrect format", id="line-break"),
        pytest.param(
            "a" * 53, "fully-qualified resource name must be 63 characters or less: nvidia.com/aaa", id="long"
        ),
        pytest.param("\u00e4" * 27, "must be 63 characters or less", id="counted-in-bytes"),
    ],
)
def test_other_names_are_refused(name: str, message: str) -> None:
    """The message is NVIDIA's, with the full name."""
    with pytest.raises(ValueError, match="resource name") as error:
        resource_name(name)

    assert message in str(error.value)


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
