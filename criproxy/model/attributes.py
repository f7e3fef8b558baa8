"""The cgroup attributes that criproxy sets on a container: one row each, from the grant to the kernel and back.

The create and our updates write them, drift and the reconciler read and compare them: all of these iterate over
`ATTRIBUTES`; the store keeps those of `STORED`, the history and `status` show those of `CPUSET`, and the history also
those of `FILES`. A new attribute is a field of `Applied` with the default None, and a row in
``ATTRIBUTES = (*STORED, NEW)``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

from criproxy.model.controls import DEFAULTS, IDLE, NATURAL, WEIGHT, as_shown
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_interned
from criproxy.model.grant import NO_CPUS, Applied, CpuQuota, Grant
from criproxy.model.record import Fact
from criproxy.model.resources import LIFTED_US, linear_weight, milli_to_shares
from criproxy.model.workload import Container

T = TypeVar("T")
Writer = Callable[[Any, T, Container], None]
"""Writes the value that a container should have into ``LinuxContainerResources`` of CRI, where empty or 0 means not
set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute(Generic[T]):
    """One attribute."""

    name: str
    """The field of `Applied`; the column of the table ``applied``."""
    noun: str
    """What people call it."""
    desired: Callable[[Grant], T | None]
    """The value that a grant requires; None: the attribute is left alone."""
    v1: str
    """The file with cgroup v1, below the folder of its controller."""
    controller: str
    v2: str
    """The file with cgroup v2."""
    written: str = ""
    """The file that is written with cgroup v2, if `v2` has only the part of it that the parent allows."""
    parse: Callable[[str], T]
    """Returns the value in a file."""
    create: Writer[T]
    update: Writer[T]
    reported: Callable[[Any], T | None]
    """Returns the value in the resources of the runtime's status; None if it is not there."""
    change: Callable[[T | None, T], str]
    """Returns a part of a sentence about a changed value; empty if the old one must be known for that."""
    plain: Callable[[T], str | int]
    """Returns the value for its column, and for JSON."""
    from_plain: Callable[[Any], T]
    is_cpuset: bool = False
    """Whether it says where the container runs: then it can always be read, and each update has it."""

    def agrees(self, grant: Grant, wanted: Applied, has: Applied) -> bool:
        """Whether a container *has* what is *wanted*, as far as that is known and *grant* requires anything."""
        value, should = getattr(has, self.name), getattr(wanted, self.name)
        return value is None or should is None or value == should or self.desired(grant) is None


def _cpuset(name: str, noun: str, desired: Callable[[Grant], CpuSet | None]) -> Attribute[CpuSet]:
    field = f"cpuset_{name}"

    def write(resources: Any, ids: CpuSet, _: Container) -> None:  # noqa: ANN401 (see `Writer`)
        setattr(resources, field, format_cpuset(ids))

    def change(old: CpuSet | None, new: CpuSet) -> str:
        return f"{noun} {format_cpuset(old or NO_CPUS) or 'unknown'} → {format_cpuset(new)}" if new else ""

    return Attribute(
        name=name,
        noun="cpuset",
        desired=desired,
        controller="cpuset",
        v1=f"cpuset.{name}",
        v2=f"cpuset.{name}.effective",
        written=f"cpuset.{name}",
        parse=parse_interned,
        create=write,
        update=write,
        reported=lambda resources: parse_interned(getattr(resources, field)),
        change=change,
        plain=format_cpuset,
        from_plain=parse_interned,
        is_cpuset=True,
    )


def _lift(resources: Any, lifted: bool, _: Container) -> None:  # noqa: ANN401
    if lifted:
        resources.cpu_quota = LIFTED_US  # the period stays: it is that of the quota which comes back


def _write_quota(resources: Any, lifted: bool, container: Container) -> None:  # noqa: ANN401
    if asked := container.asked_quota:  # both fields: runtimes differ in how they handle a missing period
        resources.cpu_quota = LIFTED_US if lifted else asked.quota_us
        resources.cpu_period = asked.period_us


QUOTA: Attribute[bool] = Attribute(
    name="lifted",
    noun="CFS quota",
    desired=lambda grant: None if grant.quota is CpuQuota.LEFT else grant.quota is CpuQuota.LIFTED,
    controller="cpu",
    v1="cpu.cfs_quota_us",
    v2="cpu.max",
    parse=lambda text: text.split()[0] in ("-1", "max"),
    create=_lift,
    update=_write_quota,
    reported=lambda resources: resources.cpu_quota < 0 if resources.cpu_quota else None,
    change=lambda old, lifted: "" if old is None else "without CFS quota" if lifted else "with a CFS quota",
    plain=int,
    from_plain=bool,
)
CPUSET: tuple[Attribute[Any], ...] = (
    _cpuset("cpus", "CPUs", lambda grant: grant.cpus),
    _cpuset("mems", "memory nodes", lambda grant: grant.mems or None),
)


def _write_weight(resources: Any, value: str, container: Container) -> None:  # noqa: ANN401
    if value == NATURAL:
        resources.cpu_shares = resources.cpu_shares or milli_to_shares(container.sizes.cpu_milli)
        value = str(linear_weight(resources.cpu_shares))
    resources.unified[WEIGHT] = value


def _write_idle(resources: Any, value: str, _: Container) -> None:  # noqa: ANN401
    if value == "1":
        resources.cpu_shares = 0  # the kernel refuses a weight for it, and so runc would fail at each later update
    resources.unified[IDLE] = value


_WRITERS: Mapping[str, Writer[str]] = {WEIGHT: _write_weight, IDLE: _write_idle}


def _file(file: str) -> Attribute[str]:
    """Return the row of a *file* that classes set: through ``unified``, which the runtime writes last."""

    def write(resources: Any, value: str, _: Container) -> None:  # noqa: ANN401
        resources.unified[file] = value

    def change(old: str | None, new: str | None) -> str:
        return "" if new is None else f"{file} {old or 'unknown'} → {new or 'as requested'}"

    return Attribute(
        name=file.replace(".", "_"),
        noun=file,
        desired=lambda grant: grant.controls.value(file),
        controller=file.partition(".")[0],
        v1=file,  # there is none
        v2=file,
        parse=partial(as_shown, file),
        create=_WRITERS.get(file, write),
        update=_WRITERS.get(file, write),
        reported=lambda resources: as_shown(file, resources.unified[file]) if file in resources.unified else None,
        change=change,
        plain=str,
        from_plain=str,
    )


FILES: tuple[Attribute[str], ...] = tuple([_file(file) for file in DEFAULTS])
"""What classes set. Most grants leave all of them alone."""
STORED: tuple[Attribute[Any], ...] = (*CPUSET, QUOTA)
"""The columns of the table ``applied``, which gets no others (docs/decisions/0042); a restart reads the rest anew."""
ATTRIBUTES: tuple[Attribute[Any], ...] = (*STORED, *FILES)


@lru_cache(maxsize=1024)
def granted(grant: Grant) -> Applied:
    """Return the applied state that equals *grant*; one shared object for equal states."""
    values = {each.name: each.desired(grant) for each in handled(grant) if not each.is_cpuset}
    return Applied(grant.cpus, grant.mems, **values)


def agrees(grant: Grant, wanted: Applied, has: Applied) -> bool:
    """Whether a container with *grant* *has* what is *wanted* on the way to it."""
    return wanted == has or all(each.agrees(grant, wanted, has) for each in ATTRIBUTES)


def in_place(grant: Grant, applied: Applied | None) -> bool:
    """Whether the applied state equals the grant."""
    if applied is None or not agrees(grant, granted(grant), applied):
        return False
    return not grant.controls.values or all(getattr(applied, each.name) is not None for each in _natural(grant))


def as_granted(read: Applied, grant: Grant | None, believed: Applied | None = None) -> Applied:
    """Return what a container with *grant* has, as it was *read*: with what is *believed* where that is unknown.

    Only the cpuset counts if the grant leaves an attribute alone. Equal sets are the grant's objects: that makes
    comparing a thousand of them cheap.
    """
    values: dict[str, Any] = {}
    natural = {each.name for each in _natural(grant)} if grant and grant.controls.values else ()
    for name in (each.name for each in (handled(grant) if grant else ()) if not each.is_cpuset):
        value = None if name in natural else getattr(read, name)
        if value is not None or believed:
            values[name] = getattr(believed, name) if value is None else value
    return Applied(grant.cpus if grant and grant.cpus == read.cpus else read.cpus, read.mems, **values)


def shown(prefix: str, has: Applied | Grant | None) -> dict[str, str | int]:
    """Return what a container *has*, or is granted, as facts; empty texts if unknown."""
    has = granted(has) if isinstance(has, Grant) else has
    return {f"{prefix}{each.name}": each.plain(getattr(has, each.name)) if has else "" for each in CPUSET}


def as_facts(prefix: str, has: Applied | Grant | None) -> dict[str, Fact]:
    """Return what a container *has*, or is granted, for the history: as `shown`, and the files of classes if any."""
    applied = granted(has) if isinstance(has, Grant) else has
    files = {each.noun: value for each in FILES if (value := getattr(applied, each.name, None)) is not None}
    return {**shown(prefix, applied), **({f"{prefix}files": files} if files else {})}


@lru_cache(maxsize=1024)
def handled(grant: Grant) -> tuple[Attribute[Any], ...]:
    """Return the attributes that *grant* does not leave alone."""
    return tuple([each for each in ATTRIBUTES if each.desired(grant) is not None])


@lru_cache(maxsize=1024)
def readable(grant: Grant) -> tuple[Attribute[Any], ...]:
    """Return those of the `handled` attributes whose value tells whether it is the granted one."""
    natural = _natural(grant)
    return tuple([each for each in handled(grant) if each not in natural])


def to_read(grant: Grant | None) -> tuple[Attribute[Any], ...]:
    """Return what to read of a container with *grant*, to know all that `Applied` says about it."""
    if grant is None or not grant.controls.values:
        return STORED
    return (*STORED, *(each for each in readable(grant) if each in FILES))


def _natural(grant: Grant) -> list[Attribute[str]]:
    """Return the files that are to have what the kubelet requests again: their content does not tell whether they do.

    They are in place once an update has said so.
    """
    return [each for each in FILES if each.desired(grant) == NATURAL]


def changes(had: Applied | None, has: Applied, attributes: tuple[Attribute[Any], ...] = ATTRIBUTES) -> Iterator[str]:
    """Yield the changes for a container that *had* something and *has* something else now."""
    for each in attributes:
        old, new = getattr(had, each.name, None), getattr(has, each.name)
        if old != new and (text := each.change(old, new)):
            yield text
