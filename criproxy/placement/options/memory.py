"""Annotations about memory, read for policies: memory-type, cold-start and memory.preserve."""

from collections.abc import Iterable, Mapping

from criproxy.model.machine.topology import MemoryKind
from criproxy.model.node import Node
from criproxy.model.text.annotations import COLD_START, parse_cold_start
from criproxy.model.workload import ContainerState
from criproxy.placement.alloc.memory.memory import ANY, MemoryWish
from criproxy.placement.options.annotations import Wishes, written
from criproxy.placement.options.usable import COUNTED

MEMORY_TYPE, PRESERVE = "memory-type", "memory.preserve"
_KINDS = {**{kind.value: frozenset({kind}) for kind in MemoryKind}, "mixed": frozenset(COUNTED)}


def memory_wish(wishes: Wishes, default: MemoryWish = ANY, *, pinned: bool = True) -> MemoryWish:
    """What the annotations of a container ask for, and *default* beside that.

    Args:
        wishes: its annotations.
        default: what its policy or the type of its balloon asks for.
        pinned: what the option pinMemory says.

    Raises:
        BadAnnotation: one cannot be understood.
    """
    kinds = wishes.read(MEMORY_TYPE, _kinds)
    cold = wishes.read(COLD_START, parse_cold_start) is not None and not wishes.container.warm
    if wishes.boolean(PRESERVE):
        return MemoryWish(untouched=f"the annotation {PRESERVE} says so")
    if not pinned:
        return MemoryWish(untouched="pinMemory is false")
    if kinds is None and not cold:
        return default
    return MemoryWish(kinds or default.kinds, default.usual, cold)


def cold_start_s(annotations: Mapping[str, str], container: str) -> float | None:
    """How long the cold start of a *container* lasts, by its pod's *annotations*; None without a valid one."""
    found = written(annotations, COLD_START, container)
    try:
        return parse_cold_start(found[1]) if found else None
    except ValueError:
        return None  # the policy has refused the container


def cold_for_s(node: Node, key: str) -> float | None:
    """How long the cold start of a container lasts from its start on; None where it has none or has not begun."""
    container = node.containers.get(key)
    if container is None or container.warm or container.state is not ContainerState.RUNNING or key not in node.grants:
        return None
    pod = node.pods.get(container.pod)
    return cold_start_s(pod.annotations, container.name) if pod and pod.annotations else None


def memory_kinds(words: Iterable[str]) -> frozenset[MemoryKind]:
    """The kinds of memory in a list of words, ``mixed`` meaning all but the memory of devices.

    Raises:
        ValueError: a word is unknown, or there is none; the text says what would be right.
    """
    found: frozenset[MemoryKind] = frozenset()
    for word in words:
        if word.lower() not in _KINDS:
            raise ValueError(f"{word!r} must be dram, pmem, hbm, device or mixed")
        found |= _KINDS[word.lower()]
    if not found:
        raise ValueError("it must name dram, pmem, hbm, device or mixed")
    return found


def _kinds(text: str) -> frozenset[MemoryKind]:
    return memory_kinds(word.strip() for word in text.split(",") if word.strip())
