"""Target 1: the bytes are a script of two peers that obey HTTP/2; nothing at all may go wrong."""

import zlib

from criproxy.errors import WireError
from lab.fuzz.chunking import compare
from lab.fuzz.conversation import Conversation
from lab.fuzz.peer import Violation
from lab.fuzz.source import Source
from lab.fuzz.verdicts import (
    check_arrived,
    check_at_rest,
    check_counts,
    check_outcomes,
    finish,
    mark_turned_away,
)


def run(data: bytes) -> set[int]:
    """Play one script; returns what it touched.

    Raises:
        Violation: a rule of the data plane is broken; any other exception is a finding, too.
    """
    source = Source(data)
    cut_short = source.chance(8)
    talk = Conversation(source)
    try:
        talk.run()
        if not cut_short:
            finish(talk)
        mark_turned_away(talk)
        if not cut_short:
            check_arrived(talk)
            check_counts(talk)
            check_at_rest(talk)
        check_outcomes(talk, finished=not cut_short)
    except WireError as error:
        raise Violation(f"obeying peers were cut off: {error}") from error
    compare(talk, zlib.crc32(data))
    return talk.features
