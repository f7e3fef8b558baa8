"""Acceptance scenarios of what changes while the device plugin runs: its files, labels, and the kubelet."""

from dataclasses import replace
from pathlib import Path
from signal import SIGTERM

from criproxy.deviceplugin.configuration.configuration import NAMED_CONFIG, below
from criproxy.devices.plugin.named_configuration import NamedConfiguration
from criproxy.store.files import write_whole
from tests.deviceplugin.joined import GPU_A, GPU_B, Joined, joined, nodes, plug_gpus, pod, replicas, sharing
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.node import GPU, QUICK
from tests.deviceplugin.program import Program, policy
from tests.deviceplugin.test_program_http import FEATURES, ask, labels, values
from tests.node.devices.test_joined import visible

SHARED = f"{GPU}.shared"
ONLY_EVENTS = replace(QUICK, first_pause_s=3600, longest_pause_s=3600, settle_s=3600, poll_s=3600, beside_events_s=3600)
"""No timer ends in time: what happens follows an event at once."""


def program_on(folder: Path, *arguments: str) -> Program:
    """The device plugin on a machine with both GPUs, with NVIDIA's file beside the policy file."""
    program = Program(folder, "--nvidia-config", str(folder / "nvidia.yaml"), *arguments)
    plug_gpus(program.host, GPU_A, GPU_B)
    program.policy.write_text(policy("{advertise: [nvidia], labels: {interval: 50ms}}"))
    program.host.text(f"{FEATURES}x")  # makes the folder
    return program


def write(program: Program, text: str) -> None:
    """Replace NVIDIA's file: nobody reads half of it."""
    new = program.folder / "new.yaml"
    new.write_text(text)
    new.rename(program.folder / "nvidia.yaml")


# -------------------------------------------------------------------- 5


async def test_5_names_and_labels_of_shared_cards(folder: Path) -> None:
    """Renamed ones leave the product as it is; others do not; without sharing, the labels say so."""
    async with program_on(folder) as program:

        async def until_labels(product: str, replicas: str, strategy: str) -> None:
            wanted = {
                f"{GPU}.count": "2",
                f"{GPU}.product": product,
                f"{GPU}.replicas": replicas,
                f"{GPU}.sharing-strategy": strategy,
            }
            await program.until(lambda: wanted.items() <= labels(program).items())

        write(program, sharing(renameByDefault=True))
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(SHARED, 10)
        await until_labels("Tesla-T4", "5", "time-slicing")
        assert program.kubelet.registered == [SHARED]
        assert program.kubelet.capacity(GPU) == (0, 0)

        write(program, sharing())
        await program.kubelet.until_capacity(GPU, 10)
        await until_labels("Tesla-T4-SHARED", "5", "time-slicing")
        assert program.kubelet.registered == [SHARED, GPU]

        write(program, "version: v1\n")
        await program.kubelet.until_capacity(GPU, 2)
        await until_labels("Tesla-T4", "1", "none")
        assert program.kubelet.healthy(GPU) == {"GPU-a", "GPU-b"}


# -------------------------------------------------------------------- 7

WRONG = [
    (sharing(replicas=1), "number of replicas must be >= 2"),
    ("version: v1\nsharing: {timeSlicing: {}}\n", "no resources specified"),
    ("version: v2\n", "unknown version: v2"),
]


async def test_7_a_wrong_file_at_the_start(folder: Path) -> None:
    """The program ends with NVIDIA's words."""
    async with program_on(folder, "--log-format", "console") as program:
        write(program, "version: v2\n")
        await program.start()

        assert await program.ended() == 1
        assert "unknown version: v2" in "".join(program.other)


async def test_7_a_wrong_file_later(folder: Path) -> None:
    """What was in force goes on to be served, and a metric says that the file is not in force, until it is right."""
    async with program_on(folder, "--http", f"unix://{folder}/http.sock") as program:

        async def metrics() -> tuple[float, float]:
            found = values((await ask(folder, "/metrics"))[1])
            of = "criproxy_device_plugin"
            return found[f"{of}_config_problem[]"], found.get(f"{of}_reloads_total['failed']", 0.0)

        write(program, sharing())
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(GPU, 10)
        assert await metrics() == (0, 0)

        for number, (text, mistake) in enumerate(WRONG):
            write(program, text)
            await program.until_said(mistake)
            assert await metrics() == (1, number + 1)
            assert program.kubelet.capacity(GPU) == (10, 10)
            given = await program.kubelet.admit(Pod(f"uid-{number}"), {GPU: 1})
            assert given[GPU].ids[0] in replicas("GPU-a", "GPU-b")

        write(program, sharing(replicas=2))
        await program.kubelet.until(lambda: program.kubelet.healthy(GPU) == replicas("GPU-a", "GPU-b", each=2))
        await program.until_said("configuration reloaded")
        assert (await metrics())[0] == 0


async def test_7_an_emptied_file(folder: Path) -> None:
    """It ends no sharing, since whoever writes in place empties a file first; at a start it means the defaults."""
    async with program_on(folder) as program:
        file = folder / "nvidia.yaml"
        write(program, sharing())
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(GPU, 10)

        file.write_text("")
        await program.until_said(f"{file}: is empty")
        assert program.kubelet.capacity(GPU) == (10, 10)
        file.write_text("version: v1\n")
        await program.kubelet.until_capacity(GPU, 2)

        program.signal(SIGTERM)
        assert await program.ended() == 0
        file.write_text("")
        program.told.clear()
        await program.ready()
        await program.kubelet.until_capacity(GPU, 2, healthy=2)


# -------------------------------------------------------------------- 16


async def test_16_a_kubelet_that_restarts(folder: Path) -> None:
    """It has the plugin again at once, on a new socket and with the same ids; containers keep what they have."""
    async with joined(folder, GPU_A, GPU_B, times=ONLY_EVENTS) as node:
        await node.offer(sharing())
        web = pod("web", "Guaranteed")
        given = await node.admit(web, {GPU: 1})
        key, config = await node.create(web, given)
        await node.world.kubelet.start(key)
        await node.world.booked()
        before, ids, inode = node.world.controller.node, node.kubelet.healthy(GPU), own_socket(node)

        await node.kubelet.restart()
        await node.kubelet.until(lambda: node.kubelet.healthy(GPU) == ids)

        await node.kubelet.until(lambda: node.kubelet.registered == [GPU, GPU])
        assert node.node.status().counts.served == 2
        assert own_socket(node) != inode
        assert node.world.controller.node.grants == before.grants
        assert node.world.controller.devices.cards_given() == {"nvidia": 1}
        again = await node.admit(web, {GPU: 1}, running=True)
        assert again == given
        node.world.runtime.exit_container(key)
        _, restarted = await node.create(web, again, attempt=1)
        assert visible(restarted) == visible(config)
        assert nodes(restarted) == nodes(config)


def own_socket(node: Joined) -> tuple[int, int]:
    """Which file the plugin's socket is."""
    assert node.node.plugin._path
    stat = node.node.plugin._path.stat()
    return stat.st_ino, stat.st_ctime_ns


# -------------------------------------------------------------------- chosen in the cluster


def choose(program: Program, text: str) -> None:
    """Do what the daemon does when the cluster has chosen a configuration."""
    file = below(program.host.root, NAMED_CONFIG)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file.parent, file.name, NamedConfiguration(name="shared", text=text).to_json())


async def test_a_configuration_of_the_cluster_counts_at_run_time(folder: Path) -> None:
    """It counts at once in place of the node's file; a bad one changes nothing; without it, the node's file counts."""
    async with program_on(folder) as program:
        write(program, "version: v1\n")
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(GPU, 2)

        choose(program, sharing())
        await program.kubelet.until_capacity(GPU, 10)
        choose(program, sharing(replicas=1))
        await program.until_said("the configuration cannot be used")
        assert program.kubelet.capacity(GPU)[0] == 10

        below(program.host.root, NAMED_CONFIG).unlink()
        await program.kubelet.until_capacity(GPU, 2)


async def test_a_bad_configuration_of_the_cluster_at_the_start(folder: Path) -> None:
    """The node's own file counts: no text in the cluster keeps the cards from all pods of a node."""
    async with program_on(folder) as program:
        write(program, "version: v1\n")
        choose(program, sharing(replicas=1))
        await program.kubelet.start()
        await program.ready()

        await program.kubelet.until_capacity(GPU, 2)
        await program.until_said("the configuration cannot be used")
        assert program.said("the node's own file is in effect")
