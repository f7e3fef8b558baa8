"""``criproxy install``: puts criproxy between the kubelet and the runtime of a node."""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from criproxy.cli.options import LOG_FORMATS, LOG_LEVELS, PathOption, check_root, duration, host_options
from criproxy.cli.render.console import print_lines
from criproxy.cli.repeated_output import leaving_on
from criproxy.errors import ConfigError, CriproxyError, UsageError

if TYPE_CHECKING:
    from criproxy.install.verification import ReadNode

KINDS = ("auto", "kubeadm", "k3s", "rke2", "plain")
_CHOICES = {"log-level": LOG_LEVELS, "log-format": LOG_FORMATS}
_NOT_IN_UNITS = frozenset(" \t\n\"'\\$`")


@click.command(short_help="Install criproxy on this node, and point the kubelet at it.")
@host_options
@click.option(
    "--node-kind",
    type=click.Choice(KINDS),
    default="auto",
    show_default=True,
    help="How the kubelet is started and configured; auto detects this.",
)
@click.option(
    "--policy",
    type=PathOption(),
    metavar="FILE",
    help="The policy file to install.  [default: the node's /etc/criproxy/policy.yaml, else criproxy's default]",
)
@click.option(
    "--runtime-endpoint",
    metavar="ADDRESS",
    help="The container runtime's socket.  [default: the one that the kubelet uses now]",
)
@click.option(
    "--http",
    metavar="ADDRESS",
    help="Address at which criproxy serves its page, metrics and health checks, as in `criproxy serve --http`; off "
    "removes the address that an earlier `criproxy install` has set.  [default: the node's setting; a new node has "
    "none]",
)
@click.option(
    "--http-token-file",
    type=PathOption(),
    metavar="FILE",
    help="With --http: the file with the token that clients of the page need. Its content is kept in "
    "/etc/criproxy/page-token on the node.",
)
@click.option(
    "--serve-option",
    "serve_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of `criproxy serve` to set: log-level, log-format or trace-calls. Repeatable. Those that an "
    "earlier `criproxy install` has set are removed if they are not named; none removes all.  [default: they stay]",
)
@click.option(
    "--controls",
    is_flag=True,
    help="Let `criproxy controls` run, too, even if the policy file has no classes: NodePolicies may have some.",
)
@click.option(
    "--nri",
    is_flag=True,
    help="Make criproxy an NRI plugin of the runtime: the kubelet calls the runtime. Without this option, the kubelet "
    "calls criproxy. Either switches a node that has the other.",
)
@click.option(
    "--kubeconfig",
    type=PathOption(),
    metavar="FILE",
    help="File with which to check that the node is Ready, such as /etc/kubernetes/kubelet.conf.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=duration(),
    default="2m",
    show_default=True,
    metavar="DURATION",
    help="How long each check may take.",
)
def command(  # noqa: PLR0913 (one for each option)
    *,
    dry_run: bool,
    host_root: Path,
    node_kind: str,
    policy: Path | None,
    runtime_endpoint: str | None,
    http: str | None,
    http_token_file: Path | None,
    serve_options: tuple[str, ...],
    controls: bool,
    nri: bool,
    kubeconfig: Path | None,
    timeout_s: float,
) -> None:
    """Install criproxy on this node step by step, and go back to the former state if a step fails.

    The command looks at the kubelet's configuration, the runtime, and other programs that place containers; it prints
    what it has found and every step. Then it installs the units and the policy file if they are missing, starts
    criproxy, checks that the runtime answers through it, points the kubelet at it, restarts the kubelet, and checks
    that its calls arrive; with --nri, it switches NRI on in the runtime instead. Pods keep running. If a step fails,
    the command undoes all steps that it has begun; if it is killed, the next run does. It says if nothing is to change.

    Exit status: 0 criproxy is installed, 1 it is not (the node is as it was before, or the message says what could not
    be restored), 2 a usage error.
    """
    check_root(dry_run=dry_run)
    from criproxy.install import paths
    from criproxy.install.host import Host
    from criproxy.install.kubelet import NodeKind
    from criproxy.install.operate import Operator
    from criproxy.install.plan import Request
    from criproxy.install.policy import policy_text
    from criproxy.wire.sockets import unix_path

    runtime = paths.socket_of(unix_path(runtime_endpoint, "--runtime-endpoint")) if runtime_endpoint else ""
    text = policy_text(policy, host_root) if policy else None
    token = _token(http_token_file) if http_token_file else ""
    ready_by, read_node = (str(kubeconfig.absolute()), node_reader(kubeconfig)) if kubeconfig else ("", None)
    request = Request(runtime, text, ready_by, _address(http), token, _serve(serve_options), controls, nri, read_node)
    if token and not request.http:
        raise UsageError("--http-token-file is for the page, which needs --http")
    kind = None if node_kind == "auto" else NodeKind(node_kind)
    with leaving_on(signal.SIGTERM, signal.SIGHUP):
        Operator(Host(host_root), print_lines, kind, timeout_s).install(request, dry_run=dry_run)


def node_reader(kubeconfig: Path) -> "ReadNode":
    """Return what reads Node objects with a kubeconfig.

    Raises:
        CriproxyError: it cannot be used.
    """
    from criproxy.agent.kubernetes.client import NODES, ApiClient
    from criproxy.agent.kubernetes.credentials import credentials_of
    from criproxy.agent.kubernetes.kubeconfig import read_kubeconfig

    try:
        read_kubeconfig(kubeconfig)
    except ConfigError as error:
        raise CriproxyError(f"--kubeconfig {error}") from error

    async def read(name: str) -> dict[str, Any] | None:
        async with ApiClient(credentials_of(kubeconfig)) as client:
            return await client.get(NODES, name)

    return lambda name: asyncio.run(read(name))


def _address(text: str | None) -> str | None:
    """Return the value of ``--http``; empty if it is off, None if it is to stay."""
    from criproxy.process.http.address import Address

    if text is None or text == "off":
        return None if text is None else ""
    Address.parse(text)
    if set(text) & _NOT_IN_UNITS:
        raise UsageError(f"--http: {text!r} has a character that a unit's environment file cannot have there")
    return text


def _serve(options: tuple[str, ...]) -> dict[str, str] | None:
    """Return the values of ``--serve-option`` by name; none if they are to be removed, None if they are to stay."""
    from criproxy.install.plan import SERVE_OPTIONS

    if options in {(), ("none",)}:
        return {} if options else None
    found = dict[str, str]()
    for text in options:
        name, _, value = text.partition("=")
        if name not in SERVE_OPTIONS or not value or set(value) & _NOT_IN_UNITS:
            raise UsageError(f"--serve-option: {text[:80]!r} is not NAME=VALUE with one of {', '.join(SERVE_OPTIONS)}")
        known = _CHOICES.get(name, (value,))
        if value not in known:
            raise UsageError(f"--serve-option: {name} must be one of {', '.join(known)}, not {value[:40]!r}")
        found[name] = value
    return found


def _token(file: Path) -> str:
    """Return the line with the token in *file*."""
    from criproxy.process.http.token_file import read_token

    token, problem = read_token(file)
    if problem:
        raise UsageError(f"--http-token-file: {problem}")
    return f"{token}\n"
