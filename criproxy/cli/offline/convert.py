"""``criproxy convert``: configurations of CRI-RM and nri-plugins, and policy files, as NodePolicy objects."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from criproxy.cli.options import PathOption
from criproxy.cli.render.console import print_lines
from criproxy.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from criproxy.config.convert import Converted, Skipped

_STDIN = Path("-")


@click.command(short_help="Print NodePolicy objects for configurations of CRI-RM and nri-plugins.")
@click.argument("files", nargs=-1, required=True, type=PathOption(), metavar="FILE...")
@click.option(
    "--node-selector",
    "labels",
    multiple=True,
    metavar="LABEL=VALUE",
    help="Select nodes with this label. Only for files that are no objects, and so name no nodes. Repeatable.",
)
def command(files: tuple[Path, ...], labels: tuple[str, ...]) -> None:
    """Print NodePolicy objects for ConfigMaps of CRI-RM, objects of nri-plugins, and policy files.

    FILE has objects as kubectl prints them, also in lists, or a configuration of CRI-RM or a policy file alone; - is
    standard input. Objects named node.NAME, group.GROUP and default become a NodePolicy for these nodes. A policy file
    named default.yaml or group-GROUP.yaml does, too; for other files, use --node-selector.

    Comments say what has no equivalent, and what has no effect. If an option has a wrong value, nothing is printed.

        kubectl get configmaps -n kube-system -o yaml | criproxy convert - > policies.yaml

    Exit status: 0 all configurations were converted, 1 one of them is wrong or there is none, 2 a usage error.
    """
    from criproxy.config.convert import Converted, convert

    selected = _labels(labels)
    wrong, converted, skipped = list[str](), list[Converted](), list["Skipped"]()
    for file in files:
        try:
            for each in convert(_text(file), file, selected):
                (converted if isinstance(each, Converted) else skipped).append(each)  # type: ignore[arg-type]
        except ConfigError as error:
            wrong.append(str(error))
    wrong += _twice(converted)
    for each in skipped:
        print_lines(f"{each.origin} is left out: {each.why}", err=True)
    if wrong or not converted:
        raise ConfigError("\n".join(wrong) or "there is no configuration of CRI-RM or nri-plugins, and no policy file")
    click.echo("---\n".join(map(_as_text, converted)), nl=False)


def _labels(texts: tuple[str, ...]) -> dict[str, str]:
    """Return labels of nodes with their values.

    Raises:
        UsageError: one of the *texts* is none, or two are about the same label.
    """
    from pydantic import ValidationError

    from criproxy.agent.objects.node_policy import NodeSelector
    from criproxy.config.validation_errors import complaint

    found = dict[str, str]()
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"--node-selector: {text[:80]!r} is not LABEL=VALUE")
        if key in found:
            raise UsageError(f"--node-selector: the label {key[:80]!r} is given twice")
        found[key] = value
    try:
        NodeSelector.model_validate({"matchLabels": found})
    except ValidationError as error:
        raise UsageError(f"--node-selector: {complaint(error.errors(include_url=False)[0])}") from error
    return found


def _text(file: Path) -> str:
    """Return the text of a file.

    Raises:
        ConfigError: it is no text, or too long.
    """
    from criproxy.config.convert import MAX_BYTES

    with sys.stdin.buffer if file == _STDIN else file.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{file}: is larger than {MAX_BYTES >> 20} MiB: name the objects that you want to convert")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: is not UTF-8 text ({error.reason})") from error


def _twice(converted: "list[Converted]") -> list[str]:
    """Return a sentence for each name that two objects would have."""
    origins = dict[str, list[str]]()
    for each in converted:
        origins.setdefault(each.name, []).append(each.origin)
    return [
        f"{' and '.join(of_one)} would both be the NodePolicy {name}: convert them one at a time, and rename one"
        for name, of_one in origins.items()
        if len(of_one) > 1
    ]


def _as_text(each: "Converted") -> str:
    """Return the object as YAML, below comments."""
    from criproxy.config.convert import to_yaml
    from criproxy.model.text.bounded import bounded

    comments = (f"From {each.origin}", *each.notes)
    return "".join(f"# {bounded(comment)}\n" for comment in comments) + to_yaml(each.manifest)
