"""Hides every card in a create after the device rules have failed.

It shares only the names of variables and mounts with the rules, so that a defect there does not affect it. CDI devices
and device nodes stay: only device plugins put them into a create. The rules are in `devices.boundary`.
"""

from collections.abc import MutableSequence
from typing import Any

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules

FEW = 1000
"""Each entry that is deleted moves all entries behind it; with more deletions, it is faster to write the list anew."""
_SEES_OWN = "the container sees only the cards of the CDI devices and device nodes in its create"
_SEES_ASKED = "the container sees what it asks for, as hideUnallocated or userOverride in the policy file allows"


def hide_all(request: api.CreateContainerRequest, rules: DeviceRules, runtime: str = "") -> None:
    """Hide all cards that *rules* allow to hide from the container of *request*.

    Args:
        request: the create; changed in place.
        rules: with ``hideUnallocated`` other than ``enforce`` nothing is hidden, and with ``userOverride`` other than
            ``strip`` what the pod asks for stays.
        runtime: the runtime handler of its pod, as far as it is known.
    """
    if rules.hide_unallocated == "enforce":
        for kind in rules.classes:
            _hide(request.config, kind, runtime, strip=rules.user_override == "strip")


def left_to_see(rules: DeviceRules) -> str:
    """Return in a sentence what `hide_all` leaves to a container."""
    return _SEES_OWN if rules.hide_unallocated == "enforce" and rules.user_override == "strip" else _SEES_ASKED


def _hide(config: api.ContainerConfig, kind: DeviceClass, runtime: str, *, strip: bool) -> None:
    managed = [n for n, env in enumerate(config.envs) if env.key == kind.visible_env or kind.strips(env.key)]
    asking = [n for n, mount in enumerate(config.mounts) if kind.asked_by_mount(mount.container_path) is not None]
    if (managed or asking) and not strip:
        return
    _delete(config.envs, managed)
    _delete(config.mounts, asking)
    if (value := kind.hiding(runtime)) is not None:
        config.envs.add(key=kind.visible_env, value=value)


def _delete(field: MutableSequence[Any], numbers: list[int]) -> None:
    if len(numbers) <= FEW:
        for number in reversed(numbers):
            del field[number]
        return
    gone = set(numbers)
    kept = [each for number, each in enumerate(field) if number not in gone]
    del field[:]
    field.extend(kept)
