"""Printing lines that have texts from outside in them."""

import click

from criproxy.model.bounded import printable


def say(text: str, *, err: bool = False) -> None:
    """Print *text*, whose lines are ours; what a terminal would act on in them is shown instead."""
    click.echo("\n".join(printable(line) for line in text.split("\n")), err=err)
