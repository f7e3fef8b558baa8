"""Ids and resources that are gone while containers have them."""

from criproxy.deviceplugin.settings import State
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.node import GPU, Node, changed, offer, started

WEB, BATCH = Pod("uid-1", "web"), Pod("uid-2", "batch")


async def test_an_id_that_vanishes_while_it_is_in_use(node: Node) -> None:
    """It stays listed as unhealthy until its container has ended."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})

    node.plugins.publish(offer("b"))
    await node.kubelet.until_capacity(GPU, 2, healthy=1)
    assert node.kubelet.unhealthy(GPU) == {"a"}
    assert node.status().held == 1
    node.kubelet.remove(WEB)
    await node.kubelet.until_capacity(GPU, 1)

    assert node.status().held == 0


async def test_an_id_in_use_that_comes_back(node: Node) -> None:
    """It is as healthy as it is published."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})
    node.plugins.publish(offer("b"))
    await node.kubelet.until_capacity(GPU, 2, healthy=1)

    node.plugins.publish(offer("a", "b"))
    await node.kubelet.until_capacity(GPU, 2)

    assert node.status().held == 0


async def test_an_id_that_vanished_while_the_plugin_was_away(node: Node) -> None:
    """It is listed as unhealthy as well, while its container has it."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})
    await node.stop_plugins()

    node.start_plugins()
    node.plugins.publish(offer("b"))
    await node.kubelet.until_capacity(GPU, 2, healthy=1)

    assert node.kubelet.unhealthy(GPU) == {"a"}


async def test_nothing_is_known_of_ids_in_use(node: Node) -> None:
    """Where the kubelet does not say which are, those that are gone stay listed; it is said once."""
    await started(node, "a", "b")
    await node.kubelet.podresources.stop()
    node.plugins.publish(offer("b"))
    await node.log.until(lambda: node.said("does not say which devices are in use") == 1)
    asked = node.answers
    await node.log.until(lambda: node.answers > asked + 1)
    await node.kubelet.until_capacity(GPU, 2, healthy=1)
    assert node.status().held == 1

    await node.kubelet.podresources.start()
    await node.kubelet.until_capacity(GPU, 1)

    assert node.said("does not say which devices are in use") == 1


async def test_a_resource_that_is_offered_no_more(node: Node) -> None:
    """Its ids in use stay listed; when they are free it has no devices, and then no socket. It registers once."""
    await started(node, "a", "b", preference=lambda available, required, size: available[:size])
    await node.kubelet.admit(WEB, {GPU: 1})

    node.plugins.publish({})
    await node.kubelet.until_capacity(GPU, 1, healthy=0)
    node.kubelet.remove(WEB)
    await node.kubelet.until_capacity(GPU, 0)
    await node.log.until(lambda: node.said("offered no more") == 1)

    assert node.plugins.status == []
    assert node.kubelet.registered == [GPU]


async def test_a_resource_that_comes_back(node: Node) -> None:
    """It is served and registered again."""
    await started(node, "a")
    node.plugins.publish({})
    await node.kubelet.until_capacity(GPU, 0)
    await node.log.until(lambda: node.said("offered no more") == 1)

    node.plugins.publish(offer("a"))
    await node.kubelet.until_capacity(GPU, 1)
    assert node.said("another process serves it") == 0


async def test_a_former_resource_of_ours_that_containers_have(node: Node) -> None:
    """After a start with another file, what containers have under its name is listed; other plugins' never is."""
    await started(node, "a")
    await node.kubelet.admit(WEB, {GPU: 1})
    await node.stop_plugins()

    node.is_ours = lambda name: name == GPU
    node.start_plugins()
    node.plugins.publish(offer("a::0", "a::1", name=f"{GPU}.shared"))
    await node.kubelet.until(lambda: node.kubelet.registered.count(GPU) == 2)
    await node.kubelet.until_capacity(GPU, 1, healthy=0)
    node.kubelet.remove(WEB)
    await node.kubelet.until_capacity(GPU, 0)


async def test_a_card_in_use_that_is_shared_from_now_on(node: Node) -> None:
    """As long as a container has it whole, none of its replicas can be allocated; those of other cards can."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})

    node.plugins.publish(offer("a::0", "a::1", "b::0", "b::1", name=f"{GPU}.shared"))
    await node.kubelet.until_capacity(f"{GPU}.shared", 4, healthy=2)
    assert node.kubelet.healthy(f"{GPU}.shared") == {"b::0", "b::1"}
    assert node.kubelet.unhealthy(GPU) == {"a"}
    node.kubelet.remove(WEB)

    await node.kubelet.until_capacity(f"{GPU}.shared", 4)


async def test_a_shared_card_in_use_that_is_whole_from_now_on(node: Node) -> None:
    """As long as containers share it, it can be allocated to nobody alone, under the same name either."""
    await started(node, "a::0", "a::1", "b::0", "b::1")
    await node.kubelet.admit(WEB, {GPU: 1})

    node.plugins.publish(offer("a", "b"))
    await node.kubelet.until_capacity(GPU, 3, healthy=1)
    assert node.kubelet.healthy(GPU) == {"b"}
    node.kubelet.remove(WEB)

    await node.kubelet.until_capacity(GPU, 2)


async def test_a_card_in_use_under_another_name(node: Node) -> None:
    """A whole card that is offered under another name from now on is free there only when it is free here."""
    await started(node, "a")
    await node.kubelet.admit(WEB, {GPU: 1})

    node.plugins.publish(offer("a", name=f"{GPU}.fast"))
    await node.kubelet.until_capacity(f"{GPU}.fast", 1, healthy=0)
    node.kubelet.remove(WEB)

    await node.kubelet.until_capacity(f"{GPU}.fast", 1)


async def test_a_card_in_use_that_changed_while_the_plugin_was_away(node: Node) -> None:
    """It is known from the kubelet, also where no file names the former resource any more."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})
    await node.stop_plugins()

    node.start_plugins()
    node.plugins.publish(offer("a::0", "a::1", "b::0", "b::1", name=f"{GPU}.shared"))
    await node.kubelet.until_capacity(f"{GPU}.shared", 4, healthy=2)
    node.kubelet.remove(WEB)

    await node.kubelet.until_capacity(f"{GPU}.shared", 4)


async def test_cards_of_two_classes_with_one_name(node: Node) -> None:
    """What a container has of one class says nothing of the other's."""
    both = {**changed(offer("x0"), kind="one"), **changed(offer("x0", name="example.com/x"), kind="other")}
    await started(node, "x0", kind="one")
    await node.kubelet.admit(WEB, {GPU: 1})

    node.plugins.publish(both)

    await node.kubelet.until_capacity("example.com/x", 1, healthy=1)


async def test_what_is_in_use_is_not_known_yet(node: Node) -> None:
    """After a start no id can be allocated before the kubelet has said which cards containers have."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})
    await node.stop_plugins()
    node.kubelet.podresources.answers.clear()

    node.start_plugins()
    node.plugins.publish(offer("a::0", "a::1", "b::0", "b::1", name=f"{GPU}.shared"))
    await node.kubelet.until_capacity(f"{GPU}.shared", 4, healthy=0)
    node.kubelet.podresources.answers.set()

    await node.kubelet.until_capacity(f"{GPU}.shared", 4, healthy=2)
    assert node.kubelet.healthy(f"{GPU}.shared") == {"b::0", "b::1"}


async def test_a_kubelet_that_never_says_what_is_in_use(node: Node) -> None:
    """It has all ids after a while."""
    await node.kubelet.start()
    await node.kubelet.podresources.stop()

    node.start_plugins()
    node.plugins.publish(offer("a", "b"))

    await node.kubelet.until_capacity(GPU, 2)


async def test_a_kubelet_that_is_silent_about_what_is_in_use(node: Node) -> None:
    """It has all ids after the same while: one question that gets no answer takes no longer."""
    await node.kubelet.start()
    node.kubelet.podresources.answers.clear()

    node.start_plugins()
    node.plugins.publish(offer("a", "b"))

    await node.kubelet.until_capacity(GPU, 2)
    assert node.answers == 1


async def test_a_kubelet_that_comes_later(node: Node) -> None:
    """It is asked as soon as it is there, and then has all ids that are free."""
    node.kubelet.plugins_dir.mkdir(parents=True)
    node.start_plugins()
    node.plugins.publish(offer("a", "b"))
    await node.until_state(State.NO_KUBELET)
    assert node.status().healthy == 0

    await node.kubelet.start()

    await node.kubelet.until_capacity(GPU, 2)
