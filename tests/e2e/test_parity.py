"""Through the splice, a real containerd answers every call as it answers directly: replies, codes and texts."""

import json
import socket
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as cri
from criproxy.cri.methods import METHODS, paths
from criproxy.cri.touched_methods import PACKAGES
from criproxy.wire.calls import Call, Rule
from lab.containerd.containerd import PrivateContainerd
from tests.e2e.conversation import talk
from tests.e2e.recording import NEVER_OK, UNKNOWN, Answer, Recorder
from tests.e2e.runtimes import Runtime
from tests.e2e.through import EDITED, HELD, Growing, connect, proxy


@pytest.mark.parametrize("package", PACKAGES)
async def test_every_method_answers_as_without_the_proxy(
    containerd: PrivateContainerd, tmp_path: Path, package: str
) -> None:
    """Four methods are held and grown by 500 bytes, one reply is edited, and no answer of any method differs."""
    growing = Growing()
    logs, cgroups = tmp_path, containerd.cgroups
    direct = await talk(containerd.socket, logs, cgroups, package)
    async with proxy(containerd, tmp_path / "proxy.sock", growing.table):
        through = await talk(tmp_path / "proxy.sock", logs, cgroups, package, frozenset({EDITED}))

    assert [answer for answer in through.answers if answer not in direct.answers] == []
    assert through.answers == direct.answers
    unknown = set(METHODS) if gone(containerd, package) else UNKNOWN[containerd.version]
    assert set(growing.done) == ({*HELD} if gone(containerd, package) else {*HELD, EDITED})
    assert direct.named(lambda code: code == "OK") == set(METHODS) - unknown - NEVER_OK
    assert direct.named(lambda code: code == "UNIMPLEMENTED") >= unknown | {"Invented"}
    assert direct.named(lambda code: code != "OK") >= set(METHODS)


def gone(containerd: PrivateContainerd, package: str) -> bool:
    """Whether this containerd does not serve the package any more: it says so in one sentence for each method."""
    return package == PACKAGES[1] and containerd.version >= (2, 0)


def test_the_conversation_has_every_method_of_the_facts(shared_dir: Path) -> None:
    """No method of the newest CRI is left out because our messages lack it."""
    services = json.loads((shared_dir / "reference/cri-v1.json").read_text())["services"]
    named = {(service, method["method"]) for service, methods in services.items() for method in methods}

    assert named == {(method.service, method.name) for method in METHODS.values()}


async def test_a_difference_would_be_noticed(containerd: PrivateContainerd, tmp_path: Path) -> None:
    """Replacing ids and times does not hide that one letter of a reply has changed."""

    def change(call: Call, message: bytes) -> bytes:
        return message.replace(b"containerd", b"containerc")

    async def ask(path: Path) -> list[Answer]:
        async with connect(path) as channel:
            to = Recorder(channel)
            await to.send(cri.VersionRequest())
            await to.send(cri.StatusRequest())
        return to.answers

    direct = await ask(containerd.socket)
    table = {path: Rule(edit=change) for path in paths("Version")}
    async with proxy(containerd, tmp_path / "proxy.sock", table):
        through = await ask(tmp_path / "proxy.sock")

    assert through[0] != direct[0]
    assert through[1] == direct[1]


def test_nri_is_as_the_runtime_says(containerd: PrivateContainerd, request: pytest.FixtureRequest) -> None:
    """Where it is switched on, plugins find a socket; all other tests run beside it."""
    runtime: Runtime = request.node.callspec.params["shared_containerd"]
    with socket.socket(socket.AF_UNIX) as plugin:
        refusal = plugin.connect_ex(str(containerd.directory / "nri.sock"))

    assert (refusal == 0) == runtime.nri, containerd.log
