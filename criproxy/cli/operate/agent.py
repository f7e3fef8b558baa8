"""``criproxy agent``: connects the node with the Kubernetes API."""

import os

import click

from criproxy.agent.options import DEFAULT_CONTROL_SOCKET
from criproxy.cli.options import PathOption, WholeNumber, duration, log_options, program_log
from criproxy.errors import UsageError


@click.command(short_help="Connect this node with the Kubernetes API.")
@click.option(
    "--control-socket",
    default=DEFAULT_CONTROL_SOCKET,
    show_default=True,
    metavar="PATH",
    help="The daemon's socket for it.",
)
@click.option(
    "--node-name",
    metavar="NAME",
    help="Name of the Node object.  [default: the variable NODE_NAME, else the name of this host]",
)
@click.option(
    "--kubeconfig", type=PathOption(), metavar="FILE", help="How to reach the API server.  [default: as a pod]"
)
@click.option(
    "--namespace",
    metavar="NAME",
    help="Namespace of the Leases of rollouts, and of ConfigMaps.  [default: the pod's, else criproxy]",
)
@click.option(
    "--http",
    metavar="ADDRESS",
    help="Serve queries, /metrics, /healthz and /readyz on HOST:PORT, :PORT "
    "(loopback) or unix:///PATH.  [default: none]",
)
@click.option(
    "--http-token-file",
    type=PathOption(),
    metavar="FILE",
    help="File with the token that clients need for queries; without it, there are no queries.",
)
@click.option(
    "--first-contact",
    "first_contact_s",
    type=duration("30s"),
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="Time over which the nodes of a cluster spread their first requests.",
)
@click.option(
    "--taint/--no-taint", default=True, show_default=True, help="Remove the taint of new nodes when all is well."
)
@click.option(
    "--topology/--no-topology",
    default=True,
    show_default=True,
    help="Write a NodeResourceTopology for the scheduler, if the cluster has its CRD.",
)
@click.option(
    "--topology-policy",
    type=click.Choice(["single-numa-node", "restricted", "best-effort", "none"]),
    default="single-numa-node",
    show_default=True,
    help="What the NodeResourceTopology tells the scheduler: with single-numa-node, it keeps Guaranteed pods away that "
    "do not fit into one NUMA node; with others, it only prefers nodes.",
)
@click.option(
    "--topology-scope",
    type=click.Choice(["container", "pod"]),
    default="container",
    show_default=True,
    help="What has to fit into one NUMA node: each container, or the whole pod.",
)
@click.option(
    "--labels/--no-labels",
    default=True,
    show_default=True,
    help="Label the node with its GPUs, if no node-feature-discovery does.",
)
@click.option(
    "--device-configurations",
    default="",
    metavar="NAME",
    help="ConfigMap with the configurations among which "
    "the node's label nvidia.com/device-plugin.config chooses.  [default: none]",
)
@click.option(
    "--default-device-configuration",
    default="",
    metavar="KEY",
    help="The configuration in that ConfigMap for a node without the label.  [default: the key default, else the only "
    "one, else the node's own file]",
)
@click.option(
    "--wait-to-install",
    type=WholeNumber(1),
    default=None,
    metavar="NODES",
    help="Only wait until fewer than so many other nodes install criproxy, and end. For the Helm chart.",
)
@log_options
def command(
    log_level: str,
    log_format: str,
    node_name: str | None,
    namespace: str | None,
    wait_to_install: int | None,
    **options: object,
) -> None:
    """Tell the cluster what the daemon knows about this node, and the daemon what the cluster wants.

    The command needs no privileges: it reaches the daemon over a socket of its own, and the API server. While one of
    them is away, it waits; the node runs as before.

    SIGTERM and SIGINT stop it.
    """
    with program_log(log_format, log_level) as writer:
        from criproxy.agent import options as agent
        from criproxy.agent.serve import run

        chosen: dict[str, object] = {"node_name": agent.node_name(node_name), "namespace": agent.namespace(namespace)}
        chosen |= {"wait_to_install": wait_to_install or 0, "pod_name": os.environ.get("POD_NAME", "")}
        if why := agent.without_effect(options):
            raise UsageError(why)
        run(agent.AgentOptions(**chosen, **options), writer)  # type: ignore[arg-type]  # click has checked them
