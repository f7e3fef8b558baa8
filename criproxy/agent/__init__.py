"""``criproxy agent``: connects a node with the Kubernetes API; the daemon never waits for it."""

from collections.abc import Mapping
from typing import Any

View = Mapping[str, Any]
"""The daemon's answer to the command ``agent``; docs/agent.md has its keys."""
COMPONENT = "app.kubernetes.io/component=agent"
"""The label of the agents' pods, by which `kubectl criproxy` finds them."""
PORT_NAME = "agent-http"
"""The name of the container port with the agent's HTTP."""
TOKEN_SECRET, TOKEN_KEY = "criproxy-agent", "token"
"""The Secret, and its key, with the token that queries need."""
QUERY_PATH, TOKEN_HEADER, VERSION_HEADER = "/v1/query", "X-Criproxy-Token", "X-Criproxy-Version"
"""Where queries go, the header with the token, and the header by which an agent's answer is known."""
QUERIES = ("status", "explain", "devices", "names", "who", "events", "fit", "usage")
"""The commands of the control socket that change nothing: those that the agent passes on to the daemon."""


def bypass_of(view: View) -> View:
    """Return the bypass that is on, by ``mode``, ``since`` and ``reason``; empty if none is."""
    bypass = view.get("bypass") or {}
    return bypass if bypass.get("mode", "off") != "off" else {}
