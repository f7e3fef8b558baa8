"""The assertions of scenario files: each kind is a function that reads one and answers with what checks it."""

import operator
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import combinations

from criproxy.config.reading.words import did_you_mean
from criproxy.model.cpuset import CpuSet, cpus_text, format_cpuset
from criproxy.simulate.scenario.place import At
from criproxy.simulate.scenario.seen import UNITS, Check, Seen

RULES = ("crirm", "nri")
_COMPARED = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "": operator.eq}
_COUNT = re.compile(r"\s*(>=|<=|>|<|)\s*([0-9]{1,9})\s*")


@dataclass(frozen=True, slots=True)
class Assertion:
    """One entry of an `expect`."""

    line: int
    only: str
    """The rules by which it has to hold; empty for all."""
    containers: tuple[str, ...]
    checks: tuple[Check, ...]


def read_assertion(at: At) -> Assertion:
    """The assertion at *at*; raises Wrong."""
    fields = at.entries()
    only = fields["only"].one_of(RULES) if "only" in fields else ""
    if "c" in fields:
        name = fields["c"].text()
        kinds = [key for key in fields if key not in ("c", "only", "note", "n")]
        if not kinds:
            raise at.wrong(f"says nothing about {name}: add one of {', '.join(OF_ONE)}")
        checks = tuple(_one(kind, name, fields) for kind in kinds)
        return Assertion(at.line, only, (name,), checks)
    kinds = [key for key in fields if key not in ("what", "sizes", "n", "n_cpus", "only", "note")]
    if len(kinds) != 1 or kinds[0] not in OF_SEVERAL:
        raise _unknown(at, [key for key in kinds if key not in OF_SEVERAL], "c", *OF_SEVERAL)
    kind = kinds[0]
    argument = ARGUMENTS[kind]
    at.fields((kind, argument, "only", "note"), required=(argument,) if argument != "what" else ())
    names = (fields[kind].text(),) if isinstance(fields[kind].data, str) else fields[kind].texts()
    if not names:
        raise fields[kind].wrong("names no container")
    return Assertion(at.line, only, names, (OF_SEVERAL[kind](names, fields.get(argument, at)),))


def _one(kind: str, name: str, fields: dict[str, At]) -> Check:
    if kind not in OF_ONE:
        raise _unknown(fields[kind], [kind], *OF_ONE)
    if kind == "share_of" and "n" not in fields:
        raise fields[kind].wrong("needs n, how many of the CPUs are in this list")
    return OF_ONE[kind](name, fields[kind], fields.get("n"))


def _unknown(at: At, kinds: Iterable[str], *known: str) -> Exception:
    near = next(filter(None, (did_you_mean(kind, known) for kind in kinds)), "")
    named = ", ".join(map(repr, kinds)) or "this"
    return at.wrong(f"there is no assertion {named}{near}; assertions are: {', '.join(known)}", of_key=True)


# ------------------------------------------------------------------ about one container: {c: NAME, KIND: VALUE}


def _exact(what: str) -> Callable[[str, At, At | None], Check]:
    def read(name: str, at: At, n: At | None) -> Check:
        wanted = at.cpuset()

        def check(seen: Seen) -> str:
            has = _ids(seen, what, name)
            return "" if has == wanted else f"{name}: {what} should be {_shown(wanted)}, are {_shown(has)}"

        return check

    return read


def _any_of(name: str, at: At, n: At | None) -> Check:
    options = [item.cpuset() for item in at.items()]

    def check(seen: Seen) -> str:
        has = seen.placed[name].cpus
        words = " or ".join(map(_shown, options))
        return "" if has in options else f"{name}: cpus should be {words}, are {_shown(has)}"

    return check


def _related(word: str, holds: Callable[[CpuSet, CpuSet], bool]) -> Callable[[str, At, At | None], Check]:
    def read(name: str, at: At, n: At | None) -> Check:
        wanted = at.cpuset()

        def check(seen: Seen) -> str:
            has = seen.placed[name].cpus
            return "" if holds(has, wanted) else f"{name}: cpus should {word} {_shown(wanted)}, are {_shown(has)}"

        return check

    return read


def _counted(what: str) -> Callable[[str, At, At | None], Check]:
    def read(name: str, at: At, n: At | None) -> Check:
        compare = at.read(_comparison)

        def check(seen: Seen) -> str:
            has = seen.units(what, name)
            cpus = (
                f" ({cpus_text(_shown(seen.placed[name].cpus))})"
                if what != "mems"
                else f" ({_shown(seen.placed[name].mems)})"
            )
            return "" if compare(len(has)) else f"{name}: {what} should be {at.text()} in number, are {len(has)}{cpus}"

        return check

    return read


def _share(name: str, at: At, n: At | None) -> Check:
    assert n is not None
    part, compare, wanted = at.cpuset(), n.read(_comparison), n.text()

    def check(seen: Seen) -> str:
        has = seen.placed[name].cpus & part
        return (
            ""
            if compare(len(has))
            else (f"{name}: {wanted} of its cpus should be of {_shown(part)}, {len(has)} are ({_shown(has)})")
        )

    return check


def _by_package(name: str, at: At, n: At | None) -> Check:
    mems = {value.key_number("a package"): value.cpuset() for value in at.entries().values()}

    def check(seen: Seen) -> str:
        packages = seen.units("packages", name)
        wanted = frozenset().union(
            *(mems.get(package, frozenset()) for package in packages if isinstance(package, int))
        )
        has = seen.placed[name].mems
        where = ", ".join(map(str, sorted(map(str, packages))))
        return "" if has == wanted else f"{name}: in package {where} mems should be {_shown(wanted)}, are {_shown(has)}"

    return check


# ------------------------------------------------------------------ about several: {KIND: [NAME, …], what: …}


def _disjoint(names: tuple[str, ...], at: At) -> Check:
    what = _what(at)

    def check(seen: Seen) -> str:
        for one, other in combinations(names, 2):
            if both := seen.units(what, one) & seen.units(what, other):
                return f"{one} and {other} should share no {what}, and share {_named(both)}"
        return ""

    return check


def _equal(names: tuple[str, ...], at: At) -> Check:
    what = _what(at)

    def check(seen: Seen) -> str:
        first = seen.units(what, names[0])
        for name in names[1:]:
            if (has := seen.units(what, name)) != first:
                return f"{names[0]} and {name} should have the same {what}, and have {_named(first)} and {_named(has)}"
        return ""

    return check


def _not_equal(names: tuple[str, ...], at: At) -> Check:
    what = _what(at)

    def check(seen: Seen) -> str:
        for one, other in combinations(names, 2):
            if (both := seen.units(what, one)) == seen.units(what, other):
                return f"{one} and {other} should have different {what}, and both have {_named(both)}"
        return ""

    return check


def _unshared(names: tuple[str, ...], at: At) -> Check:
    compare, wanted = at.read(_comparison), at.text()

    def check(seen: Seen) -> str:
        for name in names:
            alone = seen.unshared(name)
            if not compare(len(alone)):
                return f"{name}: {wanted} of its cpus should be its own, {len(alone)} are ({_shown(alone)})"
        return ""

    return check


def _sizes(names: tuple[str, ...], at: At) -> Check:
    wanted = sorted(item.number() for item in at.items())

    def check(seen: Seen) -> str:
        has = sorted(len(seen.placed[name].cpus) for name in names)
        return "" if has == wanted else f"{_words(names)} should have {_words(wanted)} cpus, and have {_words(has)}"

    return check


def _total(names: tuple[str, ...], at: At) -> Check:
    compare, wanted = at.read(_comparison), at.text()

    def check(seen: Seen) -> str:
        union = frozenset[int]().union(*(seen.placed[name].cpus for name in names))
        return (
            ""
            if compare(len(union))
            else (f"{_words(names)} should have {wanted} cpus in all, and have {len(union)} ({_shown(union)})")
        )

    return check


OF_ONE: dict[str, Callable[[str, At, At | None], Check]] = {
    "cpus": _exact("cpus"),
    "mems": _exact("mems"),
    "nodes": _exact("nodes"),
    "packages": _exact("packages"),
    "cpus_in": _related("be among", operator.le),
    "cpus_any": _any_of,
    "includes": _related("include", operator.ge),
    "excludes": _related("be none of", frozenset.isdisjoint),
    **{f"n_{what}": _counted(what) for what in ("cpus", "cores", "l3", "nodes", "dies", "pkgs", "packages", "mems")},
    "share_of": _share,
    "mems_by_pkg": _by_package,
}
OF_SEVERAL: dict[str, Callable[[tuple[str, ...], At], Check]] = {
    "disjoint": _disjoint,
    "equal": _equal,
    "not_equal": _not_equal,
    "unshared": _unshared,
    "one_of_sizes": _sizes,
    "sizes_sorted": _sizes,
    "total": _total,
}
ARGUMENTS = {
    "disjoint": "what",
    "equal": "what",
    "not_equal": "what",
    "unshared": "n",
    "one_of_sizes": "sizes",
    "sizes_sorted": "sizes",
    "total": "n_cpus",
}
"""The other entry that each kind has; without ``what`` it is about CPUs."""


def _what(at: At) -> str:
    return "cpus" if isinstance(at.data, dict) else at.one_of(tuple(UNITS))


def _comparison(text: str) -> Callable[[int], bool]:
    found = _COUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} must be a number, such as 2 or '>=2'")
    compare, number = _COMPARED[found[1]], int(found[2])
    return lambda count: compare(count, number)


def _ids(seen: Seen, what: str, name: str) -> CpuSet:
    return frozenset(unit for unit in seen.units(what, name) if isinstance(unit, int))


def _shown(cpus: Iterable[int]) -> str:
    return format_cpuset(frozenset(cpus)) or "none"


def _named(units: Iterable[Hashable]) -> str:
    """Ids in kernel notation; dies, which are pairs, as they are."""
    plain = list(units)
    numbers = [unit for unit in plain if isinstance(unit, int)]
    return _shown(numbers) if len(numbers) == len(plain) else ", ".join(sorted(map(str, plain)))


def _words(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
