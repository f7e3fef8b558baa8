"""Hiding every card in a create, for the case that the rule about devices itself has failed.

It shares nothing with the rule but the names of variables and mounts, so that what is wrong there is not wrong here.
CDI devices and device nodes stay: only device plugins put them into a create. The rule itself is in `devices.boundary`.
"""

from collections.abc import MutableSequence
from typing import Any

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes import DeviceClass
from criproxy.devices.device_rules import DeviceRules


def hide_all(request: api.CreateContainerRequest, rules: DeviceRules, runtime: str = "") -> None:
    """Let the container of *request* see no card, as far as *rules* say that any may be hidden.

    Args:
        request: is changed in place.
        rules: with ``hideUnallocated`` other than ``enforce`` nothing is hidden, and with ``userOverride`` other than
            ``strip`` what the pod asks for stays.
        runtime: the runtime handler of its pod, as far as it is known.
    """
    if rules.hide_unallocated == "enforce":
        for kind in rules.classes:
            _hide(request.config, kind, runtime, strip=rules.user_override == "strip")


def _hide(config: api.ContainerConfig, kind: DeviceClass, runtime: str, *, strip: bool) -> None:
    managed = [n for n, env in enumerate(config.envs) if env.key == kind.visible_env or kind.strips(env.key)]
    asking = [n for n, mount in enumerate(config.mounts) if kind.asked_by_mount(mount.container_path) is not None]
    if (managed or asking) and not strip:
        return
    _delete(config.envs, managed)
    _delete(config.mounts, asking)
    if kind.visible_env and kind.hide_value and kind.hides_in(runtime):
        config.envs.add(key=kind.visible_env, value=kind.hide_value.encode())


def _delete(field: MutableSequence[Any], numbers: list[int]) -> None:
    for number in reversed(numbers):
        del field[number]
