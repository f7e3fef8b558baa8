"""The control plane: etcd, the API server, the controllers and the scheduler, and kubectl for whoever asks it."""

import asyncio
import json
import secrets
import shutil
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from lab.cluster.process import ClusterError, Program, output
from lab.cluster.space import ADDRESS

SERVER = f"https://{ADDRESS}:443"
_ETCD = "http://127.0.0.1:2379"
SERVICES = "10.96.0.0/16"
USERS = {
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": ("system:node:worker-1", "system:nodes"),
}
"""Who may do what, by the name of their kubeconfig: user and group."""
OK, NOT_FOUND = 200, 404
_PATIENT_S = 200.0
_GATES = "BoundServiceAccountTokenVolume=true"
"""Tokens of pods are bound and rotated, as in all later versions."""


def commands(programs: Path, folder: Path) -> dict[str, list[str]]:
    """The command lines, in the order of their start.

    Args:
        programs: where the programs are.
        folder: for all that they write, with ``tokens.csv``, ``service-accounts.key`` and the kubeconfigs.
    """
    key = folder / "service-accounts.key"
    etcd = {
        "data-dir": folder / "etcd",
        "listen-client-urls": _ETCD,
        "advertise-client-urls": _ETCD,
        "listen-peer-urls": "http://127.0.0.1:2380",
        "logger": "zap",
        "log-level": "warn",
    }
    server = {
        "etcd-servers": _ETCD,
        "cert-dir": folder / "certificates",
        "bind-address": "0.0.0.0",
        "secure-port": 443,
        "advertise-address": ADDRESS,
        "service-cluster-ip-range": SERVICES,
        "token-auth-file": folder / "tokens.csv",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-signing-key-file": key,
        "service-account-key-file": key,
        "kubelet-preferred-address-types": "InternalIP",
        "allow-privileged": "true",
        "feature-gates": _GATES,
        "profiling": "false",
        # Services lead to nobody's pods here: there is no kube-proxy.
        "enable-aggregator-routing": "true",
    }
    controllers = {
        "kubeconfig": folder / "controllers.kubeconfig",
        "service-account-private-key-file": key,
        "root-ca-file": folder / "ca.crt",
        "use-service-account-credentials": "true",
        "leader-elect": "false",
        "bind-address": "127.0.0.1",
        # The two small nodes have no kubelet that tells how it is.
        "node-monitor-grace-period": "24h",
        "horizontal-pod-autoscaler-sync-period": "2s",
        "feature-gates": _GATES,
    }
    scheduler = {"kubeconfig": folder / "scheduler.kubeconfig", "leader-elect": "false", "bind-address": "127.0.0.1"}
    all_flags: dict[str, Mapping[str, object]] = {
        "etcd": etcd,
        "kube-apiserver": server,
        "kube-controller-manager": controllers,
        "kube-scheduler": scheduler,
    }
    return {
        name: [str(programs / name), *(f"--{flag}={value}" for flag, value in flags.items())]
        for name, flags in all_flags.items()
    }


def kubeconfig(token: str, authority: Path, server: str = SERVER) -> str:
    """The text of a kubeconfig: who has the *token* talks to *server*, whose certificates *authority* has signed."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority": str(authority)}}],
            "users": [{"name": "lab", "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "current-context": "lab",
        }
    )


def authority(chain: str) -> str:
    """The last certificate of *chain*, a PEM file: that of who has signed the others."""
    begin = chain.rindex("-----BEGIN CERTIFICATE-----")
    return chain[begin:]


class ControlPlane:
    """Runs from `start` on; everything is written below *folder*, logs to *logs*."""

    def __init__(self, programs: Path, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.logs = logs
        self.programs = programs
        folder.mkdir(mode=0o755)
        self._tokens = {name: secrets.token_hex(16) for name in USERS}
        self.parts = {
            name: Program(command, logs / f"{name}.log") for name, command in commands(programs, folder).items()
        }
        self.kubectl_program = str(programs / "kubectl")

    def kubeconfig(self, name: str) -> Path:
        """The file of one of `USERS`."""
        return self.folder / f"{name}.kubeconfig"

    @property
    def authority(self) -> Path:
        """The certificate of who has signed the API server's."""
        return self.folder / "ca.crt"

    async def start(self) -> None:
        """Start all parts; returns when the API server is ready. ClusterError if one does not start."""
        self._write_credentials()
        await self.parts["etcd"].start()
        await self.start_server()
        for name in ("kube-controller-manager", "kube-scheduler"):
            await self.parts[name].start()

    async def start_server(self) -> None:
        """Start the API server alone, as after its end; returns when it is ready."""
        server = self.parts["kube-apiserver"]
        await server.start()
        await server.until(self._is_ready, "it was ready", 120.0)

    async def stop_server(self) -> None:
        """End it at once."""
        await self.parts["kube-apiserver"].stop()

    async def wipe(self) -> None:
        """Begin anew with no object at all, as after the loss of etcd's disk."""
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            await self.parts[name].stop()
        await asyncio.to_thread(shutil.rmtree, self.folder / "etcd")
        await self.parts["etcd"].start()
        await self.start_server()
        for name in ("kube-controller-manager", "kube-scheduler"):
            await self.parts[name].start()

    def _write_credentials(self) -> None:
        rows = [f"{self._tokens[name]},{user},{name},{group}" for name, (user, group) in USERS.items()]
        (self.folder / "tokens.csv").write_text("".join(f"{row}\n" for row in rows))
        key = self.folder / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        for name in USERS:
            self.kubeconfig(name).write_text(kubeconfig(self._tokens[name], self.authority))

    async def _is_ready(self) -> bool:
        if not self.authority.exists() and (chain := self.folder / "certificates/apiserver.crt").exists():
            self.authority.write_text(authority(chain.read_text()))
        return self.authority.exists() and (await self.request("GET", "/readyz"))[0] == OK

    # ---------------------------------------------------------------- kubectl

    async def try_kubectl(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        """Exit status, output and errors of kubectl."""
        config = ("--kubeconfig", str(self.kubeconfig("admin")), "--cache-dir", str(self.folder / "cache"))
        return await output(self.kubectl_program, *config, *words, stdin=stdin, timeout_s=_PATIENT_S)

    async def kubectl(self, *words: str, stdin: str = "") -> str:
        """What kubectl prints; ClusterError if it fails."""
        status, out, err = await self.try_kubectl(*words, stdin=stdin)
        if status:
            raise ClusterError(f"kubectl {' '.join(words)[:200]} failed: {err.strip()[:1000]}")
        return out

    async def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or change objects, as ``kubectl apply`` does."""
        await self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    # ---------------------------------------------------------------- requests of our own

    async def request(
        self, method: str, path: str, body: object = None, kind: str = "application/json", token: str = ""
    ) -> tuple[int, Any]:
        """Status and JSON of an answer; 0 and the reason if there is none.

        Args:
            method: such as GET.
            path: such as ``/api/v1/nodes/worker-1``.
            body: JSON.
            kind: of the body, such as ``application/merge-patch+json``.
            token: of who asks; the admin's if not given.
        """
        tls = ssl.create_default_context(cafile=str(self.authority))
        headers = {"Authorization": f"Bearer {token or self._tokens['admin']}", "Content-Type": kind}
        data = None if body is None else json.dumps(body)
        limit = aiohttp.ClientTimeout(total=20)
        try:
            async with (
                aiohttp.ClientSession(SERVER, headers=headers, timeout=limit) as session,
                session.request(method, path, data=data, ssl=tls) as answer,
            ):
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return 0, str(error)
        return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    async def asked(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:  # noqa: ANN401 (JSON)
        """The answer; None where there is no such object; ClusterError if it is another error."""
        status, answer = await self.request(method, path, body, kind)
        if status == NOT_FOUND:
            return None
        if not OK <= status < OK + 100:
            raise ClusterError(f"{method} {path}: {status} {answer}")
        return answer

    async def get(self, path: str) -> Any:  # noqa: ANN401 (JSON)
        """An object, such as ``/api/v1/nodes/worker-1``; None where there is none."""
        return await self.asked("GET", path)

    async def patch(self, path: str, body: object) -> Any:  # noqa: ANN401 (JSON)
        """Merge *body* into an object."""
        return await self.asked("PATCH", path, body, "application/merge-patch+json")

    async def token(self, namespace: str, account: str, seconds: int = 3600) -> str:
        """A new token of a ServiceAccount."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str((await self.asked("POST", path, body))["status"]["token"])
