"""Where the API server is and who asks it, as files say it: the pod's service account, or a kubeconfig."""

import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from criproxy.agent.kubernetes.plugin import Plugin
from criproxy.errors import ConfigError, reason_of

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MOST_BYTES = 1 << 20
"""Of each file."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server, and who asks it; certificates and keys are PEM."""

    server: str
    """URL without a slash at its end."""
    authority: bytes | None = None
    """Certificates that may sign the server's; None: those of the system."""
    insecure: bool = False
    """Whether the server's certificate is not checked."""
    tls_server_name: str = ""
    """The name in the server's certificate, if it is not that of the URL."""
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    plugin: Plugin | None = None


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Variable(_Model):
    name: str
    value: str


class _Exec(_Model):
    command: str
    args: tuple[str, ...] | None = None
    env: tuple[_Variable, ...] | None = None
    api_version: str = Field(alias="apiVersion")
    provide_cluster_info: bool = Field(False, alias="provideClusterInfo")


class _Server(_Model):
    server: str
    authority: str = Field("", alias="certificate-authority")
    authority_data: str = Field("", alias="certificate-authority-data")
    insecure: bool = Field(False, alias="insecure-skip-tls-verify")
    tls_server_name: str = Field("", alias="tls-server-name")


class _User(_Model):
    certificate: str = Field("", alias="client-certificate")
    certificate_data: str = Field("", alias="client-certificate-data")
    key: str = Field("", alias="client-key")
    key_data: str = Field("", alias="client-key-data")
    token: str = ""
    token_file: str = Field("", alias="tokenFile")
    exec: _Exec | None = None


class _Context(_Model):
    cluster: str
    user: str = ""


class _NamedServer(_Model):
    name: str
    cluster: _Server


class _NamedUser(_Model):
    name: str
    user: _User | None = None


class _NamedContext(_Model):
    name: str
    context: _Context


class _Kubeconfig(_Model):
    current_context: str = Field("", alias="current-context")
    clusters: tuple[_NamedServer, ...] = ()
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] = ()


def read_kubeconfig(file: Path) -> Cluster:
    """Return what the current context of *file* says; may block.

    Raises:
        ConfigError: a file cannot be read, or says something else; the text names it.
    """
    config = _parsed(file)
    context = _named(config.contexts, config.current_context, file, "current-context", "contexts").context
    server = _named(config.clusters, context.cluster, file, "the context's cluster", "clusters").cluster
    user = _User.model_validate({})
    if context.user:
        user = _named(config.users or (), context.user, file, "the context's user", "users").user or user
    beside = file.parent
    authority = _pem(server.authority_data, server.authority, beside, "certificate-authority", file) or None
    found = Cluster(
        server=checked_server(server.server, f"{file}: server of cluster {context.cluster}"),
        authority=authority,
        insecure=server.insecure,
        tls_server_name=server.tls_server_name,
        certificate=_pem(user.certificate_data, user.certificate, beside, "client-certificate", file),
        key=_pem(user.key_data, user.key, beside, "client-key", file),
        token=_token(beside / user.token_file) if user.token_file else user.token,
        plugin=_plugin(user.exec, server, beside),
    )
    if bool(found.certificate) != bool(found.key):
        raise ConfigError(
            f"{file}: user {context.user}: client-certificate and client-key belong together, one is missing"
        )
    return found


def read_service_account(environment: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> Cluster:
    """Return what the kubelet has given to this pod; may block.

    Raises:
        ConfigError: this is no pod, or it has no service account.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so this is no pod; outside of one, "
            "--kubeconfig FILE says where the API server is"
        )
    return Cluster(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        authority=_read(folder / "ca.crt"),
        token=_token(folder / "token"),
    )


def checked_server(url: str, where: str) -> str:
    """Return *url* without a slash at its end.

    Raises:
        ConfigError: it is no URL of a server.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{where}: {url!r} is no URL of a server; write https://HOST:PORT")
    return url.rstrip("/")


def _parsed(file: Path) -> _Kubeconfig:
    try:
        data = yaml.safe_load(_read(file))
        if not isinstance(data, Mapping):
            wrong = "is empty" if data is None else "is no kubeconfig"
            raise ConfigError(f"{file}: {wrong}: it must have clusters, contexts, users and current-context")
        return _Kubeconfig.model_validate(data)
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: is not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]  # the input may be a secret
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{file}: is no kubeconfig: {place}: {first['msg']}") from None


N = TypeVar("N", _NamedContext, _NamedServer, _NamedUser)


def _named(found: tuple[N, ...], name: str, file: Path, what: str, where: str) -> N:
    for each in found:
        if each.name == name:
            return each
    names = ", ".join(each.name for each in found) or "none"
    raise ConfigError(f"{file}: {what} is {name!r}, which is not in {where} ({names})")


def _pem(data: str, name: str, beside: Path, key: str, file: Path) -> bytes:
    """Return what is in the kubeconfig, else in the file that it names; data wins, as in kubectl."""
    if not data:
        return _read(beside / name) if name else b""
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except binascii.Error as error:
        raise ConfigError(f"{file}: {key}-data is not base64: {error}") from None


def _token(file: Path) -> str:
    token = _read(file).decode(errors="replace").strip()
    if not token or any(each.isspace() or not each.isprintable() for each in token):
        raise ConfigError(f"{file}: has no token")
    return token


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {reason_of(error)}") from error
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{file}: has more than {MOST_BYTES} bytes")
    return content


def _plugin(found: _Exec | None, server: _Server, beside: Path) -> Plugin | None:
    if found is None:
        return None
    command = str(beside / found.command) if "/" in found.command else found.command
    cluster: dict[str, Any] | None = None
    if found.provide_cluster_info:
        cluster = {"server": server.server}
        cluster |= {"tls-server-name": server.tls_server_name} if server.tls_server_name else {}
        cluster |= {"insecure-skip-tls-verify": True} if server.insecure else {}
        cluster |= {"certificate-authority-data": server.authority_data} if server.authority_data else {}
    variables = {each.name: each.value for each in found.env or ()}
    return Plugin((command, *(found.args or ())), variables, found.api_version, cluster)
