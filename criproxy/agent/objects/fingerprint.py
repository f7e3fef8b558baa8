"""The fingerprint of a set of pods in a NodeResourceTopology: the scheduler compares it with its own.

As in github.com/k8stopologyawareschedwg/podfingerprint v0001: XXH64 over the ascending hashes of the pods.
"""

from collections.abc import Iterable
from struct import unpack_from

METHOD = "all"
"""Which pods count, by the attribute nodeTopologyPodsFingerprintMethod: all of the node."""
_PREFIX = "pfp0v001"
_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of a set of pods, given by namespace and name."""
    hashes = sorted(xxh64(name.encode(), xxh64(namespace.encode())) for namespace, name in set(pods))
    return f"{_PREFIX}{xxh64(b''.join(value.to_bytes(8, 'little') for value in hashes)):016x}"


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64 of *data*, as https://github.com/Cyan4973/xxHash specifies it: 64 bits."""
    end = len(data) & ~31
    total = _stripes(data, end, seed) if end else (seed + _P5) & _MASK
    total = (total + len(data)) & _MASK
    words = (len(data) - end) // 8
    for lane in unpack_from(f"<{words}Q", data, end):
        total = (_rotated(total ^ _round(0, lane), 27) * _P1 + _P4) & _MASK
    position = end + 8 * words
    if len(data) - position >= 4:
        total = (_rotated(total ^ unpack_from("<I", data, position)[0] * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        position += 4
    for byte in data[position:]:
        total = _rotated(total ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    for shift, factor in ((33, _P2), (29, _P3), (32, 1)):
        total = (total ^ total >> shift) * factor & _MASK
    return total


def _stripes(data: bytes, end: int, seed: int) -> int:
    """Return the hash of the first *end* bytes, which are blocks of 32."""
    lanes = [(seed + offset) & _MASK for offset in (_P1 + _P2, _P2, 0, -_P1)]
    for start in range(0, end, 32):
        lanes = [_round(lane, word) for lane, word in zip(lanes, unpack_from("<4Q", data, start), strict=True)]
    total = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    for lane in lanes:
        total = ((total ^ _round(0, lane)) * _P1 + _P4) & _MASK
    return total


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK
