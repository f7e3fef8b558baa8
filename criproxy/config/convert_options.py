"""The options of CRI-RM and of nri-plugins → those of a policy file, and a sentence for each that has no equivalent.

Their names are those of the policy file, but for the case of letters in CRI-RM, which does not matter there. So most of
the work is done by the names of our own options; only what differs is named here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from criproxy.config.convert_classes import ConvertedClasses, classes_of_crirm, classes_of_nri_plugins
from criproxy.config.predecessors import CRIRM_POLICIES
from criproxy.config.settings import find
from criproxy.config.validation_errors import dotted, model_at, names_of
from criproxy.errors import ConfigError
from criproxy.placement.classes.section import with_classes

NRI_POLICIES = {"BalloonsPolicy": "balloons", "TopologyAwarePolicy": "topology-aware"}
"""Kind of an object of nri-plugins → the policy."""
_LOGS = "not in a policy: see --log-level, --trace-calls and --http of criproxy serve"
_REASONS = {
    "agent": "not in a policy: see the options of criproxy agent",
    "confdirpath": "write the pools of these files into the policy",
    "conffilepath": "write the pools of this file into the policy",
    **dict.fromkeys(("dump", "instrumentation", "log", "logger"), _LOGS),
    "labelnode": "criproxy does not label nodes with pools",
    "memory": "criproxy counts all memory of a NUMA node but for the last 3 %",
    "relaxedisolation": "isolated CPUs are only a preference here",
    "resource-manager": "criproxy has no such controllers; for.qos of a class says which QoS class has it",
    "taintnode": "criproxy does not taint nodes for pools",
}
"""Name of an option in small letters → why it is not in a policy file."""
_WITH_CLASSES = ("blockio", "cpu", "rdt")
"""Modules of CRI-RM that define classes."""
_AMOUNT = re.compile(r"[0-9.]+m?")
Path = tuple[str | int, ...]


@dataclass(slots=True)
class Translation:
    """The content of a policy file, as far as there is an equivalent."""

    policy: dict[str, Any]
    lost: list[str] = field(default_factory=list)
    """A sentence for each option without an equivalent, and for what works differently."""

    def lose(self, path: Path, why: str = "") -> None:
        """Note that the option at *path* is not in the result."""
        reason = why or _REASONS.get(str(path[-1]).lower(), "criproxy has no such option")
        self.lost.append(f"{dotted(path)} is left out: {reason}")

    def take(self, options: Mapping[str, Any], where: Path) -> None:
        """Add the options of the policy that is named; *where* they come from leads to them in messages."""
        model = with_classes(find(self.policy["policy"]).options)
        self.policy |= _fitted(self, options, model, where, ())

    def add(self, classes: ConvertedClasses) -> None:
        """Add the classes of the configuration."""
        self.policy |= classes.options()
        self.lost += classes.lost


def of_nri_plugins(kind: str, spec: Mapping[str, Any]) -> Translation:
    """Translate the ``spec`` of an object of nri-plugins; *kind* is one of `NRI_POLICIES`."""
    done = Translation({"policy": NRI_POLICIES[kind]})
    classes, rest = classes_of_nri_plugins(spec)
    done.take(rest, ("spec",))
    done.add(classes)
    return done


def of_crirm(modules: Mapping[str, Any]) -> Translation:
    """Translate a configuration of CRI-RM, which has a module such as ``policy`` or ``logger`` under each name.

    Raises:
        ConfigError: it names no policy, or one that CRI-RM does not have.
    """
    found = _insensitive(modules, "policy")
    section = found if isinstance(found, Mapping) else {}
    active = str(_insensitive(section, "active") or "none")
    if active not in CRIRM_POLICIES:
        known = ", ".join(CRIRM_POLICIES)
        raise ConfigError(f"policy.Active: {active[:60]!r} is no policy of CRI-RM, which has {known}")
    done = Translation({"policy": CRIRM_POLICIES[active], "rules": "crirm"})
    for module in modules:
        if module.lower() not in ("policy", *_WITH_CLASSES):
            done.lose((module,))
    common = {key: value for key, value in section.items() if key.lower() != "active" and key not in CRIRM_POLICIES}
    for key in section:
        if key in CRIRM_POLICIES and key != active:
            done.lose(("policy", key), f"the policy is {active}")
    own = section.get(active)
    done.take(common, ("policy",))
    done.take(_changed(done, active, dict(own) if isinstance(own, Mapping) else {}), ("policy", active))
    done.add(classes_of_crirm(modules))
    return done


def _fitted(done: Translation, value: Any, model: type[BaseModel] | None, where: Path, at: Path) -> Any:  # noqa: ANN401 (YAML)
    """Return *value* with the names that *model* has for its options; what it has no name for is lost."""
    if isinstance(value, list):
        return [_fitted(done, each, model, (*where, index), at) for index, each in enumerate(value)]
    if not isinstance(value, Mapping) or model is None:
        return value
    names, fitted = {name.lower(): name for name in names_of(model)}, dict[str, Any]()
    for key, inner in value.items():
        name, path = names.get(key.lower()), (*where, key)
        if name is None:
            done.lose(path)
        elif (*at, name) == ("availableResources", "cpu") and _AMOUNT.fullmatch(str(inner)):
            done.lose(path, f'an amount ({inner}) does not say which CPUs: list them, such as "cpuset:0-3"')
        else:
            fitted[name] = _fitted(done, inner, model_at(model, (name,)), path, (*at, name))
    return {key: inner for key, inner in fitted.items() if inner != {}}


def _insensitive(data: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 (YAML)
    return next((value for key, value in data.items() if key.lower() == name), None)


def _changed(done: Translation, policy: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the *options* of a *policy* of CRI-RM for the one that does its work here."""
    match policy:
        case "static":
            return options | {"preferIsolatedCPUs": True}
        case "static-plus":
            own = {"exclusiveFor": ["Guaranteed", "Burstable"], "sharedRemainder": True, "preferIsolatedCPUs": True}
            return options | own
        case "static-pools":
            return list_of_pools(options)
        case "dynamic-pools":
            return _dynamic_pools(done, options)
    return options


def list_of_pools(options: dict[str, Any]) -> dict[str, Any]:
    """Give each pool its name as an option, as objects have it, where names lead to pools."""
    pools = _insensitive(options, "pools")
    if not isinstance(pools, Mapping):
        return options
    named = [{"name": name, **(pool if isinstance(pool, Mapping) else {})} for name, pool in pools.items()]
    return {key: value for key, value in options.items() if key.lower() != "pools"} | {"pools": named}


def _dynamic_pools(done: Translation, options: dict[str, Any]) -> dict[str, Any]:
    """Make a balloon type of each pool: it grows with requests, and lends idle CPUs where the pool measured use."""
    done.lost.append(
        "dynamic-pools becomes balloons, which grow with requests and use idle CPUs, not with measured use"
    )
    kinds = _insensitive(options, "dynamicpooltypes")
    types = [{**kind, "shareIdleCPUsInSame": "system"} for kind in kinds or () if isinstance(kind, Mapping)]
    rest = {key: value for key, value in options.items() if key.lower() != "dynamicpooltypes"}
    return rest | ({"balloonTypes": types} if types else {})
