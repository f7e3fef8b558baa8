"""What the annotations of pods ask for, read for several policies: closeness to cards, hidden threads, memory."""

from collections.abc import Collection, Iterable, Mapping

from criproxy.errors import BadAnnotation
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.machine.topology import MemoryKind
from criproxy.model.node import Node, changed_keys
from criproxy.model.remembered import remembered
from criproxy.model.text.annotations import COLD_START, parse_cold_start
from criproxy.model.workload import Container, ContainerState, Pod
from criproxy.placement.alloc.memory.place_memory import ANY, MemoryWish
from criproxy.placement.options.annotation_parsing import Wishes, written
from criproxy.placement.options.policy_options import Options
from criproxy.placement.options.usable import COUNTED

_OFF = {"false", "none", "mounts"}
"""Words of ``topologyhints`` that alone leave no hint of a device."""
_WORDS = {"true", "false", "none", "all", "mounts", "devices", "pod-resources"}
MEMORY_TYPE, PRESERVE = "memory-type", "memory.preserve"
_KINDS = {**{kind.value: frozenset({kind}) for kind in MemoryKind}, "mixed": frozenset(COUNTED)}
HIDE = "hide-hyperthreads"

_Answers = Mapping[str, dict[tuple[str, str], bool | None]]
"""By pod that says something, and by namespace and name of the container."""


def hints_of(wishes: Wishes) -> tuple[tuple[CpuSet, ...], bool]:
    """For each device the NUMA nodes next to it, and whether the container must be close to all of them.

    Raises:
        BadAnnotation: an annotation cannot be understood.
    """
    words = wishes.read("topologyhints", _words)
    strict = bool(wishes.boolean("strict.topologyhints"))
    hints = wishes.container.hints
    return ((), False) if words and words <= _OFF else (hints, strict and bool(hints))


def nodes_of(hints: tuple[CpuSet, ...]) -> CpuSet:
    """All NUMA nodes next to some device."""
    return NO_CPUS.union(*hints)


def near_words(hints: tuple[CpuSet, ...]) -> str:
    """``NUMA node 0 and NUMA node 2``."""
    return " and ".join(dict.fromkeys(f"NUMA node {format_cpuset(hint)}" for hint in hints))


def _words(text: str) -> set[str]:
    words = {word.strip().lower() for word in text.split(",") if word.strip()}
    if unknown := sorted(words - _WORDS):
        raise ValueError(f"{unknown[0]!r} must be true, false, or some of {', '.join(sorted(_WORDS))}")
    return words


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


class Hiding:
    """What pods say under the options of one policy; the answers stay as long as their pods."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._last: tuple[Mapping[str, Pod], _Answers] = {}, {}

    def annotated_pods(self, node: Node) -> Collection[str]:
        """The pods that say something about any container."""
        return self._answers(node.pods).keys()

    def hides(self, node: Node, container: Container) -> bool | None:
        """Whether *container* sees one thread of each core only; None where its pod says nothing of it."""
        of_pod = self._answers(node.pods).get(container.pod)
        if of_pod is None:
            return None
        name = container.namespace, container.name
        if name not in of_pod:
            of_pod[name] = self._read(node, container)
        return of_pod[name]

    def _read(self, node: Node, container: Container) -> bool | None:
        try:
            return Wishes(node, container, self._options).boolean(HIDE)
        except BadAnnotation:  # it came before this policy read annotations
            return None

    def _answers(self, pods: Mapping[str, Pod]) -> _Answers:
        last, answers = self._last
        if pods is last:
            return answers
        changed = frozenset(changed_keys(last, pods))
        kept = {key: of_pod for key, of_pod in answers.items() if key not in changed}
        about = (key for key in changed if key in pods and any(HIDE in name for name in pods[key].annotations))
        new = {key: dict[tuple[str, str], bool | None]() for key in about}
        self._last = pods, {**kept, **new}
        return self._last[1]


@remembered(4)
def hiding_of(options: Options) -> Hiding:
    """What pods say under the *options* of a policy."""
    return Hiding(options)
