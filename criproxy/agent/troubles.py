"""What the agent cannot do now: the daemon shows it in `criproxy status`, so that somebody on the node sees it."""

from criproxy.agent.changes import Changes
from criproxy.agent.kubernetes.request import NOT_SENT
from criproxy.model.text.bounded import bounded_text
from criproxy.process.logger import Log

MOST = 20
"""Sentences that are told to the daemon; the agent has fewer parts."""
MOST_CHARACTERS = 500


class Troubles(Changes):
    """One sentence at most for each part of the agent; the log gets each one once.

    Args:
        log: a structlog logger.
    """

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log
        self._sentences: dict[str, tuple[str, bool]] = {}

    def set(self, part: str, sentence: str, *, wrong: bool = False) -> None:
        """Set what the *part* of the agent cannot do now.

        Args:
            part: its name, such as ``nodeplacement``.
            sentence: what cannot be done, where, and why; empty: all is well.
            wrong: whether ``criproxy status --check`` is to fail because of it: only what concerns the node itself,
                such as a NodePolicy that it refuses. Everything else, such as an API server that is gone, is a note.
        """
        if NOT_SENT in sentence:  # not even asked, for a reason that all parts have: it is said once
            sentence = f"nothing can be sent to the API server: {sentence.partition(NOT_SENT)[2]}"
        new = (bounded_text(sentence, MOST_CHARACTERS), wrong) if sentence else None
        if self._sentences.get(part) == new:
            return
        if new:
            if new not in self._sentences.values():
                self._log.warning("the agent cannot do a part of its work", part=part, reason=new[0])
            self._sentences[part] = new
        else:
            del self._sentences[part]
            self._log.info("the agent does this part of its work again", part=part)
        self.notify()

    def sentences(self, *, wrong: bool | None = None) -> list[str]:
        """Return what cannot be done now, each sentence once: all, or only what is (*wrong*), or is not, the node's."""
        chosen = (text for text, is_wrong in self._sentences.values() if wrong in (None, is_wrong))
        return [*dict.fromkeys(chosen)][:MOST]
