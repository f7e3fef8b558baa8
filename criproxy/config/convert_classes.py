"""The classes of CRI-RM and nri-plugins → the options ``classes`` and ``rdt`` of a policy file.

Both define them beside their policies: CRI-RM in the modules ``rdt``, ``blockio`` and ``cpu``, nri-plugins under
``control``, and in the options ``cpuClasses`` and ``schedulingClasses`` of its policies.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from criproxy.config.validation_errors import dotted
from criproxy.placement.classes import peers
from criproxy.placement.classes.peers import Translated, value_of

QOS = ("Guaranteed", "Burstable", "BestEffort")
_BY_QOS = "usePodQoSAsDefaultClass"
_ALLOW = "classes: pods name classes only where annotations.allow permits cpu-class, rdt-class and so on"
_OF_RDT = ("enable", _BY_QOS.lower(), "options", "partitions")
Path = tuple[str | int, ...]


@dataclass(slots=True)
class ConvertedClasses:
    """What a policy file has of the classes of a peer."""

    classes: dict[str, dict[str, Any]] = field(default_factory=dict)
    rdt: dict[str, Any] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    """A sentence for each setting without an equivalent, and for what works differently."""
    _by_name: set[str] = field(default_factory=set)
    """Classes with a part that pods had only if something named it."""

    def add(self, kind: str, where: Path, found: Iterable[Translated], *, by_qos: bool = False) -> None:
        """Add classes that are defined at *where*; those that are defined already stay as they are.

        Args:
            kind: what they set.
            where: leads to them in messages.
            found: the classes.
            by_qos: whether pods of a QoS class have the class of the same name without an annotation.
        """
        for name, place, data, lost in found:
            self.lost += [f"{dotted((*where, *path))} is left out: {why}" for path, why in lost]
            entry = self.classes.setdefault(name, {})
            if by_qos and name in QOS:
                entry["for"] = {"qos": [name]}
            elif data:
                self._by_name.add(name)
            if kind in entry:
                self.lost.append(f"{dotted((*where, *place))} is left out: the class {name!r} has {kind} already")
            elif data:
                entry[kind] = data

    def options(self) -> dict[str, Any]:
        """Return the options of the policy file; none if there are no classes."""
        classes = {name: entry for name, entry in self.classes.items() if entry.keys() - {"for"}}
        for name, entry in classes.items():
            if "for" in entry and name in self._by_name:
                parts = " and ".join(kind for kind in entry if kind != "for")
                self.lost.append(f"classes.{name}: all {name} pods have its {parts}, since a class has one 'for'")
        if classes:
            self.lost.append(_ALLOW)
        return ({"rdt": self.rdt} if self.rdt and classes else {}) | ({"classes": classes} if classes else {})


def classes_of_nri_plugins(spec: Mapping[str, Any]) -> tuple[ConvertedClasses, dict[str, Any]]:
    """Return the classes in the ``spec`` of an object of nri-plugins, and its options without these."""
    done, control = ConvertedClasses(), value_of(spec, "control")
    where: Path = ("spec", "control")
    done.add("cpu", ("spec", "cpuClasses"), peers.cpu_classes(spec.get("cpuClasses")))
    done.add("cpu", (*where, "cpu", "classes"), peers.cpu_classes(value_of(value_of(control, "cpu"), "classes")))
    done.add("scheduling", ("spec", "schedulingClasses"), peers.scheduling_classes(spec.get("schedulingClasses")))
    if rdt := _enabled(done, (*where, "rdt"), value_of(control, "rdt")):
        _add_rdt(done, (*where, "rdt"), rdt, by_qos=value_of(rdt, _BY_QOS) is True)
    if block_io := _enabled(done, (*where, "blockio"), value_of(control, "blockio")):
        classes = peers.block_io_classes(value_of(block_io, "classes"))
        done.add("blockIO", (*where, "blockio", "classes"), classes, by_qos=value_of(block_io, _BY_QOS) is True)
    if isinstance(control, Mapping):
        known = ("cpu", "rdt", "blockio")
        done.lost += [
            f"{dotted((*where, key))} is left out: criproxy has no such option" for key in control if key not in known
        ]
    rest = {key: each for key, each in spec.items() if key not in ("cpuClasses", "schedulingClasses", "control")}
    return done, rest


def classes_of_crirm(modules: Mapping[str, Any]) -> ConvertedClasses:
    """Return the classes in the modules of a configuration of CRI-RM, whose pods have those of their QoS class."""
    done = ConvertedClasses()
    done.add("cpu", ("cpu", "classes"), peers.cpu_classes(value_of(value_of(modules, "cpu"), "classes")))
    _add_rdt(done, ("rdt",), value_of(modules, "rdt"), by_qos=True)
    found = peers.block_io_classes(value_of(value_of(modules, "blockio"), "classes"))
    done.add("blockIO", ("blockio", "Classes"), found, by_qos=True)
    return done


def _enabled(done: ConvertedClasses, where: Path, config: object) -> object:
    """Return the *config* of a controller of nri-plugins, which does nothing unless it is enabled; None if not."""
    if not isinstance(config, Mapping) or value_of(config, "enable") is True:
        return config
    done.lost.append(f"{dotted(where)} is left out: it is not enabled")
    return None


def _add_rdt(done: ConvertedClasses, where: Path, config: object, *, by_qos: bool) -> None:
    for key, value in config.items() if isinstance(config, Mapping) else ():
        if value and str(key).lower() not in _OF_RDT:
            done.lost.append(f"{dotted((*where, str(key)))} is left out: criproxy has no such option")
    section, classes = peers.rdt_section(config)
    done.rdt |= section
    done.add("rdt", where, classes, by_qos=by_qos)
