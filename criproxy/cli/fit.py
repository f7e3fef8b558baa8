"""``criproxy fit``: would a pod fit on this node?"""

import json

import click

from criproxy.cli.client import ask
from criproxy.cli.daemon_queries import control_socket_option
from criproxy.cli.unit_types import Cpu, Size
from criproxy.model.bounded import printable


def _pairs(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = dict[str, str]()
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(printable(f"{value[:80]!r} must be KEY=VALUE"))
        pairs[key] = text
    return pairs


@click.command(short_help="Show whether a pod would fit on this node, and where.")
@click.option("--cpu", type=Cpu(), metavar="CPU", required=True, help="CPU of its container: 8, 1.5 or 250m.")
@click.option("--memory", type=Size(), metavar="SIZE", default="0", help="Memory of its container: 4Gi.")
@click.option(
    "--qos",
    type=click.Choice(["guaranteed", "burstable"]),
    default="guaranteed",
    show_default=True,
    help="guaranteed: the limits are equal to the requests. burstable: there are no limits.",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the pod.")
@click.option("--pod", default="fit", show_default=True, help="Name of the pod, if the policy uses names.")
@click.option("--container", default="main", show_default=True, help="Name of its container.")
@click.option(
    "--annotation", "annotations", multiple=True, callback=_pairs, metavar="KEY=VALUE", help="Annotation of the pod."
)
@click.option("--label", "labels", multiple=True, callback=_pairs, metavar="KEY=VALUE", help="Label of the pod.")
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@control_socket_option
def command(  # noqa: PLR0913 (one for each option)
    *,
    cpu: int,
    memory: int,
    qos: str,
    namespace: str,
    pod: str,
    container: str,
    annotations: dict[str, str],
    labels: dict[str, str],
    output: str,
    control_socket: str,
) -> None:
    """Ask the policy whether a pod with one container would fit on this node now; exit with status 1 if it would not.

    If it fits, the command shows its CPUs and NUMA nodes, and the containers that would move. If not, it shows the
    policy's reason, and which containers would have to leave. Nothing changes on the node. The command needs the
    daemon, because only the daemon knows the policy.
    """
    names = {"namespace": namespace, "pod": pod, "container": container}
    sizes = {"cpu_milli": cpu, "memory_bytes": memory, "qos": qos}
    values = ask(control_socket, "fit", {**sizes, "names": names, "annotations": annotations, "labels": labels})
    if output == "json":
        click.echo(json.dumps(values))
    else:
        from criproxy.cli.render.console import show
        from criproxy.cli.render.fit import render

        show(render(values))
    raise SystemExit(0 if values["fits"] else 1)
