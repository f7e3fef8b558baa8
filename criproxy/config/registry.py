"""Finds policies by name: those of this package, and those of others with the entry-point group ``criproxy.policies``.

An entry point's name is what the policy file says after ``policy:``; it leads to a `criproxy.placement.policies.Entry`.
Packages are only listed here; one is imported when a policy file names its policy.
"""

from importlib.metadata import EntryPoint, entry_points

from criproxy.config.predecessors import instead_of_policy
from criproxy.config.reading.words import did_you_mean, shown
from criproxy.errors import ConfigError
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies import BUILTIN, Entry

GROUP = "criproxy.policies"


def names() -> list[str]:
    """The names of all policies: ours, then those of other packages."""
    external = {point.name for point in entry_points(group=GROUP)}
    return [*BUILTIN, *sorted(external - BUILTIN.keys())]


def find(name: str) -> Entry:
    """The policy *name*.

    Raises:
        ConfigError: there is none of that name or more than one, or its package is broken.
    """
    points = list({(point.value, _package(point)): point for point in entry_points(group=GROUP, name=name)}.values())
    if name not in BUILTIN and not points:
        known = names()
        hint = instead_of_policy(name) or did_you_mean(name, known)
        raise ConfigError(f"unknown policy {shown(name)}; policies are: {', '.join(known)}{hint}")
    if (name in BUILTIN) + len(points) > 1:
        owners = ["criproxy itself"] * (name in BUILTIN) + sorted(_package(point) for point in points)
        raise ConfigError(f"the policy {name!r} is in {' and in '.join(owners)}: uninstall all but one")
    return BUILTIN[name] if name in BUILTIN else _load(points[0])


def _load(point: EntryPoint) -> Entry:
    who = f"the policy {point.name!r} of {_package(point)} cannot be used"
    try:
        entry = point.load()
    except Exception as error:
        raise ConfigError(f"{who}: {point.value} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(entry, Entry):
        raise ConfigError(
            f"{who}: {point.value} must be a criproxy.placement.policies.Entry, but is of type {type(entry).__name__}"
        )
    options: object = entry.options  # whatever its author put there
    if not (isinstance(options, type) and issubclass(options, Options) and callable(entry.build)):
        raise ConfigError(
            f"{who}: its Entry needs a class of options that derives from "
            "criproxy.placement.options.policy_options.Options, "
            "and a callable that builds the policy"
        )
    return entry


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"
