"""The assertions of scenario files: each kind is a function that reads one and answers with what checks it."""

import operator
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import combinations

from criproxy.config.mistakes import did_you_mean
from criproxy.model.cpuset import CpuSet, cpus_text, format_cpuset
from criproxy.simulate.scenario.place import At
from criproxy.simulate.scenario.seen import UNITS, Check, Seen

RULES = ("crirm", "nri")
_COMPARED = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "": operator.eq}
Units = frozenset[Hashable]
ReadOne = Callable[[str, At, At | None], Check]
ReadSeveral = Callable[[tuple[str, ...], At], Check]
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
    argument, read = OF_SEVERAL[kind]
    at.fields((kind, argument, "only", "note"), required=(argument,) if argument != "what" else ())
    names = (fields[kind].text(),) if isinstance(fields[kind].data, str) else fields[kind].texts()
    if not names:
        raise fields[kind].wrong("names no container")
    return Assertion(at.line, only, names, (read(names, fields.get(argument, at)),))


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


def _set(what: str, word: str, holds: Callable[[CpuSet, CpuSet], bool], *, several: bool = False) -> ReadOne:
    def read(name: str, at: At, n: At | None) -> Check:
        wanted = [item.cpuset() for item in at.items()] if several else [at.cpuset()]

        def check(seen: Seen) -> str:
            has = frozenset(unit for unit in seen.units(what, name) if isinstance(unit, int))
            if any(holds(has, each) for each in wanted):
                return ""
            return f"{name}: {what} should {word} {' or '.join(map(_shown, wanted))}, are {_shown(has)}"

        return check

    return read


def _counted(what: str) -> ReadOne:
    def read(name: str, at: At, n: At | None) -> Check:
        compare = at.read(_comparison)

        def check(seen: Seen) -> str:
            has, placed = seen.units(what, name), seen.placed[name]
            shown = _shown(placed.mems) if what == "mems" else cpus_text(_shown(placed.cpus))
            should = f"{name}: {what} should be {at.text()} in number, are {len(has)} ({shown})"
            return "" if compare(len(has)) else should

        return check

    return read


def _share(name: str, at: At, n: At | None) -> Check:
    assert n is not None
    part, compare, wanted = at.cpuset(), n.read(_comparison), n.text()

    def check(seen: Seen) -> str:
        has = seen.placed[name].cpus & part
        should = f"{name}: {wanted} of its cpus should be of {_shown(part)}, {len(has)} are ({_shown(has)})"
        return "" if compare(len(has)) else should

    return check


def _by_package(name: str, at: At, n: At | None) -> Check:
    mems = {value.key_number("a package"): value.cpuset() for value in at.entries().values()}

    def check(seen: Seen) -> str:
        packages, has = seen.units("packages", name), seen.placed[name].mems
        wanted = frozenset[int]().union(*(mems.get(each, frozenset()) for each in packages if isinstance(each, int)))
        where = ", ".join(sorted(map(str, packages)))
        return "" if has == wanted else f"{name}: in package {where} mems should be {_shown(wanted)}, are {_shown(has)}"

    return check


# ------------------------------------------------------------------ about several: {KIND: [NAME, …], what: …}


def _pairs(is_wrong: Callable[[Units, Units], object], words: str) -> ReadSeveral:
    """About each two of them; *words*: what is wrong then, in a sentence with the units that both have, or each."""

    def read(names: tuple[str, ...], at: At) -> Check:
        what = "cpus" if isinstance(at.data, dict) else at.one_of(UNITS)

        def check(seen: Seen) -> str:
            for one, other in combinations(names, 2):
                first, second = seen.units(what, one), seen.units(what, other)
                if is_wrong(first, second):
                    units = {"both": first & second, "first": first, "second": second}
                    shown = {name: _named(each) for name, each in units.items()}
                    return f"{one} and {other} should {words.format(what=what, **shown)}"
            return ""

        return check

    return read


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
        has = frozenset[int]().union(*(seen.placed[name].cpus for name in names))
        should = f"{_words(names)} should have {wanted} cpus in all, and have {len(has)} ({_shown(has)})"
        return "" if compare(len(has)) else should

    return check


OF_ONE: dict[str, ReadOne] = {
    **{what: _set(what, "be", operator.eq) for what in ("cpus", "mems", "nodes", "packages")},
    "cpus_in": _set("cpus", "be among", operator.le),
    "cpus_any": _set("cpus", "be", operator.eq, several=True),
    "includes": _set("cpus", "include", operator.ge),
    "excludes": _set("cpus", "be none of", frozenset.isdisjoint),
    **{f"n_{what}": _counted(what) for what in UNITS},
    "share_of": _share,
    "mems_by_pkg": _by_package,
}
OF_SEVERAL: dict[str, tuple[str, ReadSeveral]] = {
    "disjoint": ("what", _pairs(operator.and_, "share no {what}, and share {both}")),
    "equal": ("what", _pairs(operator.ne, "have the same {what}, and have {first} and {second}")),
    "not_equal": ("what", _pairs(operator.eq, "have different {what}, and both have {both}")),
    "unshared": ("n", _unshared),
    "one_of_sizes": ("sizes", _sizes),
    "sizes_sorted": ("sizes", _sizes),
    "total": ("n_cpus", _total),
}
"""Each with the other entry that it has; without ``what`` it is about CPUs."""


def _comparison(text: str) -> Callable[[int], bool]:
    found = _COUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} must be a number, such as 2 or '>=2'")
    compare, number = _COMPARED[found[1]], int(found[2])
    return lambda count: compare(count, number)


def _shown(cpus: Iterable[int]) -> str:
    return format_cpuset(frozenset(cpus)) or "none"


def _named(units: Iterable[Hashable]) -> str:
    """Ids in kernel notation; dies, which are pairs, as they are."""
    plain = list(units)
    numbers = [unit for unit in plain if isinstance(unit, int)]
    return _shown(numbers) if len(numbers) == len(plain) else ", ".join(sorted(map(str, plain)))


def _words(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
