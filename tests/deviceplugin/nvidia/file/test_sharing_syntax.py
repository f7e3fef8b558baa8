"""Which cards are shared how: the sections ``timeSlicing`` and ``mps``."""

import pytest

from criproxy.deviceplugin.nvidia.file.syntax import read_file
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.options import SharedResources, Sharing

UUID = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


def sharing(section: str, entry: str) -> Sharing:
    """What a file with one shared resource says."""
    return read_file(f"sharing: {{{section}: {{resources: [{entry}]}}}}").sharing


def shared(text: str) -> SharedResources:
    """What time slicing shares."""
    found = read_file(text).sharing.time_slicing
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param("all", "all", id="all"),
        pytest.param("2", 2, id="count"),
        pytest.param("2.0", 2, id="whole-float"),
        pytest.param("1e1", 10, id="exponent"),
        pytest.param("[]", (), id="empty"),
        pytest.param("[0, '1', 2.0]", ("0", "1", "2"), id="indexes"),
        pytest.param("[1:0, 0:1]", ("1:0", "0:1"), id="mig-indexes"),
        pytest.param("[null]", ("0",), id="null-counts-as-0"),
        pytest.param(f"[{UUID}]", (UUID,), id="uuid"),
    ],
)
def test_devices_are_all_a_count_or_a_list(devices: str, expected: object) -> None:
    """Each form is kept as what it is."""
    found = sharing("mps", f"{{name: gpu, replicas: 2, devices: {devices}}}").mps

    assert found is not None
    assert found.resources[0].devices == expected


@pytest.mark.parametrize(
    ("entry", "kind", "message"),
    [
        pytest.param("null", "value", "no resource name specified", id="null-entry"),
        pytest.param("5", "type", "cannot be 5", id="number-as-entry"),
        pytest.param("{replicas: x}", "value", "no resource name specified", id="name-is-looked-at-first"),
        pytest.param("{name: gpu}", "value", "no replicas specified", id="no-replicas"),
        pytest.param("{name: gpu, devices: x}", "value", "devices set as 'x' but the only valid", id="devices-second"),
        pytest.param("{name: gpu, Replicas: 2}", "value", "no replicas specified", id="case-matters"),
        pytest.param("{name: gpu, replicas: '2'}", "type", 'cannot be "2"', id="text-as-replicas"),
        pytest.param("{name: gpu, replicas: 1, rename: -}", "value", "number of replicas must be >= 2", id="one"),
        pytest.param(
            "{name: gpu, replicas: 2, rename: null}", "value", "resource name 'nvidia.com/'", id="null-rename"
        ),
        pytest.param("{name: null, replicas: 2}", "value", "resource name 'nvidia.com/'", id="null-name"),
        pytest.param("{name: 5, replicas: 2}", "type", "name: cannot be 5", id="number-as-name"),
        pytest.param("{name: gpu, devices: 0, replicas: 2}", "value", "devices set as '0' but a count", id="none"),
        pytest.param("{name: gpu, devices: '2', replicas: 2}", "value", "devices set as '2' but the only", id="text"),
        pytest.param("{name: gpu, devices: {b: 1, a: no}}", "value", 'devices spec: {"a":false,"b":1}', id="mapping"),
        pytest.param("{name: gpu, devices: 1e30}", "value", "unrecognized type for devices spec: 1e+30", id="huge"),
        pytest.param("{name: gpu, devices: [-1]}", "value", "devices list: , string", id="negative-index"),
        pytest.param("{name: gpu, devices: [x]}", "value", "devices list: x, string", id="no-reference"),
        pytest.param("{name: gpu, devices: [[0]]}", "value", "devices list: , string", id="list-in-list"),
    ],
)
def test_a_wrong_entry_is_told_in_nvidias_words(entry: str, kind: str, message: str) -> None:
    """Its keys are checked in the order of NVIDIA's plugin."""
    with pytest.raises(PluginConfigError) as error:
        sharing("timeSlicing", entry)

    assert error.value.mistake_class == kind
    assert message in str(error.value)
    assert "sharing.timeSlicing.resources[0]" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("sharing: {timeSlicing: null}", id="null"),
        pytest.param("sharing: {timeSlicing: {}}", id="empty"),
        pytest.param("sharing: {mps: {}}", id="empty-mps"),
        pytest.param("sharing: {mps: {resources: []}}", id="empty-list"),
        pytest.param("sharing: {mps: {resources: null}}", id="null-list"),
        pytest.param("sharing: {mps: {Resources: [{name: gpu, replicas: 2}]}}", id="case-matters"),
    ],
)
def test_a_section_needs_resources(text: str) -> None:
    """One that shares nothing is a mistake."""
    with pytest.raises(PluginConfigError, match="no resources specified"):
        read_file(text)


@pytest.mark.parametrize("text", ["", "sharing: null", "sharing: {}", "sharing: {mps: null}"])
def test_without_a_section_nothing_is_shared(text: str) -> None:
    """Not to share is no mistake, and neither is null as `mps`."""
    assert read_file(text).sharing == Sharing()


@pytest.mark.parametrize(
    ("said", "time_slicing", "mps"),
    [
        pytest.param("", False, True, id="not-said"),
        pytest.param("failRequestsGreaterThanOne: null,", False, True, id="null"),
        pytest.param("failRequestsGreaterThanOne: false,", False, False, id="no"),
        pytest.param("failRequestsGreaterThanOne: true,", True, True, id="yes"),
    ],
)
def test_mps_refuses_large_requests_unless_the_file_allows_them(said: str, time_slicing: bool, mps: bool) -> None:
    """The default of `failRequestsGreaterThanOne` depends on the section."""
    section = f"{{{said} resources: [{{name: gpu, replicas: 2}}]}}"
    found = read_file(f"sharing: {{timeSlicing: {section}, mps: {section}}}").sharing

    assert found.time_slicing is not None
    assert found.mps is not None
    assert found.time_slicing.fail_requests_greater_than_one is time_slicing
    assert found.mps.fail_requests_greater_than_one is mps
    assert found.shared is found.mps


def test_a_default_name_stands_in_for_a_missing_one() -> None:
    """`renameByDefault` leaves an explicit name alone."""
    entries = "[{name: gpu, replicas: 2}, {name: mig-1g.5gb, rename: slow, replicas: 2}]"

    found = shared(f"sharing: {{timeSlicing: {{renameByDefault: yes, resources: {entries}}}}}")

    assert [entry.rename for entry in found.resources] == ["nvidia.com/gpu.shared", "nvidia.com/slow"]
    plain = shared(f"sharing: {{timeSlicing: {{resources: {entries}}}}}")
    assert [entry.rename for entry in plain.resources] == ["", "nvidia.com/slow"]
