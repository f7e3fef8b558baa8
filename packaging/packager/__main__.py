"""The command line, which `make package` and `make deb` call."""

from collections.abc import Callable
from pathlib import Path

import click

from packager import chart, deb, debian, image, python, sbom, wheels
from packager.source import DIST, BuildError

KINDS: dict[str, Callable[[Path], Path]] = {
    "wheel": python.wheel,
    "sdist": python.sdist,
    "deb": deb.build,
    "image": image.build,
    "chart": chart.build,
    "sbom": sbom.build,
}
"""Kind of package → what writes it to a folder, and returns its place."""


@click.group()
def main() -> None:
    """Build packages of criproxy. Two builds of one commit give the same bytes."""


@main.command()
@click.argument("kinds", nargs=-1, type=click.Choice([*KINDS]))
@click.option("--target", type=click.Path(path_type=Path), default=DIST, help="The folder to write to.")
def build(kinds: tuple[str, ...], target: Path) -> None:
    """Build packages of all KINDS, or of those given."""
    target.mkdir(parents=True, exist_ok=True)
    try:
        for kind in kinds or KINDS:
            click.echo(KINDS[kind](target))
    except BuildError as error:
        raise click.ClickException(str(error)) from error


@main.command()
def fetch() -> None:
    """Fetch libraries and Debian's packages, unless they are there; after that, no build needs the network."""
    try:
        wheels.fetch()
        debian.fetch()
    except BuildError as error:
        raise click.ClickException(str(error)) from error


main()
