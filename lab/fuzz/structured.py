"""Target 1: the bytes are a script of two peers that obey HTTP/2; nothing at all may go wrong.

At its end both peers finish what they began, and then everything must have arrived and nothing be left.
"""

import zlib
from collections import Counter

from criproxy.errors import WireError
from criproxy.wire.calls import OutcomeKind, Proceed, Refuse
from lab.fuzz.calls import edited, messages, plain, prefixed
from lab.fuzz.chunking import compare
from lab.fuzz.conversation import ALL, BIG, Conversation, Facts
from lab.fuzz.peer import Half, Peer, Violation, is_refusal, require
from lab.fuzz.source import Source

MAX_ROUNDS = 60


def run(data: bytes) -> None:
    """Play one script.

    Raises:
        Violation: a rule of the data plane is broken; any other exception is a finding, too.
    """
    source = Source(data)
    cut_short = source.chance(8)
    talk = Conversation(source)
    try:
        talk.run()
        if not cut_short:
            _finish(talk)
        for stream, facts in talk.calls.items():  # after our GOAWAY: the client repeats them elsewhere
            facts.turned_away = talk.drained_at is not None and stream > talk.drained_at
        if not cut_short:
            _check_arrived(talk)
            _check_counts(talk)
            _check_at_rest(talk)
        _check_outcomes(talk, finished=not cut_short)
    except WireError as error:
        raise Violation(f"obeying peers were cut off: {error}") from error
    compare(talk, zlib.crc32(data))


def _finish(talk: Conversation) -> None:
    """Answer every held call, end every stream, give windows, until nobody has anything left to say."""
    for _ in range(MAX_ROUNDS):
        before = len(talk.steps)
        talk.settle()
        for held in list(talk.waiting):
            talk.decide(held, Proceed())
        _end_requests(talk)
        _end_replies(talk)
        _give_windows(talk.client)
        _give_windows(talk.runtime)
        talk.settle()
        if len(talk.steps) == before:
            for peer in (talk.client, talk.runtime):  # what was promised beyond the windows is taken off the next ones
                peer.grant(None, BIG)
            talk.settle()
            return
    require(False, "the conversation does not come to an end")


def _end_requests(talk: Conversation) -> None:
    for half in talk.client.streams.values():
        if half.got_end:  # nobody wants the rest, and its window may be tiny
            half.todo.clear()
        while half.may_send and talk.client.send_data(half, ALL, None, end=True):
            pass


def _end_replies(talk: Conversation) -> None:
    for half in talk.replying():
        if not half.blocks_sent:
            talk.begin_reply(half, [])
        while half.todo and talk.runtime.send_data(half, ALL, None, end=False):
            pass
        if not half.todo:
            talk.end_reply(half, 0, [])
    for half in talk.runtime.streams.values():
        if half.ended and not (half.got_end or half.got_reset or half.reset):
            talk.runtime.send_reset(half, 0)


def _give_windows(peer: Peer) -> None:
    if peer.recv_window < BIG // 2:
        peer.grant(None, BIG)
    for half in peer.streams.values():
        over = half.got_end or half.got_reset or half.reset or half.dead
        if not over and peer.recv_initial + half.recv_delta < BIG // 2:
            peer.grant(half, BIG)


def _check_arrived(talk: Conversation) -> None:
    """Every header block and every byte of every stream is where it belongs."""
    for stream, facts in talk.calls.items():
        client, runtime = talk.client.streams[stream], talk.runtime.streams.get(stream)
        require(runtime is not None, "the runtime never saw stream", stream)
        assert runtime is not None
        dead = client.dead or (talk.runtime_goaway is not None and stream > talk.runtime_goaway)
        _check_blocks(client, runtime, facts)
        _check_request(client, runtime, facts, dead=dead)
        _check_reply(client, runtime, facts, dead=dead)
        if not (isinstance(facts.verdict, Refuse) or facts.turned_away):
            both = runtime.reset and client.reset  # then nobody needs that of the other
            require(both or client.reset <= runtime.got_reset, "a reset of the client was lost on stream", stream)
            require(both or runtime.reset <= client.got_reset, "a reset of the runtime was lost on stream", stream)


def _check_counts(talk: Conversation) -> None:
    """Every call was counted under its path: the HPACK listener has understood every block."""
    wanted = Counter(facts.method.path for facts in talk.calls.values() if not facts.turned_away)
    counted = {entry.method: entry.calls for entry in talk.splice.connection.stats.entries.values() if entry.calls}
    require(counted == wanted, "calls are counted under other paths:", counted, wanted)


def _check_blocks(client: Half, runtime: Half, facts: Facts) -> None:
    require(runtime.blocks_got == client.blocks_sent, "header blocks of a request changed on stream", client.id)
    blocks = list(client.blocks_got)
    if isinstance(facts.verdict, Refuse):
        ours = [block for block in blocks if is_refusal(block)]
        require(len(ours) == 1, "a refused call has not exactly one status on stream", client.id, len(ours))
        blocks.remove(ours[0])
    require(blocks == runtime.blocks_sent, "header blocks of a reply changed on stream", client.id)


def _check_request(client: Half, runtime: Half, facts: Facts, *, dead: bool) -> None:
    expected = _expected_request(client, facts)
    require(expected.startswith(runtime.got), "the request changed on stream", client.id)
    refused = isinstance(facts.verdict, Refuse)
    unwanted = runtime.reset or runtime.early
    if client.ended and not (client.reset or refused or dead or unwanted or facts.turned_away):
        require(runtime.got_end and runtime.got == expected, "a request did not arrive on stream", client.id)


def _expected_request(client: Half, facts: Facts) -> bytes:
    """What the runtime may get at most."""
    if not facts.held and not (facts.method.hold and client.sent):
        return bytes(client.sent)
    match facts.verdict:
        case Proceed(None):
            return bytes(client.sent)
        case Proceed(message) if message is not None:
            return prefixed(0, message)
    return b""


def _check_reply(client: Half, runtime: Half, facts: Facts, *, dead: bool) -> None:
    expected = edited(facts.method, bytes(runtime.sent))
    if not (client.reset or facts.turned_away):
        require(expected.startswith(client.got), "the reply changed on stream", client.id)
    if runtime.ended and not (client.reset or dead or isinstance(facts.verdict, Refuse) or facts.turned_away):
        require(client.got_end and client.got == expected, "a reply did not arrive on stream", client.id)


def _check_at_rest(talk: Conversation) -> None:
    """Nothing waits, nothing is owed, and both peers agree with the ledgers about every window."""
    connection = talk.splice.connection
    for outflow in (connection.to_runtime, connection.to_client):
        require(not outflow.queues and not outflow.queued_bytes, "something still waits:", outflow.queues)
    for ledger in (connection.requests, connection.replies):
        require(ledger.in_flight == 0 and ledger.debt == 0, "the ledger is not at rest:", ledger.in_flight, ledger.debt)
    require(connection.held_bytes == 0 and not any(connection.held()), "something is still held")
    views = (
        (talk.client.send_window, connection.requests.sender),
        (talk.runtime.recv_window, connection.requests.receiver),
        (talk.runtime.send_window, connection.replies.sender),
        (talk.client.recv_window, connection.replies.receiver),
    )
    require(all(theirs == ours for theirs, ours in views), "a window is not what its peer thinks:", views)
    if talk.runtime_goaway is None:
        require(talk.splice.idle, "calls are open that are over:", list(connection.streams))
        left = (connection.to_runtime.deltas, connection.to_client.deltas)
        require(not any(left), "windows of streams are kept that are over:", left)


def _check_outcomes(talk: Conversation, *, finished: bool) -> None:
    """After the connection is lost, too: every watched call has ended once, and as it should have."""
    for round_ in range(2):
        talk.splice.lost()
        events = len(talk.tap.events)
        talk.collect()
        require(round_ == 0 or len(talk.tap.events) == events, "a connection that is lost twice tells of it twice")
    require(not talk.waiting, "a held call was not cancelled:", talk.waiting)
    for stream, facts in talk.calls.items():
        if not facts.method.watch or facts.turned_away:
            require(not facts.outcomes, "an outcome that nobody asked for on stream", stream)
            continue
        if stream in talk.runtime.streams or facts.outcomes:
            require(len(facts.outcomes) == 1, "not one outcome, but", facts.outcomes, "on stream", stream)
        if facts.outcomes and stream in talk.runtime.streams:
            _check_outcome(talk, stream, facts, finished=finished)


def _check_outcome(talk: Conversation, stream: int, facts: Facts, *, finished: bool) -> None:
    outcome, runtime, client = facts.outcomes[0], talk.runtime.streams[stream], talk.client.streams[stream]
    replies, _ = messages(bytes(runtime.sent))
    dead = talk.runtime_goaway is not None and stream > talk.runtime_goaway
    match outcome.kind:
        case OutcomeKind.OK:
            require(
                bool(replies) and outcome.reply == plain(replies[0]), "an outcome of OK without its message", stream
            )
        case OutcomeKind.FAILED:
            require(runtime.ended and not replies, "an outcome of FAILED without trailers only", stream)
        case OutcomeKind.NOT_SENT:
            arrived = bool(messages(bytes(runtime.got))[0]) and runtime.got == _expected_request(client, facts)
            require(dead or not arrived, "an outcome of NOT_SENT, but the runtime has the message", stream)
    dropped = facts.method.hold and not isinstance(facts.verdict, Proceed)
    if finished and runtime.ended and not (client.reset or runtime.reset or dead or dropped):
        known = outcome.kind in (OutcomeKind.OK, OutcomeKind.FAILED)
        require(known or not runtime.got_end, "the outcome is known, but", outcome.kind, "is told of stream", stream)
