"""Dataclasses whose methods are compiled when they are first called do what others do."""

import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from criproxy.model.late_methods import compile_late

pytestmark = pytest.mark.skipif(
    not hasattr(dataclasses, "_cmp_fn"), reason="this Python compiles all methods of a class at once"
)


@pytest.fixture
def late() -> Iterator[None]:
    """Let this process compile late, until the test ends."""
    before = dict(vars(dataclasses))
    compile_late()
    yield
    vars(dataclasses).update(before)


def _classes() -> list[type[Any]]:
    """Return classes of every kind that criproxy has: their order is that of `CASES`."""

    @dataclass(frozen=True, slots=True, order=True)
    class Place:
        """A value."""

        row: int
        names: list[str] = field(default_factory=list)
        weight: float = field(default=1.0, compare=False)
        note: str = field(default="", repr=False)

    @dataclass(slots=True)
    class Counter:
        """Something that changes."""

        count: int = 0
        twice: int = field(init=False)
        next: Any = None

        def __post_init__(self) -> None:
            self.twice = 2 * self.count

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        """Without arguments by position."""

        name: str
        size: int = 3

    @dataclass(frozen=True)
    class Base:
        """One field, and no slots."""

        key: str

    @dataclass(frozen=True)
    class Derived(Base):
        """Two."""

        more: tuple[int, ...] = ()

    @dataclass(frozen=True, slots=True)
    class Empty:
        """Nothing."""

    @dataclass(eq=False, repr=False)
    class Plain:
        """Compared by identity."""

        value: int = 0

    return [Place, Counter, Named, Base, Derived, Empty, Plain]


def _cycle(classes: list[type[Any]]) -> str:
    counter = classes[1](1)
    counter.next = counter
    return repr(counter)


def _set(value: Any, name: str) -> None:  # noqa: ANN401
    setattr(value, name, 1)


CASES: dict[str, Callable[[list[type[Any]]], Any]] = {
    "repr": lambda of: [repr(of[0](1, ["a"], 2.0, "n")), repr(of[1](4)), repr(of[4]("k", (1,))), repr(of[5]())],
    "repr of itself": _cycle,
    "equal": lambda of: [of[0](1) == of[0](1, [], 9.0), of[0](1) == of[0](2), of[5]() == of[5](), of[6]() == of[6]()],
    "equal to another type": lambda of: [of[3]("k") == of[4]("k"), of[3]("k") == "k", of[3]("k").__eq__(1)],
    "not a number": lambda of: [of[3](float("nan")) == of[3](float("nan")), of[3](float("inf")) == of[3](float("inf"))],
    "hash": lambda of: [hash(of[2](name="a")) == hash(("a", 3)), hash(of[4]("k")) == hash(("k", ()))],
    "hash of what changes": lambda of: hash(of[1]()),
    "hash of a list": lambda of: hash(of[0](1)),
    "order": lambda of: [of[0](1) < of[0](2), of[0](2) <= of[0](1), of[0](1) > of[0](2), of[0](1) >= of[0](1)],
    "order of other types": lambda of: of[0](1) < 2,
    "after init": lambda of: [of[1](5).twice, of[1]().twice, of[0](1).names is of[0](1).names],
    "missing": lambda of: of[0](),
    "one too many": lambda of: of[5](1),
    "unknown": lambda of: of[2](nam="a"),
    "by position": lambda of: of[2]("a"),
    "set a field": lambda of: _set(of[0](1), "row"),
    "set another attribute": lambda of: _set(of[3]("k"), "other"),
    "set another attribute of a subclass": lambda of: _set(type("Own", (of[3],), {})("k"), "other"),
    "delete a field": lambda of: delattr(of[4]("k"), "more"),
    "delete a field of a subclass": lambda of: delattr(type("Own", (of[4],), {})("k"), "more"),
    "replace": lambda of: repr(replace(of[0](1, ["a"]), row=7)),
    "copy": lambda of: repr(copy(of[2](name="a"))),
    "fields": lambda of: [[each.name for each in fields(kind)] for kind in of],
    "names of methods": lambda of: [(of[0].__init__.__name__, of[0].__init__.__qualname__.split(".")[-2:])],
    "state": lambda of: of[0](1, ["a"]).__getstate__(),
    "match": lambda of: [kind.__match_args__ for kind in of],
}


def _outcome(case: Callable[[list[type[Any]]], Any], classes: list[type[Any]]) -> str:
    try:
        return repr(case(classes))
    except (TypeError, AttributeError) as error:  # FrozenInstanceError is one
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", CASES)
def test_nothing_else_differs(name: str, request: pytest.FixtureRequest) -> None:
    """Results and messages are the same, at the first call and later."""
    expected = _outcome(CASES[name], _classes())
    request.getfixturevalue("late")
    classes = _classes()

    assert [_outcome(CASES[name], classes) for _ in range(2)] == [expected, expected]


@dataclass(frozen=True, slots=True)
class _Sent:
    """A value of a module, which can be pickled."""

    text: str


@pytest.mark.usefixtures("late")
def test_a_method_takes_the_place_of_what_compiled_it() -> None:
    """From the second call on, it costs what it costs elsewhere; a subclass has it, too."""
    base, derived = _classes()[3:5]

    class Own(base):  # type: ignore[misc, valid-type]
        """Without methods of its own."""

    before = base.__init__
    assert Own("k") == Own("k")
    assert base.__init__ is Own.__init__ is not before
    assert base.__init__.__code__.co_varnames == ("self", "key")
    assert hash(derived("k")) == hash(("k", ()))
    assert pickle.loads(pickle.dumps(_Sent("a"))) == _Sent("a")  # noqa: S301
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'key'"):
        Own("k").key = ""


def test_a_start_compiles_next_to_nothing() -> None:
    """Each method takes 0.15 ms, and the modules of the daemon have 1,700."""
    program = (
        "import dataclasses; count, compiled = 0, dataclasses._create_fn\n"
        "def counting(*of, **more):\n"
        "    global count; count += 1; return compiled(*of, **more)\n"
        "dataclasses._create_fn = counting\n"
        "import sys; sys.argv = ['criproxy', '--version']\n"
        "from criproxy.__main__ import run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "import criproxy.daemon.serve, criproxy.daemon.start; print(count)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert int(done.stdout.split()[-1]) < 100
