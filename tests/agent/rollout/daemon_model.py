"""A node and its daemon, as far as NodePolicies see them: files, tries, problems, releases; no containers.

The content of a policy says how it behaves: ``{"refused": "why"}``, ``{"fails_on": [NODE, …], "after_s": 3}``,
``{"same": true}``. On every node, the problem of a policy that fails lasts as long as the policy is in force.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from criproxy.agent.changes import Changes
from criproxy.agent.objects.node_policy import text_of
from criproxy.errors import CriproxyError
from criproxy.model.text.sources import hash_of
from criproxy.process.control_socket import ControlServer
from criproxy.process.tasks import wait_at_most

FILE = "/etc/criproxy/policy.yaml"
PROBLEM = "container shop/web/main should have 2 CPUs, but has 1"
_instances = count(1)


@dataclass(frozen=True)
class Configuration:
    """What is, or was, in force."""

    source: str = FILE
    text: str = '{"policy": "static"}'

    @property
    def hash(self) -> str:
        """As criproxy shows it."""
        return hash_of(self.text)

    @property
    def content(self) -> dict[str, Any]:
        """The policy."""
        return dict(json.loads(self.text))


@dataclass(frozen=True)
class Try:
    """What comes back, and when."""

    former: Configuration
    former_kept: bool
    until_s: float


class DaemonModel(Changes):
    """One node."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.file = Configuration()
        self.now = self.file
        self.kept = False
        self.trial: Try | None = None
        self.since_s = 0.0
        self.other_problems: list[str] = []
        self.kinds: dict[str, str] = {}
        """Of problems, by their texts."""
        self.released = ""
        self.bypass = "off"
        self.disk_is_full = False
        self.up = True
        self.instance = f"i{next(_instances)}"
        self.tried: list[str] = []
        """The hashes of all tries."""
        self.in_force: list[str] = []
        """The hashes of all that was in force, in order."""
        self.answers: Mapping[str, Any] = {
            "reload-dry-run": self._dry_run,
            "reload-try": self._try,
            "reload-keep": self._keep,
            "reload-back": self._back_now,
            "reload": self._reload,
        }
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def problems(self) -> list[str]:
        """Those of ``--check``."""
        content = self.now.content
        late = _time() - self.since_s >= content.get("after_s", 0)
        return [*([PROBLEM] if self.name in content.get("fails_on", ()) and late else []), *self.other_problems]

    def view(self) -> dict[str, Any]:
        """The answer to the command ``agent``."""
        left_s = max(0.0, self.trial.until_s - _time()) if self.trial else 0.0
        trial = {"until": f"{self.trial.until_s}", "left_s": left_s, "back": ""} if self.trial else None
        return {
            "instance": self.instance,
            "revision": self.version + 1,
            "configuration": {"file": self.now.source, "hash": self.now.hash, "kept": self.kept, "try": trial},
            "problems": self.problems,
            "found": [{"kind": self.kinds.get(text, ""), "text": text} for text in self.problems],
            "ready": "",
            "released": self.released,
            "bypass": {"mode": self.bypass, "reason": "a test wants it"},
        }

    def answer(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        """Carry out a command; raise CriproxyError."""
        return self.answers[command](arguments)

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        """Answer at a control socket, as the daemon does."""
        commands = {command: partial(self._command, command) for command in self.answers}
        server = ControlServer({"agent": self._poll, **commands})
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            await server.start(listener)
            try:
                yield
            finally:
                await server.stop()
                self.stop()

    async def _poll(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if arguments["after"] == self.version + 1:
            await wait_at_most(arguments["wait_s"], self.changed(self.version))
        return self.view()

    async def _command(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        return self.answer(command, arguments)

    def restart(self) -> None:
        """Stop and start: a try goes on, or ends."""
        self.instance = f"i{next(_instances)}"
        self.notify()

    def change_file(self, text: str) -> None:
        """Write the policy file: it takes effect, unless it says the same as before."""
        self.file = Configuration(FILE, text)
        self.trial, self.kept = None, False
        self._use(self.file)

    def stop(self) -> None:
        """Forget all timers."""
        for each in self._timers:
            each.cancel()

    def _use(self, new: Configuration) -> None:
        self.now, self.since_s = new, _time()
        self.in_force.append(new.hash)
        self._timers.append(asyncio.get_running_loop().call_later(new.content.get("after_s", 0), self.notify))
        self.notify()

    def _dry_run(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        new = Configuration(arguments["source"], arguments["text"])
        mistakes = [new.content["refused"]] if "refused" in new.content else []
        same = bool(new.content.get("same")) or new.content == self.now.content
        return {"accepted": not mistakes, "mistakes": mistakes, "same": same and not mistakes}

    def _try(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        new = Configuration(arguments["source"], arguments["text"])
        if self.disk_is_full:
            raise CriproxyError("tried.json cannot be written: No space left on device")
        if self.trial:
            raise CriproxyError(f"{self.now.source} is being tried")
        if self.released or self.bypass != "off":
            raise CriproxyError("the node is released: end the release first")
        if found := self._dry_run(arguments)["mistakes"]:
            raise CriproxyError(found[0])
        if new.content == self.now.content:
            raise CriproxyError("there is nothing to try")
        self.trial = Try(self.now, self.kept, _time() + arguments["time_s"])
        self.kept = False
        self.tried.append(new.hash)
        self._timers.append(asyncio.get_running_loop().call_later(arguments["time_s"], self._timeout, self.trial))
        self._use(new)
        return {"hash": new.hash}

    def _check(self, arguments: Mapping[str, Any]) -> None:
        if self.trial is None or arguments["hash"] != self.now.hash:
            raise CriproxyError("no configuration with this hash is being tried")

    def _keep(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._check(arguments)
        if self.disk_is_full:
            raise CriproxyError("tried.json cannot be written: No space left on device")
        self.trial, self.kept = None, True
        self.notify()
        return {}

    def _timeout(self, trial: Try) -> None:
        if self.trial is trial:
            self._back()

    def _back_now(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._check(arguments)
        self._back()
        return {}

    def _back(self) -> None:
        assert self.trial is not None
        former, self.kept, self.trial = self.trial.former, self.trial.former_kept, None
        self._use(former)

    def _reload(self, _: Mapping[str, Any]) -> dict[str, Any]:
        self.trial, self.kept = None, False
        self._use(self.file)
        return {}


def _time() -> float:
    return asyncio.get_running_loop().time()


def policy_object(name: str = "p", priority: int = 0, selector: object = None, **policy: object) -> dict[str, Any]:
    """A NodePolicy with this content; keys that begin with ``rollout_`` are options of its rollout."""
    rollout = {key.removeprefix("rollout_"): value for key, value in policy.items() if key.startswith("rollout_")}
    content = {key: value for key, value in policy.items() if not key.startswith("rollout_")}
    spec = {"nodeSelector": selector or {}, "priority": priority, "policy": content, "rollout": rollout}
    return {"metadata": {"name": name}, "spec": spec}


def configuration_of(obj: Mapping[str, Any]) -> Configuration:
    """What a node has in force that has a NodePolicy in force."""
    return replace(Configuration(), source=f"NodePolicy/{obj['metadata']['name']}", text=text_of(obj["spec"]["policy"]))
