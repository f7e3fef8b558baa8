"""The fingerprint of a node's pods."""

import pytest

from criproxy.agent.objects.fingerprint import fingerprint, xxh64


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([], "pfp0v001ef46db3751d8e999", id="no-pods"),
        pytest.param(
            [("ns1", "n1"), ("ns1", "n2"), ("ns2", "n1"), ("ns3", "n1"), ("ns3", "n2")],
            "pfp0v001b92008c14168b3a6",
            id="golden-of-podfingerprint",
        ),
        pytest.param(
            [("default", "db-0"), ("kube-system", "kube-proxy-x")], "pfp0v001c659ac4f8eb8b270", id="reference-example"
        ),
    ],
)
def test_the_value_that_the_scheduler_computes(pods: list[tuple[str, str]], expected: str) -> None:
    """In any order, and each pod once."""
    assert fingerprint(pods) == expected
    assert fingerprint([*reversed(pods), *pods]) == expected


@pytest.mark.parametrize(
    ("length", "without_seed", "with_seed"),
    [
        (1, 0xE934A84ADB052768, 0x5014607643A9B4C3),
        (3, 0x9FF70A635A6209AB, 0xECF3373C29E497D4),
        (4, 0xAE5ACDC00A55AC41, 0xBA4A2450C7E2C0A9),
        (7, 0xD734A6B26F3DA63E, 0x715684C16C5F65A5),
        (8, 0x87116B3365B924EB, 0x22E331C009171F74),
        (31, 0x0F187C62B1E722B7, 0xA2BA2580312F0F94),
        (32, 0x91B0CB0931A8C629, 0xBA4945101354E701),
        (33, 0x931B043CF8D65B94, 0x1F245ED9DDE2A6C8),
        (47, 0x980974FEB2A7370D, 0xC97CA97762CC778D),
        (64, 0xBF3052E3445775D0, 0x7A368C1F823DFC0E),
        (100, 0x8E2272C08247D5DB, 0xAC47104AC97E0BD1),
    ],
)
def test_xxh64(length: int, without_seed: int, with_seed: int) -> None:
    """Every branch of the algorithm, with values of the library xxhash 4.1."""
    data = bytes(i * 7 % 256 for i in range(length))
    assert (xxh64(data), xxh64(data, 2654435761)) == (without_seed, with_seed)
