"""The options of `criproxy agent`."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from criproxy.errors import UsageError

DEFAULT_CONTROL_SOCKET = "/run/criproxy/agent/pod/control.sock"
"""The daemon's socket for the agent."""
DEFAULT_NAMESPACE = "criproxy"
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The namespace of the pod, in each pod with a service account."""
_MOST_CHARACTERS = 253
"""Of a node's name."""
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """The options of `criproxy agent`."""

    control_socket: str
    """The daemon's socket for the agent."""
    node_name: str
    """The name of this machine's Node object."""
    kubeconfig: Path | None
    """How to reach the API server; None: as a pod does."""
    namespace: str
    """Of the Leases and ConfigMaps."""
    http: str | None
    """Where to serve queries, metrics and health."""
    http_token_file: Path | None
    """The token that clients of the queries need."""
    first_contact_s: float
    """Within this time after the start, nodes contact the API server for the first time, each at its own moment."""
    taint: bool
    """Whether to remove the startup taint."""
    topology: bool
    """Whether to write a NodeResourceTopology, where its CRD is installed."""
    topology_policy: str
    """Whether the scheduler keeps pods away that do not fit into one NUMA node, in the words of the kubelet."""
    topology_scope: str
    """What has to fit: each container, or the whole pod."""
    labels: bool
    """Whether to label the node for the cards that it has."""
    wait_to_install: int
    """Only wait until fewer than so many other pods install criproxy, and end; 0: run."""
    pod_name: str
    """This pod; empty: none."""
    device_configurations: str
    """The ConfigMap with named configurations of NVIDIA's device plugin; empty: none."""
    default_device_configuration: str
    """The one for a node without the label; empty: as NVIDIA's config manager falls back."""


def without_effect(given: Mapping[str, object]) -> str:
    """Return which options do nothing without another one, as a sentence; empty: none."""
    needs = {"http_token_file": "http", "default_device_configuration": "device_configurations"}
    found = [(each, other) for each, other in needs.items() if given.get(each) and not given.get(other)]
    return "; ".join(f"{_flag(each)} has no effect without {_flag(other)}" for each, other in found)


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def node_name(given: str | None) -> str:
    """Return the name of this machine's Node object: what is *given*, ``NODE_NAME``, or the host's name.

    Raises:
        UsageError: it cannot be the name of a Node.
    """
    name = (given or os.environ.get("NODE_NAME") or os.uname().nodename).lower()
    if len(name) > _MOST_CHARACTERS or not name.replace("-", "").replace(".", "").isalnum() or not name.isascii():
        raise UsageError(f"--node-name: {name!r:.80} cannot be the name of a Node: letters, digits, '-' and '.' only")
    return name


def namespace(given: str | None) -> str:
    """Return the namespace for Leases and ConfigMaps: what is *given*, the pod's, or `DEFAULT_NAMESPACE`.

    Raises:
        UsageError: it cannot be the name of a namespace.
    """
    if given:
        if not _NAMESPACE.fullmatch(given):
            right = "at most 63 lower-case letters, digits and '-', such as criproxy"
            raise UsageError(f"--namespace: {given!r:.80} cannot be the name of a namespace: {right}")
        return given
    try:
        return NAMESPACE_FILE.read_text().strip() or DEFAULT_NAMESPACE
    except (OSError, UnicodeDecodeError):
        return DEFAULT_NAMESPACE
