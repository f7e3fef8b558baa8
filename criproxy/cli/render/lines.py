"""Prints lines that contain untrusted text."""

import click

from criproxy.model.text.bounded import printable


def print_lines(text: str, *, err: bool = False) -> None:
    """Print the lines of *text*, with control characters made visible."""
    click.echo("\n".join(printable(line) for line in text.split("\n")), err=err)
