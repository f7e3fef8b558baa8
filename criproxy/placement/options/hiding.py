"""Which containers see one thread of each core only, as far as their pods say so.

Whenever others get other CPUs, this is asked about every container. What a pod says is read once for each container.
"""

from collections.abc import Collection, Mapping

from criproxy.errors import BadAnnotation
from criproxy.model.entries import changed_keys
from criproxy.model.node import Node
from criproxy.model.remembered import remembered
from criproxy.model.workload import Container, Pod
from criproxy.placement.options.annotations import Wishes
from criproxy.placement.options.policy_options import Options

HIDE = "hide-hyperthreads"

_Answers = Mapping[str, dict[tuple[str, str], bool | None]]
"""By pod that says something, and by namespace and name of the container."""


class Hiding:
    """What pods say under the options of one policy; the answers stay as long as their pods."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._last: tuple[Mapping[str, Pod], _Answers] = {}, {}

    def pods(self, node: Node) -> Collection[str]:
        """The pods that say something about any container."""
        return self._answers(node.pods).keys()

    def says(self, node: Node, container: Container) -> bool | None:
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
            return Wishes.by(self._options, node, container).boolean(HIDE)
        except BadAnnotation:  # it came before this policy read annotations
            return None

    def _answers(self, pods: Mapping[str, Pod]) -> _Answers:
        last, answers = self._last
        if pods is last:
            return answers
        changed = frozenset(changed_keys(last, pods))
        kept = {key: of_pod for key, of_pod in answers.items() if key not in changed}
        there = (key for key in changed if key in pods)
        new = {key: dict[tuple[str, str], bool | None]() for key in there if _is_about_hiding(pods[key])}
        self._last = pods, {**kept, **new}
        return self._last[1]


def _is_about_hiding(pod: Pod) -> bool:
    return any(HIDE in name for name in pod.annotations)


@remembered(4)
def hiding_of(options: Options) -> Hiding:
    """What pods say under the *options* of a policy."""
    return Hiding(options)
