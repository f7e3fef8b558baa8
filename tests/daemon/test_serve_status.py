"""What `criproxy status` begins with, of a daemon at work: the kubelet, the runtime, the policy file, the CPUs."""

import asyncio
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from criproxy.store.configurations import LAST_GOOD_NAME as GOOD_NAME
from tests.daemon.test_serve_configuration import GOOD, Scene, metric, metrics_line, reload, run, scene
from tests.daemons import LIMIT_S, Serve, until

__all__ = ["scene"]

OTHER = 'policy: static\nreservedCpus: "1"\n'
COMMENTED = f"# the same\n{OTHER}"


def hash_of(text: str) -> str:
    """What ``sha256sum`` says of a file with that *text*, as far as it is shown."""
    return sha256(text.encode()).hexdigest()[:12]


async def is_well(serve: Serve) -> bool:
    """Whether ``status --check`` finds nothing."""
    return not (await serve.ask("status", check=True))["problems"]


def loaded(log: Path) -> list[str]:
    """The hashes that the log says were loaded."""
    lines = [line for line in log.read_text().splitlines() if "policy loaded" in line]
    return [line.partition("hash=")[2].split()[0] for line in lines]


async def test_a_daemon_at_work(scene: Scene) -> None:
    """The calls of the kubelet by class, the runtime's own name, the file's hash, and how many CPUs are exclusive."""
    async with asyncio.timeout(LIMIT_S), scene.serve() as serve:
        _, before = await serve.json("status")
        await run(serve, "trader", 2)
        _, after = await serve.json("status")
        _, table = await serve.command("status")

    assert before["kubelet"]["last_call"] is None
    classes: dict[str, Any] = after["kubelet"]["classes"]
    assert (classes["pods"]["calls"], classes["containers"]["calls"]) == (1, 2)
    assert 0 <= after["kubelet"]["last_call_s"] <= classes["pods"]["last_call_s"] < LIMIT_S
    assert after["runtime"]["name"]
    assert after["runtime"]["socket"] == str(scene.directory / "runtime.sock")
    wanted = {"file": str(scene.file), "hash": hash_of(GOOD), "kept": False, "try": None}
    assert after["configuration"] == {**wanted, "loaded": after["configuration"]["loaded"]}
    assert after["cpu_counts"] == {"exclusive": 2, "capacity": 3, "free": 1}
    beginnings = (
        "criproxy ",
        "Kubelet: connected to criproxy, last call ",
        f"Runtime: {after['runtime']['name']} {after['runtime']['version']} on ",
        f"Policy file: {scene.file}, hash {hash_of(GOOD)}, loaded ",
        "Exclusive CPUs: 2 of 3; free: 1",
    )
    assert all(map(str.startswith, table.splitlines(), beginnings)), table


async def test_another_file_has_another_hash_and_time(scene: Scene) -> None:
    """Status, metrics and log say which file is in effect; one that cannot be used changes nothing."""
    async with asyncio.timeout(LIMIT_S), scene.serve() as serve:
        _, first = await serve.json("status")
        since = float(await metric(serve, "criproxy_config_loaded_timestamp_seconds"))
        info = await metrics_line(serve, "criproxy_config_info{")
        scene.spoil("every-cpu")
        await reload(serve)
        _, spoilt = await serve.json("status")
        scene.put(OTHER)
        await reload(serve)
        _, second = await serve.json("status")
        scene.put(COMMENTED)
        await reload(serve)
        _, commented = await serve.json("status")
        later = float(await metric(serve, "criproxy_config_loaded_timestamp_seconds"))

    assert f'hash="{hash_of(GOOD)}"' in info
    assert 'policy="static"' in info
    assert spoilt["configuration"] == first["configuration"]
    assert second["configuration"]["hash"] == hash_of(OTHER)
    assert second["configuration"]["loaded"] > first["configuration"]["loaded"]
    assert later > since
    assert commented["configuration"]["hash"] == hash_of(COMMENTED), "of all of the file, as sha256sum has it"
    assert loaded(serve.log)[:2] == [hash_of(GOOD), hash_of(OTHER)]


async def test_without_a_daemon_the_answer_has_the_same_keys(scene: Scene) -> None:
    """What nobody can say is null, and the table leaves it out."""
    async with asyncio.timeout(LIMIT_S), scene.serve() as serve:
        _, by_daemon = await serve.json("status")
        await until((serve.directory / "state" / GOOD_NAME).exists)
        await until(lambda: is_well(serve))
        assert await serve.stop() == 0  # all of its state is stored then
    state = ("--control-socket", str(serve.control), "--state-dir", str(serve.directory / "state"))
    root = ("--host-root", str(scene.directory))
    _, output = scene.command("status", *state, *root, "--format", "json")
    _, table = scene.command("status", *state, *root)

    by_store = json.loads(output)
    assert by_store.keys() == by_daemon.keys()
    assert (by_store["kubelet"], by_store["runtime"], by_store["configuration"]) == (None, None, None)
    assert "Kubelet:" not in table
    assert "Exclusive CPUs: 0 of 3; free: 3" in table
