"""The configuration under which the last daemon left its node: for commands that answer from the state on disk."""

from contextlib import suppress
from pathlib import Path

from criproxy.errors import CriproxyError
from criproxy.model.last_configuration import LastConfiguration
from criproxy.model.node import Node
from criproxy.node.configuration.load import Configuration, rebuilt
from criproxy.node.settings import Settings
from criproxy.store.last_good import read_good
from criproxy.store.tried import read_tried


def as_left(state_dir: Path, node: Node, host_root: Path) -> Configuration | None:
    """Return the configuration that placed the containers of *node*, which was read from *state_dir*. May block.

    None if it is unknown: neither the last good file nor what was tried is that configuration, or the machine no longer
    has what it needs. The policy file itself does not count: it may have changed since.
    """
    digest, tried = LastConfiguration.parse(node.configuration).digest, read_tried(state_dir)
    for good in (tried.good if tried else None, read_good(state_dir)):
        if digest and good is not None and good.configuration == digest:
            with suppress(CriproxyError, ValueError):
                return rebuilt(good, node.topology, Settings(host_root=host_root))
    return None
