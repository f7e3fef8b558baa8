"""``criproxy history config``: the last configurations that were in effect on this node."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from criproxy.cli.client import state_dir_option
from criproxy.cli.options import WholeNumber, format_option
from criproxy.cli.render.console import print_lines, show, table
from criproxy.errors import CriproxyError
from criproxy.model.text.bounded import bounded, bounded_text
from criproxy.model.text.notices import timestamp
from criproxy.store.configurations import MOST, InForceOnce, read_all

HOW = {"file": "policy file", "tried": "tried", "kept": "kept in place of the policy file", "back": "back after a try"}


@click.command(short_help="Show the configurations that were in effect on this node.")
@click.argument("what", type=click.Choice(["config"]))
@click.argument("number", type=WholeNumber(min=1), required=False)
@state_dir_option("The daemon's state on disk.")
@format_option
def command(what: str, number: int | None, state_dir: Path, output: str) -> None:
    """List the last ten configurations that were in effect on this node, newest last, or print configuration NUMBER.

    The list shows when and how each of them came into effect, and its hash, which is the beginning of the file's
    SHA-256 digest. With NUMBER, the command prints that policy file exactly as it was, so that you can save it and use
    it again. The command reads the state directory, and does not need the daemon.
    """
    found = read_all(state_dir)
    if number is not None:
        chosen = next((each for each in found if each.number == number), None)
        if chosen is None:
            known = f"there are {found[0].number} to {found[-1].number}" if found else "there is none"
            raise CriproxyError(f"no configuration has the number {number}: {known} in {state_dir}")
        click.echo(json.dumps(_values(chosen))) if output == "json" else click.echo(chosen.text, nl=False)
    elif output == "json":
        listed = [{name: value for name, value in _values(each).items() if name != "text"} for each in found]
        click.echo(json.dumps({"configurations": listed}))
    elif not found:
        print_lines(bounded_text(f"No configuration was in effect yet, according to {state_dir}."))
    else:
        _show(found)


def _values(once: InForceOnce) -> dict[str, Any]:
    return {**asdict(once), "since": timestamp(once.at_s)}


def _show(found: list[InForceOnce]) -> None:
    listed = table("NUMBER", "SINCE", "HOW", "HASH", "POLICY", "FILE")
    for each in bounded([asdict(one) | {"text": ""} for one in found[-MOST:]]):
        since, how = f"{timestamp(each['at_s'])[:19]}Z", HOW.get(each["how"], each["how"])
        listed.add_row(str(each["number"]), since, how, each["hash"], each["policy"], each["source"])
    show(listed)
