"""``criproxy release``: releases every container, or places them again; works without a daemon, too."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from criproxy.cli.client import DEFAULT_STATE_DIR, NoDaemon, ask, places_options
from criproxy.cli.options import format_option, runtime_endpoint_option
from criproxy.cli.render.console import print_lines, show, table
from criproxy.cli.render.topology_words import count
from criproxy.errors import CriproxyError
from criproxy.model.text.bounded import bounded

TIMEOUT_S = 45.0
"""The daemon may need 5 s to find out what runs, and waits for its updates for 20 s."""

Values = dict[str, Any]


@click.command(short_help="Unpin all containers and stop placing them, or place them again.")
@click.option("--undo", is_flag=True, help="Place all containers again, in their former places if these are free.")
@runtime_endpoint_option("The container runtime's socket, used if no daemon answers.")
@format_option
@places_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    undo: bool,
    runtime_endpoint: str,
    control_socket: str,
    state_dir: Path,
    host_root: Path,
    output: str,
) -> None:
    """Give every container all CPUs and memory nodes that pods may use, and stop placing containers.

    The release survives restarts; --undo or a changed policy file ends it. The daemon does the work. If no daemon
    answers, this command does it through the runtime, so that no container stays pinned when criproxy is removed. It
    then stores the release in --state-dir. If the default directory does not exist, the command creates it, so a daemon
    that is installed later places no containers until the release is undone. If another directory does not exist, the
    command does not create it, and the release is not stored.

    Exit status: 0 every container was released (or placed again), 1 some are still pinned, or may be (with --undo: some
    are not placed), or the release could not be stored, 2 a usage error.
    """
    was_asked = False
    try:
        values = ask(control_socket, "release", {"undo": undo}, TIMEOUT_S) | {"source": "daemon"}
    except NoDaemon as error:
        if error.is_denied:  # nor may this user write the state, or ask the runtime, while a daemon may be running
            raise
        was_asked = error.was_asked
        values = _offline(error, state_dir, runtime_endpoint, host_root, undo=undo) | {"source": "store"}
    click.echo(json.dumps(values)) if output == "json" else _show(bounded(values), undo=undo, was_asked=was_asked)
    left = any(row["outcome"] in ("left", "shares") for row in values["containers"])
    ctx.exit(int(left or bool(values["not_remembered"] or values.get("not_seen"))))


def _offline(error: NoDaemon, state_dir: Path, runtime_endpoint: str, host_root: Path, *, undo: bool) -> Values:
    """Release without a daemon.

    Raises:
        UsageError: *runtime_endpoint* is not a socket.
        CriproxyError: that is impossible as well; the text contains both reasons.
    """
    from criproxy.process import log  # first: prevents structlog from loading what we never use

    writer = log.setup("console", "error")
    import asyncio

    from criproxy.daemon.offline_release import release
    from criproxy.wire.sockets import unix_path

    endpoint = f"unix://{unix_path(runtime_endpoint, '--runtime-endpoint')}"
    logger = log.structlog.get_logger("criproxy.release")
    try:
        usual = state_dir == DEFAULT_STATE_DIR  # certainly the daemon's, even if it does not exist (any more)
        return asyncio.run(release(state_dir, endpoint, host_root, logger, undo=undo, may_create=usual))
    except CriproxyError as second:
        raise CriproxyError(f"{error}; and without a daemon: {second}") from second
    finally:
        writer.flush(1.0)


def _show(values: Values, *, undo: bool, was_asked: bool) -> None:
    """Print the answer; *was_asked*: a daemon got the command, and ended before its answer."""
    if values["containers"]:
        found = table("CONTAINER", "CPUS BEFORE", "CPUS NOW", "OUTCOME")
        for row in values["containers"]:
            outcome = f"{row['outcome']}: {row['error']}" if row["error"] else row["outcome"]
            found.add_row(row["container"], row["cpus_before"] or "-", row["cpus"] or "-", outcome)
        show(found)
    print_lines(_summary(values, undo=undo, was_asked=was_asked))


def _summary(values: Values, *, undo: bool, was_asked: bool) -> str:
    """Return what was done, and what is left to do, one sentence or more a line."""
    counts = Counter(row["outcome"] for row in values["containers"])
    text = _undone(values, counts, was_asked=was_asked) if undo else _released(values, counts)
    if counts["left"]:
        text += "\n" + (
            f"The daemon keeps trying to {'place' if undo else 'release'} the others."
            if values["source"] == "daemon"
            else "The others stay pinned until you run this command again, or until criproxy starts."
        )
    if values.get("not_seen"):  # a daemon from before an upgrade does not report it
        asked = "the runtime could not be asked which containers are running"
        text += f"\nThere may be others: {asked}: {values['not_seen']}."
        if values["source"] == "store":
            text += "\nIs that its socket? If not, specify another one with --runtime-endpoint."
    if values.get("not_put_back"):
        text += f"\nWhat classes have set outside of CRI stays: {values['not_put_back']}."
    if values["not_remembered"]:
        text += f"\n{_lost(values, undo=undo)}: {values['not_remembered']}"
    return text


def _undone(values: Values, counts: Counter[str], *, was_asked: bool) -> str:
    """Return what became of the release with ``--undo``."""
    if not values["was_released"]:
        if not was_asked:
            return "Nothing to undo: the node is not released."
        return (
            "The node is not released: the daemon exited before it answered, and may have ended the release. "
            "Containers are placed when criproxy starts."
        )
    if values["source"] == "store":
        return "The release has ended: containers are placed when criproxy starts."
    unplaced = f" {counts['shares']} sharing CPUs without having been placed," if counts["shares"] else ""
    return f"The release has ended: {_changed(counts)} placed again,{unplaced} {counts['left']} left."


def _released(values: Values, counts: Counter[str]) -> str:
    """Return how many containers were released, and until when none is placed."""
    until = "No container is placed until 'criproxy release --undo' or a changed policy file."
    if values["source"] == "daemon" and not values.get("places", True):
        until = _of_none(values.get("configuration", {}))
    if values["not_remembered"] and values["source"] == "store":  # there is no daemon that could store it later
        until = "The next start of criproxy places containers again."
    text = f"{_changed(counts)} released, {counts['left']} left. {until}"
    if counts["stays"]:
        text += f"\n{count(counts['stays'], 'container')} with a card: criproxy leaves it where it is until it exits."
    return text


def _changed(counts: Counter[str]) -> str:
    """Return the number of the containers that were released, or placed again."""
    return count(counts.total() - counts["left"] - counts["shares"] - counts["stays"], "container")


def _of_none(configuration: Values) -> str:
    """Return why no container is placed under the policy none in the *configuration* in effect, and until when."""
    if not configuration.get("file"):
        return "There is no policy file, so no container is placed until there is one."
    if not (configuration["until"] or configuration["kept"]):
        return "The policy file has 'policy: none', so no container is placed until it names another policy."
    how = "which was kept," if configuration["kept"] else f"which is being tried until {configuration['until'][:19]}Z,"
    text = f"{configuration['file']}, {how} has 'policy: none', so no container is placed."
    if configuration["kept"]:
        return f"{text} Run 'criproxy reload' to go back to the policy file."
    after = "After the try, the release continues until 'criproxy release --undo'."
    return f"{text}\n{after} Run 'criproxy reload' to end the try now."


def _lost(values: Values, *, undo: bool) -> str:
    """Return the effect of a restart on a release that is not stored; only a daemon keeps trying to store it."""
    if undo:
        return "The end of the release could not be stored, and until it is, a restart may bring the release back"
    unless = " unless the disk works again before" if values["source"] == "daemon" else ""
    return f"The release could not be stored, and ends with the next restart{unless}"
