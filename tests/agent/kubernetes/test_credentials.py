"""Service accounts and kubeconfigs: what they say is used, renewed, and never waited for without end."""

import asyncio
import base64
import json
import os
import shutil
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from criproxy.agent.kubernetes.client import NODES, ApiClient
from criproxy.agent.kubernetes.credentials import Credentials, credentials_of
from criproxy.agent.kubernetes.kubeconfig import MOST_BYTES, Cluster, read_kubeconfig, read_service_account
from criproxy.agent.kubernetes.request import ApiError, Unreachable
from criproxy.errors import ConfigError, CriproxyError
from lab.apiserver.server import ApiServer
from tests.agent.conftest import SHORT
from tests.agent.parts import kubeconfig
from tests.agent.pki import make_pki

API = "client.authentication.k8s.io/v1"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server for ``api.example`` and a client, whose key ``locked.key`` has a password, too."""
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
async def tls_server(pki: Path) -> AsyncIterator[ApiServer]:
    """An API server that wants a client certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    async with ApiServer(tls=context) as server:
        yield server


def data(file: Path) -> str:
    """Its content as a kubeconfig has it."""
    return base64.b64encode(file.read_bytes()).decode()


def plugin(folder: Path, body: str, *, version: str = API, **more: object) -> dict[str, Any]:
    """A user with a plugin, a program of Python."""
    file = folder / "plugin.py"
    file.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
    file.chmod(0o755)
    return {"exec": {"apiVersion": version, "command": "./plugin.py", "interactiveMode": "Never", **more}}


def prints(status: str, version: str = API) -> str:
    """A body of a plugin that counts its runs and prints a status."""
    counts = "open(sys.path[0] + '/runs', 'a').write('x')\n"
    return f"{counts}print(json.dumps({{'apiVersion': '{version}', 'kind': 'ExecCredential', 'status': {status}}}))"


async def asked(credentials: Credentials) -> ApiError | Unreachable | None:
    """Ask the server once; return the error."""
    async with ApiClient(credentials, limits=SHORT) as client:
        try:
            await client.get(NODES, "n1")
        except (ApiError, Unreachable) as error:
            return error
    return None


WAYS: dict[str, Callable[[Path], tuple[dict[str, Any], dict[str, Any]]]] = {
    "files": lambda pki: (
        {"certificate-authority": str(pki / "ca.crt"), "tls-server-name": "api.example"},
        {"client-certificate": str(pki / "client.crt"), "client-key": str(pki / "client.key")},
    ),
    "data": lambda pki: (
        {"certificate-authority-data": data(pki / "ca.crt"), "tls-server-name": "api.example"},
        {"client-certificate-data": data(pki / "client.crt"), "client-key-data": data(pki / "client.key")},
    ),
    "insecure": lambda pki: (
        {"insecure-skip-tls-verify": True},
        {"client-certificate": str(pki / "client.crt"), "client-key": str(pki / "client.key")},
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
async def test_client_certificates(
    tls_server: ApiServer, pki: Path, tmp_path: Path, way: Callable[[Path], tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    """In files or in the kubeconfig, with the server's name or without any check of it."""
    cluster, user = way(pki)
    assert await asked(credentials_of(kubeconfig(tmp_path, tls_server.url, user=user, **cluster))) is None


async def test_files_are_beside_the_kubeconfig(tls_server: ApiServer, pki: Path) -> None:
    """Where their names are relative."""
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    file = kubeconfig(
        pki, tls_server.url, user=user, **{"certificate-authority": "ca.crt", "tls-server-name": "api.example"}
    )
    assert await asked(credentials_of(file)) is None


@pytest.mark.parametrize(
    ("cluster", "user", "text"),
    [
        pytest.param({}, {}, "certificate verify failed", id="an authority that nobody knows"),
        pytest.param({"certificate-authority": "ca.crt"}, {}, "IP address mismatch", id="another name"),
        pytest.param({"insecure-skip-tls-verify": True}, {}, "", id="no client certificate"),
        pytest.param(
            {"insecure-skip-tls-verify": True},
            {"client-certificate": "client.crt", "client-key": "locked.key"},
            "client certificate cannot be used",
            id="a key with a password",
        ),
        pytest.param(
            {"insecure-skip-tls-verify": True},
            {"client-certificate": "client.crt", "client-key": "ca.key"},
            "client certificate cannot be used",
            id="another key",
        ),
        pytest.param(
            {"certificate-authority": "ca.key"}, {}, "authority cannot be used", id="an authority that is none"
        ),
    ],
)
async def test_without_trust_there_is_no_answer(
    tls_server: ApiServer, pki: Path, cluster: dict[str, Any], user: dict[str, Any], text: str
) -> None:
    """And the sentence says why."""
    error = await asked(credentials_of(kubeconfig(pki, tls_server.url, user=user, **cluster)))
    assert isinstance(error, Unreachable)
    assert text in str(error)
    assert not tls_server.requests


async def test_a_certificate_that_is_replaced_is_used(tls_server: ApiServer, pki: Path, tmp_path: Path) -> None:
    """After the time for which files are not read again."""
    for name in ("client.crt", "client.key"):
        shutil.copy(pki / name, tmp_path / name)
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    file = kubeconfig(tmp_path, tls_server.url, user=user, **{"insecure-skip-tls-verify": True})
    credentials = Credentials(lambda: read_kubeconfig(file), reload_s=0.0)
    first = await credentials.access()
    assert await credentials.access() is first
    (tmp_path / "client.crt").write_bytes((pki / "client.crt").read_bytes() + b"\n")
    assert (await credentials.access()).tls is not first.tls


def token_source(file: Path, server: str) -> Callable[[], Cluster]:
    """What reads a token from a file, as a service account has it."""
    return lambda: Cluster(server, token=file.read_text().strip())


async def test_a_rotated_token_is_read_at_a_401(apiserver: ApiServer, tmp_path: Path) -> None:
    """At once, and the request is repeated once."""
    file = tmp_path / "token"
    file.write_text("old")
    apiserver.faults.tokens = {"old"}
    async with ApiClient(Credentials(token_source(file, apiserver.url)), limits=SHORT) as client:
        assert await client.get(NODES, "n1") is None
        file.write_text("new")
        assert await client.get(NODES, "n1") is None
        apiserver.faults.tokens = {"new"}
        assert await client.get(NODES, "n1") is None
        assert apiserver.requests["get", "nodes"] == 4


async def test_a_token_that_is_refused_is_not_repeated(apiserver: ApiServer, tmp_path: Path) -> None:
    """The answer is the server's."""
    file = tmp_path / "token"
    file.write_text("wrong")
    apiserver.faults.tokens = {"right"}
    error = await asked(Credentials(token_source(file, apiserver.url)))
    assert isinstance(error, ApiError)
    assert error.status == 401
    assert apiserver.requests["get", "nodes"] == 1


async def test_a_token_is_read_again_before_it_is_refused(apiserver: ApiServer, tmp_path: Path) -> None:
    """Each minute; here without a pause."""
    file = tmp_path / "token"
    file.write_text("old")
    credentials = Credentials(token_source(file, apiserver.url), reload_s=0.0)
    assert (await credentials.access()).token == "old"  # noqa: S105
    file.write_text("new")
    assert (await credentials.access()).token == "new"  # noqa: S105


async def test_a_file_that_is_missing_for_a_moment_changes_nothing(tmp_path: Path) -> None:
    """What was read before is used on; without anything before, it is an error."""
    file = kubeconfig(tmp_path, "http://127.0.0.1:1", user={"tokenFile": "token"})
    (tmp_path / "token").write_text("t\n")
    credentials = Credentials(lambda: read_kubeconfig(file), reload_s=0.0)
    first = await credentials.access()
    (tmp_path / "token").unlink()
    assert await credentials.access() is first
    with pytest.raises(CriproxyError, match="token: cannot be read: No such file or directory"):
        await credentials_of(file).access()


async def test_a_service_account(tmp_path: Path, pki: Path) -> None:
    """Its server, token and authority."""
    shutil.copy(pki / "ca.crt", tmp_path)
    (tmp_path / "token").write_text("t")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = read_service_account(environment, tmp_path)
    assert (found.server, found.token) == ("https://[fd00::1]:443", "t")
    access = await Credentials(lambda: found).access()
    assert access.tls is not None
    with pytest.raises(ConfigError, match="--kubeconfig FILE"):
        read_service_account({}, tmp_path)


MISTAKES = [
    pytest.param("[", "is not YAML", id="no YAML"),
    pytest.param("a", "is no kubeconfig: it must have clusters, contexts, users and current-context", id="a text"),
    pytest.param("", "is empty: it must have clusters, contexts, users and current-context", id="an empty file"),
    pytest.param("{}", "current-context is '', which is not in contexts \\(none\\)", id="nothing"),
    pytest.param("current-context: 3", "current-context: Input should be a valid string", id="a number"),
    pytest.param(
        "current-context: a\ncontexts: [{name: a, context: {cluster: b}}]\nclusters: [{name: c, cluster: {server: s}}]",
        "the context's cluster is 'b', which is not in clusters \\(c\\)",
        id="no such cluster",
    ),
    pytest.param(
        "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: x}}]",
        "server of cluster c: 'x' is no URL of a server; write https://HOST:PORT",
        id="no URL",
    ),
    pytest.param(" " * (MOST_BYTES + 1), "has more than", id="too long"),
]


@pytest.mark.parametrize(("text", "sentence"), MISTAKES)
def test_a_wrong_kubeconfig_is_said(tmp_path: Path, text: str, sentence: str) -> None:
    """With the file and the place."""
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"^{file}: .*{sentence}"):
        read_kubeconfig(file)


USERS = [
    pytest.param({"client-certificate-data": "!"}, "client-certificate-data is not base64", id="no base64"),
    pytest.param({"client-certificate": "absent"}, "absent: cannot be read", id="no file"),
    pytest.param({"client-key-data": "YQ=="}, "belong together", id="a key alone"),
    pytest.param({"tokenFile": "kubeconfig"}, "has no token", id="a file that is no token"),
    pytest.param({"exec": {"command": "x"}}, "exec.apiVersion: Field required", id="a plugin without a version"),
]


@pytest.mark.parametrize(("user", "sentence"), USERS)
def test_a_wrong_user_is_said(tmp_path: Path, user: dict[str, Any], sentence: str) -> None:
    """And secrets are not."""
    with pytest.raises(ConfigError, match=sentence) as raised:
        read_kubeconfig(kubeconfig(tmp_path, "https://x", user={**user, "token": "hidden"}))
    assert "hidden" not in str(raised.value)


async def test_a_plugin_gives_a_token(apiserver: ApiServer, tmp_path: Path) -> None:
    """It runs once, also for requests at the same time, with what the kubeconfig says."""
    body = prints("{'token': os.environ['SECRET'] + sys.argv[1]}")
    user = plugin(tmp_path, body, args=["2"], env=[{"name": "SECRET", "value": "1"}])
    apiserver.faults.tokens = {"12"}
    async with ApiClient(credentials_of(kubeconfig(tmp_path, apiserver.url, user=user)), limits=SHORT) as client:
        assert await asyncio.gather(*(client.get(NODES, "n1") for _ in range(5))) == [None] * 5
        assert await client.get(NODES, "n1") is None
    assert (tmp_path / "runs").read_text() == "x"


async def test_a_plugin_is_told_about_the_cluster(tmp_path: Path) -> None:
    """If the kubeconfig wants it."""
    body = prints("{'token': json.dumps(json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec'])}")
    user = plugin(tmp_path, body, provideClusterInfo=True)
    file = kubeconfig(tmp_path, "https://x", user=user, **{"insecure-skip-tls-verify": True})
    told = json.loads((await credentials_of(file).access()).token)
    assert told == {"interactive": False, "cluster": {"server": "https://x", "insecure-skip-tls-verify": True}}


async def test_a_plugin_gives_a_certificate(tls_server: ApiServer, pki: Path, tmp_path: Path) -> None:
    """Of which the key never is on the disk."""
    certificate, key = (pki / "client.crt").read_text(), (pki / "client.key").read_text()
    user = plugin(tmp_path, prints(repr({"clientCertificateData": certificate, "clientKeyData": key})))
    file = kubeconfig(tmp_path, tls_server.url, user=user, **{"insecure-skip-tls-verify": True})
    assert await asked(credentials_of(file)) is None


@pytest.mark.parametrize(("lasts_s", "runs"), [(3600, 1), (-3600, 1)], ids=["an hour", "a wrong clock"])
async def test_what_a_plugin_gives_is_kept(tmp_path: Path, lasts_s: int, runs: int) -> None:
    """Until its time is over; a minute in any case, whatever the clocks say."""
    until = (datetime.now(UTC) + timedelta(seconds=lasts_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    user = plugin(tmp_path, prints(repr({"token": "t", "expirationTimestamp": until})))
    credentials = Credentials(lambda: read_kubeconfig(file), reload_s=0.0)
    file = kubeconfig(tmp_path, "http://x", user=user)
    for _ in range(3):
        assert (await credentials.access()).token == "t"  # noqa: S105
    assert len((tmp_path / "runs").read_text()) == runs


async def test_a_plugin_runs_again_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And when the server refuses what it gave, but not for each refusal."""
    monkeypatch.setattr("criproxy.agent.kubernetes.plugin.LEAST_S", 0.0)
    until = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    user = plugin(tmp_path, prints(f"{{'token': str(time.time()), 'expirationTimestamp': '{until}'}}"))
    credentials = credentials_of(kubeconfig(tmp_path, "http://x", user=user))
    first = await credentials.access()
    assert await credentials.access() is not first


async def test_a_refused_token_of_a_plugin_is_replaced_once(apiserver: ApiServer, tmp_path: Path) -> None:
    """A server that refuses everything does not make it run for each request."""
    user = plugin(tmp_path, prints("{'token': str(time.time())}"))
    apiserver.faults.tokens = set()
    async with ApiClient(credentials_of(kubeconfig(tmp_path, apiserver.url, user=user)), limits=SHORT) as client:
        for _ in range(5):
            with pytest.raises(ApiError, match="401"):
                await client.get(NODES, "n1")
    assert len((tmp_path / "runs").read_text()) == 2


BROKEN = [
    pytest.param("sys.exit(3)", "has ended with status 3", id="fails"),
    pytest.param("print('hello')", "does not print an ExecCredential", id="prints something else"),
    pytest.param("print('{}')", "does not print an ExecCredential", id="prints no status"),
    pytest.param(prints("{}"), "gives neither a token nor a certificate", id="gives nothing"),
    pytest.param(prints("{'token': 'hidden'}", "v0"), "prints an ExecCredential of v0", id="of another version"),
    pytest.param("while True: print('x' * 4096)", "prints more than 1048576 bytes", id="prints without end"),
    pytest.param("time.sleep(3600)", "has not ended within 1 s", id="hangs"),
    pytest.param(
        "os.spawnvp(os.P_NOWAIT, 'sleep', ['sleep', '3600'])", "has not ended within 1 s", id="leaves a child"
    ),
    pytest.param(prints("{'token': 'hidden', 'expirationTimestamp': 'soon'}"), "does not print", id="no time"),
]


@pytest.mark.parametrize(("body", "sentence"), BROKEN)
async def test_a_broken_plugin_is_said(tmp_path: Path, body: str, sentence: str) -> None:
    """In bounded time, without its output, and nothing of it is left."""
    file = kubeconfig(tmp_path, "http://x", user=plugin(tmp_path, body))
    with pytest.raises(CriproxyError, match=sentence) as raised:
        await Credentials(lambda: read_kubeconfig(file), plugin_s=1.0).access()
    assert str(tmp_path / "plugin.py") in str(raised.value)
    assert "hidden" not in str(raised.value)


async def test_a_plugin_that_does_not_exist_is_said(tmp_path: Path) -> None:
    """With the program."""
    user = {"exec": {"apiVersion": API, "command": "criproxy-no-such-plugin"}}
    with pytest.raises(CriproxyError, match="criproxy-no-such-plugin cannot be run: No such file or directory"):
        await credentials_of(kubeconfig(tmp_path, "http://x", user=user)).access()


async def test_a_slow_plugin_does_not_hold_up_a_request_for_ever(apiserver: ApiServer, tmp_path: Path) -> None:
    """The request ends in its time; the plugin goes on, for the next one."""
    os.mkfifo(tmp_path / "gate")
    body = "open(sys.path[0] + '/gate').read()\n" + prints("{'token': 't'}")
    credentials = credentials_of(kubeconfig(tmp_path, apiserver.url, user=plugin(tmp_path, body)))
    async with ApiClient(credentials, limits=SHORT.__class__(timeout_s=2)) as client:
        with pytest.raises(Unreachable, match="the credentials are not there"):
            await client.get(NODES, "n1")
        await asyncio.to_thread((tmp_path / "gate").write_text, "")
        await credentials.access()
        assert await client.get(NODES, "n1") is None
    assert (tmp_path / "runs").read_text() == "x"
