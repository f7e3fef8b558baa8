"""Finds nodes, pods and agents in the API server, and asks the daemon of a node through its agent."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from criproxy import __version__
from criproxy.agent import COMPONENT, PORT_NAME, QUERY_PATH, TOKEN_HEADER, TOKEN_KEY, TOKEN_SECRET, VERSION_HEADER
from criproxy.cli.kubectl.proxy import Answer, ApiServer
from criproxy.cli.render.console import print_lines
from criproxy.errors import CriproxyError, UsageError

Object = dict[str, Any]
PAGE = "docs/reach.md#kubectl-criproxy"
"""Explains what has to be set up."""
PAGE_ITEMS = 500
"""Objects in one page of a list."""


@dataclass(frozen=True, slots=True)
class Right:
    """A right that a request needs, for the message when it is missing."""

    verb: str
    resource: str
    namespace: str = ""
    group: str = ""
    name: str = ""

    @property
    def rule(self) -> str:
        """The rule of a Role or ClusterRole that gives it."""
        names = f", resourceNames: [{self.name}]" if self.name else ""
        kind = f"a Role in namespace {self.namespace}" if self.namespace else "a ClusterRole"
        return f'{{apiGroups: ["{self.group}"], resources: [{self.resource}]{names}, verbs: [{self.verb}]}} in {kind}'


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent of a node."""

    pod: str
    port: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the API server says about criproxy, whose agents are in *namespace*."""

    api: ApiServer
    namespace: str

    def get(self, path: str, right: Right) -> Object | None:
        """Return an object or a list; None if it does not exist.

        Raises:
            CriproxyError: the API server does not answer, or refuses.
        """
        answer = self.api.ask(path)
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        if answer.status != HTTPStatus.OK:
            raise refusal(answer, right)
        return answer.json()

    def items(self, path: str, right: Right, **query: str) -> Iterator[Object] | None:
        """Return all objects of a list, page by page; None if the API server does not know such objects."""
        wanted = {**query, "limit": str(PAGE_ITEMS)}
        page = self.get(f"{path}?{urlencode(wanted)}", right)
        return None if page is None else self._pages(path, right, wanted, page)

    def _pages(self, path: str, right: Right, wanted: Mapping[str, str], page: Object) -> Iterator[Object]:
        while True:
            yield from page.get("items") or ()
            if not (more := (page.get("metadata") or {}).get("continue")):
                return
            page = self.get(f"{path}?{urlencode({**wanted, 'continue': more})}", right) or {}

    def agent_of(self, node: str) -> Agent:
        """Return the agent that runs on *node*.

        Raises:
            CriproxyError: there is none that can be asked; the text says why.
        """
        path = _path(self.namespace, "pods")
        query = {"labelSelector": COMPONENT, "fieldSelector": f"spec.nodeName={node}"}
        pods = [*(self.items(path, Right("list", "pods", self.namespace), **query) or ())]
        ready = [pod for pod in pods if _phase(pod) == "Running"]
        if not ready:
            raise CriproxyError(self._no_agent(node, pods))
        pod = max(ready, key=lambda each: str(each["metadata"].get("creationTimestamp", "")))
        name = pod["metadata"]["name"]
        for container in pod["spec"].get("containers", ()):
            for port in container.get("ports") or ():
                if port.get("name") == PORT_NAME:
                    return Agent(name, int(port["containerPort"]))
        text = f"the agent's pod {self.namespace}/{name} on node {node} has no container port named {PORT_NAME}"
        raise CriproxyError(f"{text}: it does not answer queries ({PAGE})")

    def _no_agent(self, node: str, pods: list[Object]) -> str:
        """Return why nobody can be asked on *node*, where only *pods* are."""
        if pods:
            name = f"{self.namespace}/{pods[0]['metadata']['name']}"
            return f"the agent on node {node} cannot be asked: its pod {name} is {_phase(pods[0])}"
        answer = self.api.ask(f"/api/v1/nodes/{quote(node, safe='')}")  # who may not see nodes gets the other sentence
        if answer.status == HTTPStatus.NOT_FOUND:
            return f"there is no node {node}; kubectl criproxy nodes lists those with criproxy"
        text = f"no agent of criproxy runs on node {node}: there is no pod with the label {COMPONENT} in namespace"
        return f"{text} {self.namespace}; --criproxy-namespace names another one ({PAGE})"

    def token(self) -> str:
        """Return the token that agents want.

        Raises:
            CriproxyError: it cannot be read.
        """
        where, path = f"Secret {self.namespace}/{TOKEN_SECRET}", _path(self.namespace, "secrets", TOKEN_SECRET)
        found = self.get(path, Right("get", "secrets", self.namespace, name=TOKEN_SECRET))
        if found is None:
            raise CriproxyError(f"there is no {where}: agents answer only those who have the token in it ({PAGE})")
        try:
            return base64.b64decode((found.get("data") or {})[TOKEN_KEY], validate=True).decode("ascii").strip()
        except (KeyError, binascii.Error, UnicodeDecodeError, TypeError) as error:
            raise CriproxyError(f"{where} has no token in ASCII under the key {TOKEN_KEY} ({PAGE})") from error

    def container(self, namespace: str, pod: str, container: str = "") -> tuple[str, str]:
        """Return the node of a pod, and NAMESPACE/POD/CONTAINER of its container; it may be omitted if it has one.

        Raises:
            CriproxyError: there is no such pod or container, the pod has no node, or several containers.
        """
        name = f"{namespace}/{pod}"
        found = self.get(_path(namespace, "pods", pod), Right("get", "pods", namespace))
        if found is None:
            hint = f"for one that is gone, ask its node: --node NODE {name}/CONTAINER"
            raise CriproxyError(f"the API server knows no pod {name}; {hint}")
        spec = found["spec"]
        if not (node := spec.get("nodeName")):
            raise CriproxyError(f"pod {name} has no node yet; kubectl describe pod -n {namespace} {pod} says why")
        names = [each["name"] for each in spec.get("containers") or ()]
        others = ("initContainers", "ephemeralContainers")
        more = [each["name"] for kind in others for each in spec.get(kind) or ()]
        if not container and len(names) == 1:
            container = names[0]
        if container not in (*names, *more):
            listed = ", ".join(f"{name}/{each}" for each in (*names, *more))
            wrong = f"has no container {container}" if container else f"has {len(names)} containers"
            raise CriproxyError(f"pod {name} {wrong}; name one of: {listed}")
        return str(node), f"{name}/{container}"


def _path(namespace: str, *parts: str) -> str:
    """Return the path of something in a namespace; users give some of the *parts*."""
    return "/".join(("/api/v1/namespaces", *(quote(each, safe=":") for each in (namespace, *parts))))


def _phase(pod: Object) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str((pod.get("status") or {}).get("phase", "Unknown"))


def refusal(answer: Answer, right: Right) -> CriproxyError:
    """Return the error for an answer of the API server that is no success."""
    match answer.status:
        case HTTPStatus.UNAUTHORIZED:
            return CriproxyError(f"the API server does not accept kubectl's credentials: {answer.text}")
        case HTTPStatus.FORBIDDEN:
            return CriproxyError(f"the API server refuses: {answer.text}\nThis rule allows it: {right.rule} ({PAGE})")
        case HTTPStatus.BAD_REQUEST | HTTPStatus.UNPROCESSABLE_ENTITY:
            return UsageError(f"the API server refuses: {answer.text}")
        case _:
            return CriproxyError(f"the API server answers with {answer.status}: {answer.text}")


@dataclass(slots=True)
class RemoteNode:
    """The daemon of a node, behind its agent; see `client.RemoteDaemon`."""

    cluster: Cluster
    node: str
    version: str = ""
    """That of the agent, once it has answered."""
    _found: tuple[Agent, str] | None = field(default=None, repr=False)
    """The agent, and the token; looked up again after an error, since pods are replaced and tokens rotated."""

    def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Return the result of a query.

        Raises:
            UsageError: the daemon answers that the request is wrong.
            CriproxyError: there is no answer; the text says why.
        """
        if not self.node:
            raise UsageError("name a node with --node; kubectl criproxy nodes lists them")
        if self._found is None:
            self._found = self.cluster.agent_of(self.node), self.cluster.token()
        agent, token = self._found
        path = _path(self.cluster.namespace, "pods", f"http:{agent.pod}:{agent.port}") + f"/proxy{QUERY_PATH}"
        body = {"command": command, "arguments": dict(arguments)}
        self._found, found = None, self._found
        answer = self.cluster.api.ask(path, body, {TOKEN_HEADER: token})
        self._note_version(answer)
        values = answer.json()
        if answer.status == HTTPStatus.OK and "result" in values:
            self._found = found
            return values["result"]
        if answer.status == HTTPStatus.UNPROCESSABLE_ENTITY and "error" in values and self.version:
            wrong_use = values.get("exit_status") == UsageError.exit_status
            raise (UsageError if wrong_use else CriproxyError)(f"node {self.node}: {values['error']}")
        raise self._no_answer(answer, agent)

    def _note_version(self, answer: Answer) -> None:
        """Remember the agent's version, and say once if it is another one."""
        version = answer.headers.get(VERSION_HEADER.lower(), "")
        if version not in {"", __version__, self.version}:
            text = f"Note: criproxy on node {self.node} is of version {version}, this command of {__version__}"
            print_lines(text, err=True)
        self.version = version

    def _no_answer(self, answer: Answer, agent: Agent) -> CriproxyError:
        where = f"the agent on node {self.node} (pod {self.cluster.namespace}/{agent.pod})"
        if not self.version:  # of the API server, which says as well why it does not reach the agent
            if answer.status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY}:
                return CriproxyError(f"the API server does not reach {where}, port {agent.port}: {answer.text}")
            if answer.status == HTTPStatus.NOT_FOUND:
                return CriproxyError(f"{where} is gone, or of another version than this command: {answer.text}")
            return refusal(answer, Right("create", "pods/proxy", self.cluster.namespace))
        if answer.status == HTTPStatus.UNAUTHORIZED:
            text = f"{where} does not accept the token of Secret {TOKEN_SECRET}"
            return CriproxyError(f"{text}: {answer.text}; a new token takes a minute to reach the agents")
        return CriproxyError(f"{where}: {answer.text}")
