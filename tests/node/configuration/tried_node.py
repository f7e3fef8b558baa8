"""A criproxy whose configurations are tried as the daemon does it, over its starts and ends."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from criproxy.daemon.options import Options
from criproxy.daemon.start import _chosen, _with_tries, bring_in
from criproxy.model.machine.topology import Topology
from criproxy.model.text.notices import Notice, Values
from criproxy.node.configuration.in_place import InPlaceOfFile
from criproxy.node.configuration.keepers import ConfigurationKeeper
from criproxy.node.configuration.load import BadFile, Configuration, load_configuration
from criproxy.node.configuration.reload import Reload
from criproxy.node.configuration.try_out import TryOut
from criproxy.node.controller import Controller
from criproxy.process.systemd import Notifier
from criproxy.simulate.hosts import machine
from criproxy.store.configurations import TRIED_NAME, read_all, read_good, read_tried, write_tried
from criproxy.store.store import Store
from tests.node.world import World, owner, sharer, situation

LIMIT_S = 60.0
FOUR = machine(nodes=1, cores=4, threads=1)
STATIC = 'policy: static\nreservedCpus: "0"\n'
MOVES = 'policy: static\nreservedCpus: "0-1"\napply: all\n'
LONG_S = 3600.0
SHORT_S = 0.05
IN_FILE = ("policy_name", "on_error", "adopt", "promote", "apply_all", "devices", "configuration")
"""The settings that a policy file sets."""


class Node:
    """A criproxy that starts, stops and tries configurations as the daemon does.

    Args:
        directory: with the policy file, `policy.yaml`, and the state directory.
        world: on which it runs; its settings are those that files do not set.
        topology: of the machine.
        open_store: opens the store in the state directory.
    """

    def __init__(self, directory: Path, world: World, topology: Topology, open_store: Callable[[], Store]) -> None:
        self.directory, self.file = directory, directory / "policy.yaml"
        self.world, self._topology, self._open_store = world, topology, open_store
        self._base = world._settings
        self.world.make_store = self._store
        self.world.prepare = self._prepare
        socket = f"unix://{directory}/not-used.sock"
        self._options = Options(
            config=self.file,
            listen=socket,
            runtime_endpoint=socket,
            image_listen=None,
            image_endpoint=None,
            state_dir=self.state,
            host_root=directory,
            http=None,
            control_socket=socket,
            trace_calls=(),
        )
        self.reload: Reload
        self.try_out: TryOut

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.directory / "state"

    def _found(self) -> Configuration | BadFile:
        try:
            return load_configuration(self.file, self._topology, self._base, required=True)
        except BadFile as error:
            return error

    def _store(self) -> Store:
        store = self._open_store()
        self._begun = _chosen(self._options, self._topology, self._found(), store)
        self.world._policy = self._begun.configuration.policy
        said = self._begun.configuration.settings
        self.world._settings = replace(self._base, **{name: getattr(said, name) for name in IN_FILE})
        return store

    def _prepare(self, controller: Controller) -> None:
        bring_in(self._begun, controller)

    async def begun(self) -> None:
        """Begin what the daemon begins beside the controller."""
        controller = self.world.controller
        keeper = ConfigurationKeeper(self.state, self.world.log)
        controller.context.tasks.forever("keep the policy file", keeper.run)
        if self._begun.tried is None or self._begun.tried.is_kept:
            keeper.keep(self._begun.configuration.good)
        switch = controller.policy_switch
        in_place = InPlaceOfFile(self.state, controller.context)
        self.reload = Reload(self.file, True, controller.context, switch, in_place, Notifier({}), str, keeper)
        self.try_out = await _with_tries(self.reload, in_place, keeper, self._begun)
        controller.context.tasks.forever("reload", self.reload.run)
        await self.world.until(lambda: controller.node.configuration == controller.context.settings.configuration)
        await self.world.poll(lambda: keeper._wanted in (None, read_good(self.state)))

    async def restart(self, between: str = "") -> None:
        """Stop and start criproxy; *between*: what the policy file says meanwhile."""
        await self.world.stop_criproxy()
        if between:
            self.file.write_text(between)
        await self.start()

    async def start(self) -> None:
        """Start criproxy."""
        await self.world.start_criproxy()
        await self.begun()

    def write(self, text: str) -> None:
        """Let the policy file say something else, which is noticed."""
        self.file.write_text(text)
        self.reload.file_changed()

    async def tries(self, text: str, time_s: float = LONG_S) -> Values:
        """Try a configuration."""
        return await self.try_out.begin({"text": text, "source": "/root/new.yaml", "time_s": time_s})

    def time_is_over(self) -> None:
        """The time of the try is over in a moment: a test that tries for a short time has to be quicker than that."""
        in_force = self.world.controller.context.in_force
        assert in_force.trial is not None
        in_force.trial = replace(in_force.trial, latest_s=time.monotonic() + SHORT_S)
        self.try_out._news.set()

    def time_is_over_at_start(self) -> None:
        """The time of the try is over for the next start."""
        tried = read_tried(self.state)
        assert tried is not None
        write_tried(self.state, replace(tried, until_s=time.time() - 1.0))

    async def ends(self) -> None:
        """Wait for the end of the try, whose time is over."""
        self.time_is_over()
        await self.is_back()

    async def is_back(self) -> None:
        """Wait until the former configuration is in force and the disk knows it."""
        await self.world.poll(lambda: self.trial is None and not (self.state / TRIED_NAME).exists())

    async def has_history(self, *how: str) -> None:
        """Wait until the disk has the configurations that were in force: how each came to be."""
        await self.world.poll(lambda: [each.how for each in read_all(self.state)] == list(how))

    async def at(self, container: str, cpus: str) -> None:
        """Wait until a container runs on these CPUs, and no update is on its way that may still change that."""
        await self.world.rested()
        while self.world.cpus(container) != cpus:
            await asyncio.sleep(0.005)
            await self.world.rested()

    @property
    def trial(self) -> object:
        """What is in place of the policy file."""
        return self.world.controller.context.in_force.trial

    @property
    def source(self) -> str:
        """The file that is in force."""
        return self.world.controller.context.in_force.loaded.file

    @property
    def hash(self) -> str:
        """The hash of what is in force."""
        return self.world.controller.context.in_force.loaded.hash

    @property
    def instead(self) -> str:
        """What is in force while the policy file cannot be used."""
        return self.world.controller.context.in_force.instead

    def kinds(self) -> list[str]:
        """The kinds of notices."""
        return [notice.kind for notice in self.notices()]

    def notices(self) -> list[Notice]:
        """What is wrong with the node."""
        return list(situation(self.world.controller).notices)


def static_node(directory: Path) -> Node:
    """One with four CPUs and the static policy."""
    (directory / "policy.yaml").write_text(STATIC)
    return Node(directory, World(directory), FOUR, lambda: Store(directory / "state", may_fail=True))


async def two(node: Node) -> tuple[str, str]:
    """An owner on CPU 1, and a container that shares the others."""
    first, web = await node.world.run(owner("first")), await node.world.run(sharer("web"))
    assert (node.world.cpus(first), node.world.cpus(web)) == ("1", "0,2-3")
    return first, web


async def moved(node: Node) -> str:
    """An owner that was on CPU 1, and is on CPU 2 by a try."""
    first, _ = await two(node)
    await node.tries(MOVES)
    await node.at(first, "2")
    return first
