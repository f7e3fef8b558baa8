"""Whatever both peers and the handlers do, cut into whatever chunks, the splice keeps to HTTP/2 and loses nothing."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.wire.rawpeer import INITIAL_WINDOW, Endpoint, RawFrame, Style
from tests.wire.scripts import WINDOWS, Life, Step, chunks
from tests.wire.spliced import whole

ACTIONS = ["open", "open", "push", "push", "pipe", "pipe", "pipe", "run", "reply", "answer", "grant", "grant"]
ACTIONS += ["settings", "reset", "noise"]

steps: st.SearchStrategy[Step] = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 63), st.integers(0, 63))
styles = st.builds(
    Style,
    data_max=st.sampled_from([16_384, 1_000, 70_000]),
    pad=st.sampled_from([0, 0, 1, 255]),
    block_max=st.sampled_from([0, 1, 20]),
    priority=st.booleans(),
)
Side = tuple[Style, int, str]
sides: st.SearchStrategy[Side] = st.tuples(
    styles, st.sampled_from(WINDOWS), st.sampled_from(["eager", "half", "manual"])
)
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def endpoint(side: Side, *, client: bool) -> Endpoint:
    """A peer as the example wants it."""
    style, window, grants = side
    return Endpoint(client=client, settings={INITIAL_WINDOW: window}, grants=grants, style=style)


@settings(COMMON, max_examples=200)
@given(sides, sides, st.lists(steps, max_size=40), st.integers(0, 2**16))
def test_any_life_ends_well(client: Side, runtime: Side, script: list[Step], seed: int) -> None:
    """Every call gets what it should, every header block decodes, no window is overrun or lost, nothing hangs."""
    life = Life(endpoint(client, client=True), endpoint(runtime, client=False), chunks(seed))
    life.play(script)
    life.settle()


def by_stream(log: list[RawFrame]) -> dict[int, list[RawFrame]]:
    """The frames of each stream, in order."""
    found: dict[int, list[RawFrame]] = {}
    for frame in log:
        found.setdefault(frame[2], []).append(frame)
    return found


@settings(COMMON, max_examples=60)
@given(sides, sides, st.lists(steps, max_size=40), st.integers(0, 2**16))
def test_chunks_make_no_difference(client: Side, runtime: Side, script: list[Step], seed: int) -> None:
    """The same life gives the same frames on every stream and tells the same events, however its bytes are cut."""
    lives = [Life(endpoint(client, client=True), endpoint(runtime, client=False), cut) for cut in (whole, chunks(seed))]
    for life in lives:
        life.play(script)
        life.both.run()
    one, other = lives
    assert one.both.told == other.both.told
    for a, b in ((one.client, other.client), (one.runtime, other.runtime)):
        streams, same = by_stream(a.log), by_stream(b.log)
        assert Counter(streams.pop(0, [])) == Counter(same.pop(0, []))
        assert streams == same
