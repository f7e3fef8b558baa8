"""The policy file is read again: what is good comes into force, what is not leaves everything as it was."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.api.rehearsal import Rehearsals
from criproxy.devices.classes.builtin import BUILTIN
from criproxy.errors import ConfigError
from criproxy.model.node import Node
from criproxy.node.configuration.in_place import InPlaceOfFile
from criproxy.node.configuration.keepers import ConfigurationKeeper
from criproxy.node.configuration.load import FALLBACK, BadFile, configuration_instead, load_configuration
from criproxy.node.configuration.reload import Reload, first_of
from criproxy.node.settings import Adopt, OnError
from criproxy.placement.options.class_rules import classes_of
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.policies.static import StaticPolicy
from criproxy.process.systemd import Notifier
from criproxy.simulate.hosts import machine
from criproxy.store.configurations import LAST_GOOD_NAME, GoodFile, read_good, write_good
from tests.gates import Gate
from tests.node.world import FAST, RecordingLog, World, owner, situation

LIMIT_S = 60.0
STATIC = 'policy: static\nreservedCpus: "0"\n'


class Manager(Notifier):
    """What a service manager hears."""

    def __init__(self) -> None:
        super().__init__({})
        self.told: list[str] = []
        self.heard = asyncio.Event()

    def reloading(self) -> None:
        """A reload begins."""
        self.told.append("reloading")

    def ready(self, status: str) -> None:
        """It is over."""
        self.told.append(f"ready: {status}")
        self.heard.set()


class Scene:
    """A criproxy whose policy file can be changed."""

    def __init__(self, world: World, file: Path) -> None:
        self.world = world
        self.file = file
        self.manager = Manager()
        self.failures = 0
        """How often the reload may begin again."""
        context, switch = world.controller.context, world.controller.policy_switch
        in_place = InPlaceOfFile(file.parent / "state", context)
        keeper = ConfigurationKeeper(file.parent / "state", world.log)
        self.reload = Reload(file, True, context, switch, in_place, self.manager, self._status, keeper)

    def _status(self) -> str:
        return self.world.controller.context.in_force.problem or "well"

    async def asked(self) -> str:
        """Ask for a reload; what the service manager is told in the end."""
        self.manager.heard.clear()
        self.reload.ask()
        return await self.heard()

    async def heard(self) -> str:
        """Wait for the end of a reload."""
        await asyncio.wait_for(self.manager.heard.wait(), LIMIT_S)
        return self.manager.told[-1]

    def events(self, sentence: str) -> list[dict[str, object]]:
        """The keys of the log lines that begin so."""
        return [keys for event, keys in self.world.log.lines if event.startswith(sentence)]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """Criproxy with the static policy of a file, as the daemon starts it."""
    file = tmp_path / "policy.yaml"
    file.write_text(STATIC)
    configuration = load_configuration(file, machine(nodes=1, cores=4, threads=1), FAST)
    world = World(tmp_path, settings=configuration.settings, policy=configuration.policy)
    async with world:
        scene = Scene(world, file)
        world.controller.context.tasks.forever("reload", scene.reload.run)
        yield scene
        assert world.controller.context.failures.counts["watcher"] == scene.failures


async def test_another_file_comes_into_force(scene: Scene) -> None:
    """Policy, options, onError, adopt and apply; newcomers are placed by them, and who is here stays."""
    first = await scene.world.run(owner("first"))
    scene.file.write_text('policy: static\nreservedCpus: "0-1"\nonError: refuse\nadopt: watch\n')

    assert await scene.asked() == "ready: well"

    settings = scene.world.controller.context.settings
    assert (settings.on_error, settings.adopt, settings.apply_all) == (OnError.REFUSE, Adopt.WATCH, False)
    second = await scene.world.run(owner("second"))
    assert (scene.world.cpus(first), scene.world.cpus(second)) == ("1", "2")
    assert scene.manager.told == ["reloading", "ready: well"]
    assert scene.world.controller.context.counters.reloads_ok == 1
    assert scene.events("configuration reloaded") == [{"file": str(scene.file), "apply": "new", "moved": 0}]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param('policy: statik\nreservedCpus: "0-1"\n', ":1:9: policy: unknown policy 'statik'", id="name"),
        pytest.param("policy: static\nreservedCpus: [x]\n", ":2:15: reservedCpus: must be CPUs such as", id="value"),
        pytest.param("policy: static\n  odd\n: [", ":", id="no-yaml"),
        pytest.param(None, ": there is no such file or directory", id="gone"),
    ],
)
async def test_a_bad_file_leaves_everything_as_it_is(scene: Scene, text: str | None, sentence: str) -> None:
    """Loudly, with the place of the mistake, until a good one is there."""
    scene.file.write_text(text) if text is not None else scene.file.unlink()

    said = await scene.asked()

    assert said.startswith(f"ready: {scene.file}{sentence}")
    (line, *_) = scene.events("the policy file cannot be used")
    assert str(line["mistake"]).startswith(f"{scene.file}{sentence}")
    assert scene.world.cpus(await scene.world.run(owner("first"))) == "1"
    assert scene.world.controller.context.counters.reloads_failed == 1
    (notice,) = [each for each in situation(scene.world.controller).notices if each.kind == "config"]
    assert str(scene.file) in notice.text

    scene.file.write_text('policy: static\nreservedCpus: "0-2"\n')
    assert await scene.asked() == "ready: well"
    assert scene.world.cpus(await scene.world.run(owner("second"))) == "3"


async def test_a_dry_run_of_a_repaired_file_says_what_the_reload_does(tmp_path: Path) -> None:
    """With the fallback in force, the file that was in force before it places containers again."""
    topology, text = machine(nodes=1, cores=4, threads=1), f"{STATIC}apply: all\n"
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    digest = load_configuration(file, topology, FAST).settings.configuration
    node_settings = replace(FAST, configuration=digest)
    fallback = configuration_instead(BadFile("it is wrong"), None, topology, node_settings)
    async with World(tmp_path, settings=fallback.settings, policy=fallback.policy) as world:
        scene = Scene(world, file)
        first = await world.run(owner("first"))
        arguments = {"text": text, "source": str(file)}

        values = json.loads(await Rehearsals(scene.reload).command(arguments))
        await scene.reload.command({})
        await world.rested()

        assert world.cpus(first) == "1"
        assert [(each["pod"], each["cpus"]) for each in values["moved"]] == [("first", "1")]
        assert (values["same"], values["changes"][0]) == (False, "policy: fallback → static")


@pytest.mark.parametrize(
    ("more", "changes"),
    [
        ("promote: 'off'", ["promote: default → off"]),
        ("promote: when-free\nadopt: watch", ["adopt: pin → watch", "promote: default → when-free"]),
    ],
)
async def test_a_dry_run_says_which_settings_change(scene: Scene, more: str, changes: list[str]) -> None:
    """Also where no container moves."""
    arguments = {"text": f"{STATIC}{more}\n", "source": str(scene.file)}

    values = json.loads(await Rehearsals(scene.reload).command(arguments))

    assert (values["same"], values["moved"], values["changes"]) == (False, [], changes)


async def test_nothing_new_is_no_news(scene: Scene) -> None:
    """A file that only looks different is told of only to who asks."""
    scene.file.write_text('# a comment\nreservedCpus: 0\npolicy: "static"\n')
    scene.reload.file_changed()
    scene.reload.file_changed()

    assert await scene.asked() == "ready: well"

    assert scene.manager.told == ["reloading", "ready: well"]
    assert scene.world.controller.context.counters.reloads_ok == 0


async def test_the_same_mistake_is_told_once(scene: Scene) -> None:
    """A file that is touched again and again fills no log; whoever asks is told; it is over with a good one."""
    scene.file.write_text("policy: [")
    for _ in range(3):
        scene.reload.file_changed()
        await asyncio.sleep(0.05)  # there is nothing to hear of
    await scene.world.poll(lambda: bool(scene.events("the policy file cannot be used")))
    assert len(scene.events("the policy file cannot be used")) == 1

    await scene.asked()

    assert len(scene.events("the policy file cannot be used")) == 2
    scene.file.write_text(f"# better\n{STATIC}")
    scene.manager.heard.clear()
    scene.reload.file_changed()
    assert await scene.heard() == "ready: well"
    assert scene.events("the policy file matches the configuration in effect")
    assert scene.world.controller.context.counters.reloads_ok == 0


async def test_calls_go_on_during_a_slow_reload(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading may take long: a disk that is far away holds up nobody."""
    from criproxy.node.configuration import reload

    began, goes_on, loop = asyncio.Event(), Gate(), asyncio.get_running_loop()

    def held(*args: object, **more: object) -> object:
        loop.call_soon_threadsafe(began.set)
        goes_on.wait()
        return load_configuration(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(reload, "load_configuration", held)
    scene.file.write_text('policy: static\nreservedCpus: "0-1"\n')
    reloading = asyncio.create_task(scene.asked())
    try:
        await began.wait()
        assert scene.world.cpus(await scene.world.run(owner("first"))) == "1"
        assert not reloading.done()
    finally:
        goes_on.set()
    await reloading


async def test_a_reload_that_cannot_judge_is_not_lost(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kept it from that, the service manager is told that it is over, and it is tried again."""
    from criproxy.node.configuration import reload

    def fail(*_: object, **__: object) -> object:
        scene.failures += 1
        monkeypatch.undo()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(reload, "load_configuration", fail)
    scene.file.write_text('policy: static\nreservedCpus: "0-1"\n')

    said = await scene.asked()

    assert said == 'ready: criproxy failed at the policy file: RuntimeError("can\'t start new thread")'
    await scene.world.poll(lambda: scene.manager.told[-1] == "ready: well")
    assert scene.world.cpus(await scene.world.run(owner("first"))) == "2"


async def test_what_the_device_plugin_offers_ends_no_release(scene: Scene) -> None:
    """A change of devices.plugin alone leaves the node released, and its resources count at once."""
    scene.file.write_text(f"{STATIC}devices: {{plugin: {{}}}}\n")
    await scene.asked()
    await scene.world.controller.policy_switch.command({})
    assert scene.world.controller.node.released

    sharing = "[{resource: nvidia.com/gpu, replicas: 2, rename: nvidia.com/slices}]"
    scene.file.write_text(f"{STATIC}devices: {{plugin: {{sharing: {sharing}}}}}\n")
    assert await scene.asked() == "ready: well"

    rules = scene.world.controller.context.settings.devices
    assert rules is not None
    assert any(kind.serves("nvidia.com/slices") for kind in rules.classes)
    assert scene.world.controller.node.released
    assert len(scene.events("devices.plugin reloaded")) == 1
    scene.file.write_text(f"{STATIC}onError: refuse\ndevices: {{plugin: {{sharing: {sharing}}}}}\n")
    await scene.asked()
    assert not scene.world.controller.node.released


def test_without_a_file_nobody_is_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where none was named; and once there was one, its absence is a mistake."""
    monkeypatch.setattr("criproxy.node.configuration.load.DEFAULT_CONFIG", tmp_path / "policy.yaml")
    topology = machine()

    assert isinstance(load_configuration(None, topology, FAST).policy, NonePolicy)
    with pytest.raises(ConfigError, match="there is no such file"):
        load_configuration(tmp_path / "policy.yaml", topology, FAST)
    with pytest.raises(ConfigError, match="there is no such file"):
        load_configuration(None, topology, FAST, required=True)
    (tmp_path / "policy.yaml").write_text(STATIC)
    assert isinstance(load_configuration(None, topology, FAST).policy, StaticPolicy)


def test_what_does_not_fit_the_machine_is_told(tmp_path: Path) -> None:
    """Only of a file that was good it is used all the same: a node that lost a CPU comes up."""
    file = tmp_path / "policy.yaml"
    file.write_text('policy: static\nreservedCpus: "0,4000"\n')
    with pytest.raises(ConfigError, match="CPU 4000 is not online") as caught:
        load_configuration(file, machine(), FAST)
    assert isinstance(caught.value, BadFile)
    assert caught.value.report is not None
    assert caught.value.report.unfit is not None
    digest = caught.value.report.unfit.digest()

    configuration = load_configuration(file, machine(), FAST, good=(digest,))

    (text,) = configuration.misfits
    assert text.startswith(f"{file}:2:15: reservedCpus: CPU 4000 is not online")
    assert Node(machine()).configuration != configuration.settings.configuration == digest


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        pytest.param("policy: statik\ndevices: {classes: [ascend]}\n", ["ascend"], id="valid-alone"),
        pytest.param("policy: statik\n", None, id="none"),
        pytest.param("policy: static\ndevice: {}\n", list(BUILTIN), id="misspelt"),
        pytest.param("policy: static\ndevices: {classes: [asend]}\n", list(BUILTIN), id="wrong"),
        pytest.param("policy: statik\ndevices:\n", None, id="empty"),
        pytest.param("policy: [", list(BUILTIN), id="no-yaml"),
        pytest.param(None, list(BUILTIN), id="gone"),
    ],
)
def test_the_fallback_hides_cards(tmp_path: Path, text: str | None, classes: list[str] | None) -> None:
    """As the bad file says where that section is valid alone, else all that are known, but in exempt namespaces."""
    file = tmp_path / "policy.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadFile) as caught:
        load_configuration(file, machine(), FAST)

    configuration = configuration_instead(caught.value, None, machine(), FAST)

    rules = configuration.settings.devices
    assert (configuration.settings.policy_name, configuration.settings.configuration) == (FALLBACK, FAST.configuration)
    assert ([each.name for each in rules.classes] if rules else None) == classes
    if rules:
        assert (rules.hide_unallocated, "kube-system" in rules.exempt_namespaces) == ("enforce", True)


def test_a_cgroup_that_is_not_there_yet(tmp_path: Path) -> None:
    """After a reboot the last good file goes on with the CPUs that its cgroup had."""
    good = GoodFile(text="policy: static\navailableResources: {cpu: /pods}\n", source="/p.yaml", available="2-3")
    bad = BadFile("there is no such file")

    configuration = configuration_instead(bad, good, machine(), replace(FAST, host_root=tmp_path))

    assert options_of(configuration.policy).usable(machine()).cpus == {2, 3}
    assert configuration.instead == "the last good one, read from /p.yaml, is in effect"
    assert configuration.good == good, "it is kept again where it is lost meanwhile"


FROM_BEFORE_CLASSES = """policy: balloons
idleCPUClass: idle
cpuClasses: [{name: fast, minFreq: quick}, {minFreq: 1}, {name: turbo, minFreq: base}, {name: turbo, maxFreq: base}]
schedulingClasses: [{name: rt, policy: fifo}, {name: low, policy: rr, priority: 1000}]
balloonTypes: [{name: b, cpuClass: none, irqMode: home}]
"""


def test_a_file_from_before_classes_with_mistakes_in_them(tmp_path: Path) -> None:
    """An upgrade does not put it out of force: what meant nothing then has no effect, and is said."""
    file = tmp_path / "policy.yaml"
    file.write_text(FROM_BEFORE_CLASSES)
    with pytest.raises(BadFile, match="cpuClasses"):
        load_configuration(file, machine(), FAST)
    good = GoodFile(text=FROM_BEFORE_CLASSES, source=str(file))

    configuration = configuration_instead(BadFile("it is wrong"), good, machine(), replace(FAST, host_root=tmp_path))

    assert configuration.instead == f"the last good one, read from {file}, is in effect"
    classes = classes_of(configuration.policy)
    assert classes is not None
    assert (classes.desired_parts().tunings, classes.desired_parts().scheduling) == ({}, {})
    assert {path[0] for path, _ in options_of(configuration.policy).notes()} == {
        *("idleCPUClass", "cpuClasses", "schedulingClasses", "balloonTypes")
    }


def test_a_mistake_in_classes_of_a_file_that_was_good(tmp_path: Path) -> None:
    """The options of criproxy itself are no exception: no version has taken this file."""
    good = GoodFile(text="policy: static\nclasses: {a: {cpu: {weight: 0}}}\n", source="/p.yaml")

    configuration = configuration_instead(BadFile("it is wrong"), good, machine(), replace(FAST, host_root=tmp_path))

    assert configuration.settings.policy_name == FALLBACK


async def test_a_full_disk_keeps_no_good_file(tmp_path: Path) -> None:
    """It is said once, nothing waits for it, and the old one stays."""
    old, new, log = GoodFile(text="old"), GoodFile(text="new"), RecordingLog()
    write_good(tmp_path, old)
    (tmp_path / f"{LAST_GOOD_NAME}.new").mkdir()
    keeping = ConfigurationKeeper(tmp_path, log)

    keeping.keep(new)
    writing = asyncio.create_task(keeping.run())
    await keeping.close()
    await writing

    assert (read_good(tmp_path), len(log.lines)) == (old, 1)
    assert "cannot be written: Is a directory" in keeping.problem


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param("a", "a", id="one"),
        pytest.param("a\nb", "a (and 1 more mistake)", id="two"),
        pytest.param("a\nb\nc", "a (and 2 more mistakes)", id="three"),
    ],
)
def test_the_first_mistake_and_how_many_more(error: str, said: str) -> None:
    """In one line, one is not many."""
    assert first_of(error) == said
