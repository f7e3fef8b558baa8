"""What has to be at one moment of a life, and in which way it is not."""

from collections import Counter
from collections.abc import Iterator

from lab.lives.expected import ANY, GOOD, differs, expected
from lab.lives.happenings import Happenings
from lab.lives.node import KUBELET, PLUGIN
from lab.lives.pods import Wish


def unknown(life: Happenings) -> str:
    """In which way the kubelet, or the device plugin without one, does not know what it has to; empty: in none."""
    if failed := life.node.failed():
        return failed
    node = life.node
    if not node.up[KUBELET]:
        return _unpublished(life) if node.up[PLUGIN] else ""
    if not node.up[PLUGIN]:
        return differs({}, node.told())
    return differs(expected(life.machine, life.files, life.memory, node.in_use(), life.now_s), node.told())


def _unpublished(life: Happenings) -> str:
    """The same without a kubelet: then it is not known which cards containers have, and in which way."""
    should = expected(life.machine, life.files, life.memory, {}, life.now_s)
    told = life.node.published()
    for name, states in should.items():
        there = told.get(name, {})
        states.update({one: ANY for one, state in states.items() if state == GOOD and there.get(one) is False})
    listed = {
        name: {one: good for one, good in there.items() if good or one in should.get(name, {})}
        for name, there in told.items()
    }
    return differs({name: states for name, states in should.items() if states}, listed)


def must_admit(life: Happenings, wish: Wish) -> bool:
    """Whether there are enough devices for a pod, with all that it takes to admit it."""
    if not (life.node.up[KUBELET] and life.node.up[PLUGIN]):
        return False
    in_use = life.node.in_use()
    states = expected(life.machine, life.files, life.memory, in_use, life.now_s)
    wanted = Counter[str]()
    for name, each in wish.containers:
        wanted += Counter() if name.startswith("init") else Counter(each)
    free = {
        name: {one for one, state in states.get(name, {}).items() if state == GOOD} - set(in_use.get(name, ()))
        for name in wanted
    }
    return all(len(free[name]) >= count for name, count in wanted.items())


def left(life: Happenings) -> Iterator[str]:
    """What is left of pods that have ended."""
    world, guard = life.node.world, life.node.world.controller.devices
    if in_use := {name: ids for name, ids in life.node.in_use().items() if ids}:
        yield f"the ids {in_use}"
    if world.runtime.core.records.sandboxes or world.runtime.core.records.containers:
        yield "sandboxes or containers of the runtime"
    if world.controller.node.containers or world.controller.node.grants:
        yield "containers that criproxy knows"
    if guard.sandboxes():
        yield "sandboxes of whose devices criproxy knows"
    plugin = life.node.plugin
    if plugin is not None and (held := [each.resource for each in plugin._plugins.status if each.held]):
        yield f"ids that are listed only for their containers, of {', '.join(held)}"


def sockets_left(life: Happenings) -> list[str]:
    """The names of sockets that parts which have ended have left in the kubelet's folder."""
    kubelet = life.node.kubelet
    return sorted(each.name for each in kubelet.plugins_dir.glob("*.sock") if each != kubelet.socket)
