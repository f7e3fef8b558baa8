"""Mistakes that the rig must find, each planted into the device plugin or into criproxy."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from criproxy.deviceplugin import reload
from criproxy.deviceplugin.health import cards_health, health
from criproxy.deviceplugin.resources import plugin_manager
from criproxy.deviceplugin.server import registrar, resource, sockets
from criproxy.devices.boundary import Boundary
from criproxy.devices.evidence.device_request import Response, joined
from criproxy.devices.holdings import Holdings
from criproxy.node.devices import guard


@dataclass(frozen=True, slots=True)
class Plant:
    """One mistake.

    A plant takes the same parameters as what it replaces, so that it misbehaves and does not fail at the call.
    """

    put: Callable[[pytest.MonkeyPatch], None]
    says: str
    """What the rig says of it: a regular expression."""


def _forgets_ids_in_use(patch: pytest.MonkeyPatch) -> None:
    apply = plugin_manager.PluginManager._apply
    patch.setattr(plugin_manager.PluginManager, "_apply", lambda self, in_use: apply(self, {}))


def _does_not_ask_first(patch: pytest.MonkeyPatch) -> None:
    async def learn(self: plugin_manager.PluginManager) -> None:
        """Nothing is asked."""

    patch.setattr(plugin_manager.PluginManager, "learn", learn)


def _does_not_wait(patch: pytest.MonkeyPatch) -> None:
    learn = plugin_manager.PluginManager.learn

    async def learns(self: plugin_manager.PluginManager) -> None:
        await learn(self)
        self._has_answer = True

    patch.setattr(plugin_manager.PluginManager, "learn", learns)


def _recovers_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cards_health, "new", lambda at_s, *, hold_down_s: health.new(at_s, hold_down_s=0.0))
    patch.setattr(cards_health.CardsHealth, "hold_down", lambda self, seconds: None)


def _names_the_first_card(patch: pytest.MonkeyPatch) -> None:
    def first(response: Response, resource: str, ids: Sequence[str]) -> Response:
        return joined(response, resource, [re.sub("[0-9]", "0", each, count=1) for each in ids])

    patch.setattr(resource, "joined", first)


def _offers_nothing_with_a_bad_file(patch: pytest.MonkeyPatch) -> None:
    failed = reload.Reload.failed

    def drops(self: reload.Reload, text: str, instead: str = reload.OLD, *, requested: bool = False) -> None:
        failed(self, text, instead, requested=requested)
        self.publisher.plugins.publish({})

    patch.setattr(reload.Reload, "failed", drops)


def _set(owner: object, name: str, value: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, name, value)


PLANTS: Mapping[str, Plant] = {
    "ids in use are not listed": Plant(_forgets_ids_in_use, "and lacks"),
    "shares cards that are taken": Plant(
        _set(plugin_manager, "under_other_ids", lambda published, classes, in_use, former: {}),
        "should be unhealthy|given to several",
    ),
    "does not ask first": Plant(_does_not_ask_first, "given to several"),
    "does not wait for the kubelet": Plant(_does_not_wait, "given to several"),
    "recovers at once": Plant(_recovers_at_once, "should be unhealthy|knows only after"),
    "misses nodes that vanish": Plant(_set(cards_health, "node_vanished", health.node_back), "should be unhealthy"),
    "misses that its socket is gone": Plant(
        _set(registrar, "is_served", lambda server, snapshot: True), "should be|lacks|knows only after"
    ),
    "names the first card": Plant(_names_the_first_card, "gets the nodes|and sees|criproxy knows"),
    "hides nothing": Plant(
        _set(guard, "boundary", lambda rules, who, asked, evidence, stocks: Boundary(asked)), "and sees|gets the nodes"
    ),
    "remembers sandboxes": Plant(_set(Holdings, "forget", lambda self, sandbox_id: None), "sandboxes of whose devices"),
    "leaves sockets behind": Plant(_set(sockets, "release", lambda path, claimed: None), "sockets are left"),
    "a bad file takes all away": Plant(_offers_nothing_with_a_bad_file, "lacks|too much|knows only after"),
}
"""By what is wrong."""
