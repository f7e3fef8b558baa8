"""Which names of resources and which references to cards are accepted."""

import pytest

from criproxy.deviceplugin.nvidia.file.names import is_card_reference, resource_name, shared_name

UUID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


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
    assert shared_name(full) == f"{full}.shared"


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


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        pytest.param("0", True, id="index"),
        pytest.param("007", True, id="index-with-zeros"),
        pytest.param("18446744073709551616", False, id="index-beyond-64-bits"),
        pytest.param("+1", False, id="plus"),
        pytest.param("-1", False, id="minus"),
        pytest.param("", False, id="empty"),
        pytest.param("1:0", True, id="mig-index"),
        pytest.param("1:0:2", False, id="mig-index-of-three"),
        pytest.param("1:", False, id="mig-index-cut"),
        pytest.param(f"GPU-{UUID}", True, id="gpu"),
        pytest.param(f"GPU-{UUID.upper()}", True, id="gpu-in-capitals"),
        pytest.param(f"GPU-{UUID.replace('-', '')}", True, id="gpu-without-dashes"),
        pytest.param(f"GPU-{{{UUID}}}", True, id="gpu-in-braces"),
        pytest.param(f"GPU-(urn:uuid:{UUID})", False, id="gpu-urn-in-brackets"),
        pytest.param(f"GPU-URN:uuid:{UUID}", True, id="gpu-urn"),
        pytest.param(UUID, False, id="uuid-alone"),
        pytest.param("GPU-0", False, id="no-uuid"),
        pytest.param(f"gpu-{UUID}", False, id="gpu-in-small-letters"),
        pytest.param(f"MIG-{UUID}", True, id="mig"),
        pytest.param(f"MIG-GPU-{UUID}/10/0", True, id="old-mig"),
        pytest.param(f"MIG-GPU-{UUID}/10", False, id="old-mig-without-compute-instance"),
        pytest.param(f"MIG-GPU-{UUID}/10/0/1", False, id="old-mig-with-too-much"),
        pytest.param(f"MIG-GPU-{UUID}", False, id="old-mig-without-instances"),
    ],
)
def test_cards_are_named_by_index_or_uuid(text: str, accepted: bool) -> None:
    """The forms are those of NVIDIA's plugin; whether such a card exists is another question."""
    assert is_card_reference(text) is accepted
