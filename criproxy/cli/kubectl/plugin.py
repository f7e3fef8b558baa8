"""The commands of ``kubectl criproxy``: those of `cli.queries`, for a daemon that is reached through the API server."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from criproxy import __version__
from criproxy.cli import COMMANDS, LazyGroup
from criproxy.cli.kubectl.cluster import Cluster, RemoteNode
from criproxy.cli.kubectl.proxy import api_server, current_namespace
from criproxy.cli.options import PathOption, duration
from criproxy.cli.repeated_output import leaving_on
from criproxy.errors import CriproxyError, UsageError

QUERIES = ("events", "explain", "fit", "status", "usage", "who")
"""Commands of `criproxy` that this plugin has."""
_EXPLAIN = (
    "Show the history of a container: what it requested, what it got, when and why. CONTAINER is "
    "NAMESPACE/POD/CONTAINER, NAMESPACE/POD if the pod has one container, or POD or POD/CONTAINER in the namespace of "
    "--namespace. The command finds the pod's node. With --node, it only asks that node, which also knows containers "
    "whose pods are gone, by NAMESPACE/POD/CONTAINER or the beginning of an ID."
)
LEAST_S = 0.1
"""The shortest time that an answer may take."""
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
"""A name of Kubernetes, or the beginning of an ID."""
_HERE = frozenset({"control_socket", "state_dir", "host_root", "output"})
"""Parameters of these commands that they do not have in this plugin."""


def _not_at_once(_context: click.Context, _option: click.Parameter, value: float) -> float:
    if value < LEAST_S:
        raise click.BadParameter(f"must be at least {LEAST_S:g}s")
    return value


_OUTPUT = click.Option(
    ["-o", "--output"], type=click.Choice(["table", "json"]), default="table", show_default=True, help="What to print."
)
_NODE = click.Option(["--node"], default="", metavar="NODE", help="The node to ask.")
_NAMESPACE = click.Option(
    ["-n", "--namespace"], default="", help="Namespace of the pod.  [default: that of kubectl's current context]"
)
_CLUSTER = (
    click.Option(["--context"], default="", metavar="NAME", help="Context of the kubeconfig file, as for kubectl."),
    click.Option(["--kubeconfig"], type=PathOption(), metavar="FILE", help="Kubeconfig file, as for kubectl."),
    click.Option(
        ["--criproxy-namespace"],
        default="criproxy",
        show_default=True,
        metavar="NAMESPACE",
        help="Namespace in which the agents of criproxy run.",
    ),
    click.Option(
        ["--request-timeout", "timeout_s"],
        default="30s",
        show_default=True,
        type=duration("10s or 2m"),
        callback=_not_at_once,
        metavar="DURATION",
        help="How long to wait for each answer of the API server.",
    ),
)


class Plugin(LazyGroup):
    """The group of these commands."""

    modules = dict.fromkeys(["nodes"], "") | {name: COMMANDS[name] for name in QUERIES}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command *cmd_name*, made from that of `criproxy` if there is one."""
        if cmd_name == "nodes":
            return nodes
        original = super().get_command(ctx, cmd_name)
        return original and _remote(cmd_name, original)


@click.group(
    cls=Plugin, params=[*_CLUSTER], context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="kubectl criproxy")
@click.pass_context
def main(ctx: click.Context, /, timeout_s: float, **given: object) -> None:
    """Show what criproxy knows about any node of a cluster, as criproxy itself does on the node.

    kubectl must be in PATH: its kubeconfig file and its logins lead to the cluster. docs/reach.md says which rights and
    which Secret are needed. These options can also follow the command, where they win.
    """
    given["timeout_s"] = f"{timeout_s:g}s"
    ctx.default_map = dict.fromkeys(Plugin.modules, given)


def run() -> None:
    """Run the program ``kubectl-criproxy``, which kubectl calls."""
    main(prog_name="kubectl criproxy")


def _remote(name: str, original: click.Command) -> click.Command:
    """Return the command that does the same as *original* for a node of a cluster."""
    about_pods = [_NAMESPACE] if name == "explain" else []
    first, *_ = (original.help or "").split("\n\n")
    text = _EXPLAIN if name == "explain" else first.replace("this node", "the node")
    params = [each for each in original.params if each.name not in _HERE]
    return click.Command(
        name,
        callback=partial(_explain if name == "explain" else _ask, original),
        params=[*params, _NODE, *about_pods, _OUTPUT, *_CLUSTER],
        help=f"{text}\n\nThe answer comes from the daemon on the node, through the API server and the agent.",
        short_help=original.short_help,
    )


def _nodes(output: str, **connection: Any) -> None:  # noqa: ANN401 (click has checked them)
    """Print what all nodes report."""
    from criproxy.cli.kubectl.nodes import print_nodes

    with _cluster(**connection) as cluster:
        print_nodes(cluster, output)


nodes = click.Command(
    "nodes",
    callback=_nodes,
    params=[_OUTPUT, *_CLUSTER],
    help="Show what all nodes report: which policy is in effect, whether all is well, and how many CPUs are free.\n\n"
    "This is in the NodePlacement objects; no agent is asked.",
    short_help="Show what all nodes report.",
)


def _ask(original: click.Command, node: str, **given: Any) -> None:  # noqa: ANN401 (click has checked them)
    """Run *original* for *node*."""
    connection = {each.name: given.pop(each.name) for each in _CLUSTER if each.name}
    if not node:
        raise UsageError("name a node with --node; kubectl criproxy nodes lists them")
    with _cluster(**connection) as cluster:
        _run(original, RemoteNode(cluster, node), **given)


def _explain(original: click.Command, container: str, node: str, namespace: str, **given: Any) -> None:  # noqa: ANN401 (as above)
    """Run `explain` for a container on *node*; if that is empty, on the node of its pod."""
    connection = {each.name: given.pop(each.name) for each in _CLUSTER if each.name}
    parts = container.split("/")
    if len(parts) > 3 or not all(map(_NAME.fullmatch, parts)):
        raise UsageError(f"{container[:200]!r} is no container: give NAMESPACE/POD/CONTAINER, NAMESPACE/POD or POD")
    if namespace and len(parts) == 3:
        raise UsageError("--namespace and NAMESPACE/POD/CONTAINER cannot be combined")
    with _cluster(**connection) as cluster:
        if node:
            container = f"{namespace}/{container}" if namespace else container
        elif namespace or len(parts) == 1:
            space = namespace or current_namespace(_kubectl_options(**connection), connection["timeout_s"])
            node, container = cluster.container(space, *parts)
        else:
            node, container = cluster.container(*parts)
        _run(original, RemoteNode(cluster, node), container=container, **given)


def _run(original: click.Command, node: RemoteNode, **given: Any) -> None:  # noqa: ANN401 (as above)
    """Let *original* ask *node*."""
    assert original.callback is not None
    try:
        original.callback(control_socket=node, **given)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if node.version in {"", __version__}:
            raise
        text = f"the answer of criproxy {node.version} on node {node.node} cannot be shown by {__version__}: {error!r}"
        raise CriproxyError(f"{text}; --output json shows it, or install criproxy {node.version} here") from error


@contextmanager
def _cluster(*, context: str, kubeconfig: Path | None, criproxy_namespace: str, timeout_s: float) -> Iterator[Cluster]:
    """Yield the cluster to which kubectl leads with these options; a signal ends kubectl, too."""
    options = _kubectl_options(context=context, kubeconfig=kubeconfig)
    with leaving_on(signal.SIGTERM, signal.SIGHUP), api_server(options, timeout_s) as api:
        yield Cluster(api, criproxy_namespace)


def _kubectl_options(*, context: str, kubeconfig: Path | None, **_: object) -> list[str]:
    """Return the global options of kubectl for these."""
    file = ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
    return [*file, *(["--context", context] if context else [])]


if __name__ == "__main__":
    run()
