"""Asks a policy while CPUs are kept for pods: they are taken for all other pods, and free for their own pod.

A policy only knows grants, so taken CPUs are shown to it as the grant of a placeholder container, which is removed from
its answer. CPUs that cannot become exclusive are shown as `Node.watched_cpus`.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from criproxy.errors import NotEnough, Refused
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.entries import entries_of, with_entries, without
from criproxy.model.grant import NO_CPUS, Applied, Grant, Kept, Layout
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.kept import (
    NOTHING,
    keeps,
    kept_text,
    newest_sandbox,
    of_living,
    owned_by,
    unused,
    with_kept_of,
    within_total,
)
from criproxy.placement.rules.pod_total import PodLevel

_TAKEN, _LEAVING, _BARRED = "kept/taken", "kept/leaving", "kept/barred"
"""Keys of placeholder containers; no runtime's id or reservation has a slash."""


class Keeping:
    """Adds kept CPUs, and CPUs that containers of one pod share, to the answers of another policy.

    Args:
        policy: the other policy.
        may_give: whether it grants exclusive CPUs; if not, kept CPUs stay kept.
    """

    def __init__(self, policy: Policy, *, may_give: bool = True) -> None:
        self.options = options_of(policy)
        self._policy = policy
        self._may_give = may_give
        self._pod_level = PodLevel(policy, self._beside)

    def place(self, node: Node, container: Container) -> Layout:
        """Return the policy's layout, with the kept CPUs if they change; raise what the policy raises."""
        try:
            return self.asked(node, container)[1]
        except NotEnough as error:
            pod = node.pods.get(container.pod)
            if text := kept_text(node, pod.uid if pod else ""):
                raise NotEnough(f"{error}; {text}") from None
            raise

    def shown(self, node: Node, container: Container) -> Node | None:
        """Return the node as the policy sees it when it places *container*; None if it does not choose the CPUs."""
        pod = node.pods.get(container.pod)
        try:
            if pod is not None and self._pod_level.place(node, container, pod):
                return None
            return self.asked(node, container)[0]
        except Refused:
            own = node.kept.get(pod.uid, NOTHING).cpus if pod else NO_CPUS
            return _view(node, node.kept_cpus - own - node.owned_cpus)

    def release(self, node: Node, key: str) -> Layout:
        """Return the policy's layout without *key*; kept CPUs stay taken."""
        if not node.kept:
            return self._policy.release(node, key)
        others = (grant.exclusive for other, grant in node.grants.items() if grant.exclusive and other != key)
        return _shown(node, self._policy.release(_view(node, node.kept_cpus - NO_CPUS.union(*others)), key))

    def asked(self, node: Node, container: Container) -> tuple[Node, Layout]:
        """Return the node that the policy saw for its last answer, and the layout."""
        pod = node.pods.get(container.pod)
        if pod is not None and (together := self._pod_level.place(node, container, pod)):
            layout = together
            shown = node
        elif pod is not None and pod.uid in node.kept and self._may_give:
            shown, layout = self._with_own(node, container, pod)
        else:
            shown, layout = self._asked(node, container, node.kept_cpus)
        if pod is not None:
            layout = self._pod_level.gathered(node, container, layout)
        if pod is None or pod.uid not in node.kept:
            return shown, layout
        return shown, self._within_total(node, layout, pod)

    def changed(self, node: Node, kept: Mapping[str, Kept]) -> Node:
        """Return the node with other kept CPUs; shared containers leave these, and get those no longer kept."""
        after = node.replace(kept=kept)
        return self.reshared(after, after.exclusive_cpus ^ node.exclusive_cpus)

    def reshared(self, after: Node, moved: CpuSet) -> Node:
        """Return the node with shared containers on all shared CPUs, after *moved* CPUs were kept or released."""
        if not moved:
            return after
        view = _view(after, after.exclusive_cpus - after.owned_cpus)
        leaving = Grant(moved, after.topology.mems, moved)
        view = view.replace(grants=with_entries(view.grants, {_LEAVING: leaving}))
        layout = _shown(after, self._policy.release(view, _LEAVING))
        return after.replace(grants=entries_of(after.grants, layout.grants))

    def trimmed(self, node: Node) -> Node:
        """Return the node in which no pod keeps more than its total, according to its newest sandbox."""
        for uid, kept in node.kept.items():
            if (newest := newest_sandbox(node, uid)) is None:
                continue
            left = within_total(kept, owned_by(node, uid), newest, node)
            if left != kept:
                node = self.changed(node, with_kept_of(node, uid, left).kept)
        return node

    def ended(self, node: Node) -> Node:
        """Return the node without kept CPUs of pods that have ended."""
        kept = of_living(node)
        return node if kept is node.kept else self.changed(node, kept)

    def inherited(self, node: Node, pod: Pod, inherits: Mapping[str, CpuSet]) -> Node:
        """Return the node that keeps for *pod* the CPUs of its former sandbox that are not exclusive to others."""
        if not inherits or not keeps(self) or not pod.uid or pod.uid in node.kept or node.released:
            return node
        free = unused(self.options.within(node), NO_CPUS.union(*inherits.values()), ())
        kept = within_total(Kept(inherits).within(free), owned_by(node, pod.uid), pod, node)
        while kept.by_name:
            made = self.changed(node, {**node.kept, pod.uid: kept})
            here = (grant.cpus for grant in made.grants.values() if not grant.exclusive or grant.shares)
            left = kept.within(unused(node, kept.cpus, here))
            if left == kept and self.options.within(made).shared_cpus:
                return made
            kept = left if left != kept else NOTHING  # otherwise a shared container would have no CPU
        return node

    def _beside(self, node: Node, container: Container) -> Layout:
        """Return the policy's answer with all kept CPUs taken, except those of the container's own pod."""
        pod = node.pods.get(container.pod)
        own = node.kept.get(pod.uid, NOTHING).cpus if pod else NO_CPUS
        return self._asked(node, container, node.kept_cpus - own)[1]

    def _asked(self, node: Node, container: Container, taken: CpuSet) -> tuple[Node, Layout]:
        if not node.kept:
            return node, self._policy.place(node, container)
        view = _view(node, taken - node.owned_cpus)
        return view, _shown(node, self._policy.place(view, container))

    def _with_own(self, node: Node, container: Container, pod: Pod) -> tuple[Node, Layout]:
        """Return the layout for a container of *pod*, which has kept CPUs.

        It gets the CPUs of its last attempt, if they match its request. Otherwise it gets others if the total of the
        pod has room for them; if not, or if there are none, it gets kept CPUs of its pod.
        """
        own, old = node.kept[pod.uid], node.grants.get(container.key)
        is_new = old is None or not old.exclusive  # one created while the policy was not asked has shared until now
        had = own.of(container.name) - node.owned_cpus if is_new else NO_CPUS
        if had and (found := self._again(node, container, had)):
            return found
        with suppress(NotEnough):
            view, layout = self._asked(node, container, node.kept_cpus - had)
            mine = _owned(layout, container)
            if had:  # the former attempt is no longer the last one
                names = {**own.by_name, container.name: had & mine}
                return view, replace(layout, kept=with_kept_of(node, pod.uid, Kept(names).within(own.cpus)).kept)
            if not (mine and is_new) or self._has_room(node, pod, own, mine):
                return view, layout
        return self._of_own(node, container, pod, own)

    def _of_own(self, node: Node, container: Container, pod: Pod, own: Kept) -> tuple[Node, Layout]:
        """Return the layout for a container that gets kept CPUs of its *pod*, or others in addition to them."""
        view = _view(node, node.kept_cpus - own.cpus - node.owned_cpus)
        with suppress(NotEnough):
            only = _only(view, own.cpus - node.owned_cpus)
            layout = _shown(node, self._policy.place(only, container))
            mine = _owned(layout, container)
            if mine and mine <= own.cpus:  # the rest stays kept, and no other pod may share it
                after = node.replace(grants=entries_of(node.grants, layout.grants))
                made = self.reshared(after, own.cpus - after.owned_cpus)
                return only, replace(layout, grants=made.grants)
        layout = _shown(node, self._policy.place(view, container))
        owned = _owned(layout, container) | owned_by(node, pod.uid)
        return view, replace(layout, kept=with_kept_of(node, pod.uid, own.within(owned)).kept)

    def _again(self, node: Node, container: Container, had: CpuSet) -> tuple[Node, Layout] | None:
        """Return its place on the exclusive CPUs that its last attempt *had*; None if its request differs."""
        view = _only(_view(node, node.kept_cpus - had - node.owned_cpus), had)
        try:
            layout = _shown(node, self._policy.place(view, container))
        except NotEnough:
            return None
        mine, uid = _owned(layout, container), node.pods[container.pod].uid
        if not mine or not mine <= had:
            return None
        names = {**node.kept[uid].by_name, container.name: mine}
        reason = f"{container.title} has {numbered('CPU', mine)} again, kept for its pod until now"
        kept = with_kept_of(node, uid, Kept(names)).kept
        return view, replace(layout, kept=kept, reasons=(*layout.reasons, reason))

    @staticmethod
    def _has_room(node: Node, pod: Pod, own: Kept, mine: CpuSet) -> bool:
        """Whether the total of *pod* has room for the CPUs *mine* in addition to its kept CPUs."""
        if pod.cap_milli is None:
            return mine <= own.cpus
        return len(mine | own.cpus | owned_by(node, pod.uid)) * 1000 <= pod.cap_milli

    def _within_total(self, node: Node, layout: Layout, pod: Pod) -> Layout:
        """Return the *layout* without the excess of the kept CPUs of *pod*, and without kept CPUs that others share.

        CPUs that a smaller container leaves may be kept under another name, too: the policy did not see them as taken.
        """
        after = node.replace(grants=entries_of(node.grants, layout.grants), kept=layout.kept)
        own = after.kept.get(pod.uid)
        if own is None:
            return layout
        places = {grant.cpus - grant.exclusive for grant in after.grants.values() if grant.shares}
        given_up = owned_by(node, pod.uid) - after.owned_cpus
        free = own.within(own.cpus - given_up - NO_CPUS.union(*places))
        left = within_total(free, owned_by(after, pod.uid), pod, after)
        if left == own:
            return layout
        made = self.changed(after, with_kept_of(after, pod.uid, left).kept)
        return replace(layout, grants=made.grants, kept=made.kept)


def with_keepers(view: Node, node: Node) -> Node:
    """Return the policy's *view* of *node* with a container for each pod with kept CPUs, so that it can leave."""
    if _TAKEN not in view.grants:
        return view
    left, grants, containers = view.grants[_TAKEN].exclusive, dict[str, Grant](), dict[str, Container]()
    for uid, kept in sorted(node.kept.items()):
        if cpus := kept.cpus & left:
            key, left = f"kept/{uid}", left - cpus
            grants[key] = Grant(cpus, node.topology.mems, cpus)
            containers[key] = _keeper(node, uid, key, f"(kept {numbered('CPU', cpus)})")
    if left:
        grants[_TAKEN] = Grant(left, node.topology.mems, left)
    others = without(view.grants, (_TAKEN,))
    return view.replace(grants=with_entries(others, grants), containers=with_entries(view.containers, containers))


def _keeper(node: Node, uid: str, key: str, name: str) -> Container:
    pod = next((pod for pod in node.pods.values() if pod.uid == uid), Pod(key=uid))
    return Container(key=key, pod=key, name=name, pod_name=pod.name, namespace=pod.namespace, qos=pod.qos)


def _owned(layout: Layout, container: Container) -> CpuSet:
    grant = layout.grants.get(container.key)
    return grant.exclusive if grant else NO_CPUS


def _view(node: Node, taken: CpuSet) -> Node:
    """Return the node with the *taken* CPUs exclusive to a placeholder, and no kept CPUs."""
    if not taken:
        return node.replace(kept={}) if node.kept else node
    return node.replace(grants=with_entries(node.grants, {_TAKEN: Grant(taken, node.topology.mems, taken)}), kept={})


def _only(view: Node, cpus: CpuSet) -> Node:
    """Return the view in which only *cpus* can become exclusive."""
    barred = Container(key=_BARRED, pod="", name="")
    there = Applied(view.topology.cpus - cpus, view.topology.mems)
    return view.replace(
        containers=with_entries(view.containers, {_BARRED: barred}),
        applied=with_entries(view.applied, {_BARRED: there}),
    )


def _shown(node: Node, layout: Layout) -> Layout:
    """Return the layout without the placeholder containers."""
    there = layout.grants.keys() & {_TAKEN, _LEAVING}
    if not there:
        return layout
    return replace(layout, grants=without(entries_of(node.grants, layout.grants), there))
