"""Criproxy fails in front of real containers: the disk, the policy. Cgroups say that owners stay alone."""

from pathlib import Path
from typing import Any

from criproxy.node.bypass import FAILURES
from lab.containerd.containerd import PrivateContainerd
from tests.daemons import until
from tests.disks import fill, free, small_disk
from tests.e2e.scene import ALL, OWNED, Scene, owner, proxied, sharer

POLICY = """
from pathlib import Path

from criproxy.placement.policies import Entry
from criproxy.placement.policies.static import StaticOptions, StaticPolicy


class FragilePolicy(StaticPolicy):
    def place(self, node, container):
        if Path({flag!r}).exists():
            raise ZeroDivisionError("a mistake")
        return super().place(node, container)

    def release(self, node, left):
        if Path({flag!r}).exists():
            raise LookupError(left)
        return super().release(node, left)


ENTRY = Entry(StaticOptions, FragilePolicy)
"""


def policy(name: str = "static") -> str:
    """The policy, with the lowest CPU reserved."""
    return f'policy: {name}\nreservedCpus: "{min(ALL)}"\n'


async def newcomers(scene: Scene) -> None:
    """Run as many pods as it takes; each shares."""
    for number in range(FAILURES + 1):
        sandbox_id, container_id = await scene.run(sharer(f"n{number}"))
        assert await scene.cpus(container_id) == ALL - OWNED
        if number:
            await scene.kubelet.remove_pod(sandbox_id)


async def test_a_full_disk_costs_no_owner_its_cpu(tmp_path: Path, containerd: PrivateContainerd) -> None:
    """Newcomers share, the bypass engages and says so; with space, an owner comes again, also after a restart."""
    with small_disk(tmp_path / "state") as disk:
        async with proxied(tmp_path, containerd, policy()) as scene:
            sandbox_id, owned = await scene.run(owner("owner"))
            _, shared = await scene.run(sharer("shared"))
            fill(disk)

            await newcomers(scene)

            assert (await scene.serve.ask("bypass", state="status"))["mode"] == "automatic"
            await scene.serve.message("STATUS=BYPASS (automatic)")
            assert "state cannot be stored" in scene.serve.log.read_text()
            assert await scene.cpus(owned) == OWNED

            free(disk)
            await scene.serve.logged("state is stored again")
            await scene.kubelet.remove_pod(sandbox_id)
            await scene.serve.ask("bypass", state="off")
            _, second = await scene.run(owner("second"))
            assert (await scene.cpus(second), await scene.cpus(shared)) == (OWNED, ALL - OWNED)
            assert await scene.serve.stop() == 0


async def test_a_policy_that_raises_costs_no_owner_its_cpu(tmp_path: Path, containerd: PrivateContainerd) -> None:
    """Newcomers share until another policy is in force; an owner that ends meanwhile gives its CPU back."""
    flag = tmp_path / "broken"
    place = tmp_path / "fragile"
    (info := place / "fragile-1.0.dist-info").mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fragile\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[criproxy.policies]\nfragile = fragile:ENTRY\n")
    (place / "fragile.py").write_text(POLICY.format(flag=str(flag)))
    async with proxied(tmp_path, containerd, policy("fragile"), path=str(place)) as scene:

        async def bypass() -> Any:  # noqa: ANN401 (JSON)
            return await scene.serve.ask("bypass", state="status")

        async def is_over() -> bool:
            return not (await bypass())["bypass"]

        sandbox_id, owned = await scene.run(owner("owner"))
        flag.touch()
        await newcomers(scene)
        assert (await bypass())["mode"] == "automatic"
        assert await scene.cpus(owned) == OWNED

        await scene.kubelet.remove_pod(sandbox_id)
        scene.serve.policy.write_text(policy())
        await until(is_over)
        _, second = await scene.run(owner("second"))

        assert await scene.cpus(second) == OWNED
        assert "a mistake" in scene.serve.log.read_text()
