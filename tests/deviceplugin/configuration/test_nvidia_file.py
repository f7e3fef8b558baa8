"""NVIDIA's file that a policy file names: which of several it is, and what is said of it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.configuration.nvidia_file import Node, NvidiaFile, choose, examine, read
from criproxy.deviceplugin.nvidia.options import PluginConfig, SharedResource
from criproxy.deviceplugin.nvidia.settings import overrides
from criproxy.devices.classes.offers import SharedCards
from criproxy.devices.plugin.plan import NVIDIA_ALONE
from criproxy.errors import ConfigError
from tests.config.files import write

Settings = Mapping[str, str]
NONE: Settings = {}
HOST, IN_G = Node(hostname="h1", group=""), Node(hostname="h1", group="g")
SHARED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: %d}]}}"


def found(
    path: Path | str, node: Node = HOST, *sharing: SharedCards, flags: Settings = NONE, env: Settings = NONE
) -> NvidiaFile:
    """What is made of the file at *path*."""
    return examine(replace(NVIDIA_ALONE, nvidia_config=str(path), sharing=sharing), node, [*overrides(flags, env)])


def with_text(tmp_path: Path, text: str, flags: Settings = NONE, env: Settings = NONE) -> tuple[NvidiaFile, str]:
    """What is made of a file with this text, and where it lies."""
    path = write(tmp_path / "n.yaml", text)
    return found(path, flags=flags, env=env), str(path)


def folder(tmp_path: Path, *names: str) -> Path:
    """Files with these names, each with other replicas: 2, 3 and so on."""
    for number, name in enumerate(names):
        write(tmp_path / "nvidia" / name, (SHARED % (number + 2)).encode())
    return tmp_path / "nvidia"


def test_no_file() -> None:
    """NVIDIA's defaults, flags and variables hold."""
    file = found("", env={"MIG_STRATEGY": "mixed"})

    assert (file.file, file.reason) == (None, "no file is named")
    assert file.config is not None
    assert file.config.flags.mig_strategy == "mixed"


@pytest.mark.parametrize(
    ("names", "node", "chosen", "reason"),
    [
        pytest.param(["default", "h1", "x"], replace(HOST, explicit="x"), 4, "the option names it", id="option"),
        pytest.param(["default.yaml", "h1.yaml"], IN_G, 3, "it has the name of this host", id="host"),
        pytest.param(["default", "g"], IN_G, 3, "this host is in the group g", id="group"),
        pytest.param(["default", "group-g.yml"], IN_G, 3, "this host is in the group group-g", id="as-policies"),
        pytest.param(["default", "x"], IN_G, 2, "it is named default", id="default"),
        pytest.param(["x.json"], HOST, 2, "it is the only one", id="only"),
        pytest.param(["default", "default.yaml"], HOST, 2, "it is named default", id="exactly"),
        pytest.param(["x", "..data"], HOST, 2, "it is the only one", id="configmap"),
    ],
)
def test_which_of_several_files(tmp_path: Path, names: list[str], node: Node, chosen: int, reason: str) -> None:
    """An option comes before the host's name, its group, default, and the only one there is."""
    file = found(folder(tmp_path, *names), node)

    assert file.config is not None
    assert file.config.sharing.time_slicing is not None
    assert file.config.sharing.time_slicing.resources[0].replicas == chosen
    assert file.reason == reason


def test_none_of_several_is_for_this_host(tmp_path: Path) -> None:
    """The names that would do are told."""
    file = found(path := folder(tmp_path, "x", "y"))

    assert file.config is None
    assert file.mistakes == (f"{path}: none of the files x, y is for this host; name one of them h1, default",)


TEXT = "'version: v1'"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(
            f"apiVersion: v1\nkind: ConfigMap\ndata: {{any: {TEXT}}}\n",
            "this is a ConfigMap: the file of NVIDIA's device plugin is the text of data.any alone",
            id="config-map",
        ),
        pytest.param(
            f"config: {{map: {{a: {TEXT}, b: {TEXT}}}}}\nmigStrategy: mixed\nresources: {{limits: {{cpu: 1}}}}\n",
            "these are Helm values: the file of NVIDIA's device plugin is the text of config.map.a or config.map.b "
            "alone",
            id="helm-values",
        ),
        pytest.param(
            "devicePlugin: {nvidiaConfig: {version: v1}}\n",
            "these are values of criproxy's Helm chart: the file of NVIDIA's device plugin is the content of "
            "'devicePlugin.nvidiaConfig'",
            id="our-values",
        ),
        pytest.param(
            "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nspec: {}\n",
            "this is an object of Kubernetes (ClusterPolicy), not a file of NVIDIA's device plugin",
            id="another-object",
        ),
        pytest.param("policy: static\n", "this is a policy file of criproxy", id="policy-file"),
        pytest.param(
            "legacyDaemonsetAPI: null\nmigStrategy: null\nimage: {}\nconfig: {map: {}, name: '', default: ''}\n"
            "resources: {}\ngfd: {enabled: false}\n",
            "these are Helm values, without a text that is a file of NVIDIA's device plugin, such as one of config.map",
            id="values-of-nvidias-chart",
        ),
        pytest.param(
            "migStrategy: single\ntimeSlicing: {}\n",
            "NVIDIA's device plugin ignores the whole file: at the top, it knows only version, flags, resources, "
            "sharing and imex; did you mean flags.migStrategy and sharing.timeSlicing?",
            id="without-sections",
        ),
    ],
)
def test_a_whole_object_is_not_the_file(tmp_path: Path, text: str, sentence: str) -> None:
    """NVIDIA's plugin would ignore all of it, and share nothing: the one sentence says what to take out of it."""
    file, path = with_text(tmp_path, text)

    assert (file.config, file.mistakes) == (None, (f"{path}: {sentence}",))


@pytest.mark.parametrize("key", ["version: v1", "flags: {}", "sharing: {}", "imex: {}", "resources: {gpus: []}"])
def test_a_file_that_nvidias_plugin_heeds_is_taken(tmp_path: Path, key: str) -> None:
    """Whatever else it has."""
    file, _ = with_text(tmp_path, f"kind: ConfigMap\napiVersion: v1\ndata: {{a: b}}\n{key}\n")

    assert file.config is not None
    assert len(file.notes) == 3


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """As for policy files: it decides over the whole node."""
    write(path := tmp_path / "n.yaml", b"version: v1\n").chmod(0o666)

    assert "can be written by every user" in str(found(path).error)
    assert "there is no such file or directory" in str(found(tmp_path / "none.yaml").error)
    assert found(path).config is None


def test_cards_that_our_section_shares(tmp_path: Path) -> None:
    """They are shared by time slicing, unless the file shares cards, too."""
    entry = SharedCards(name="nvidia.com/gpu", devices=("0",), replicas=3, rename="nvidia.com/x", only_one=True)
    plain = write(tmp_path / "plain.yaml", b"version: v1\n")
    both = write(tmp_path / "both.yaml", (SHARED % 2).encode())

    config = found(plain, HOST, entry).config

    assert isinstance(config, PluginConfig)
    assert config.sharing.time_slicing is not None
    assert config.sharing.time_slicing.resources == (
        SharedResource(name="nvidia.com/gpu", devices=("0",), replicas=3, rename="nvidia.com/x"),
    )
    assert found(both, HOST, entry).mistakes == (
        f"{both}: sharing: devices.plugin.sharing of the policy file also shares NVIDIA's cards; keep one of them",
    )


@pytest.mark.parametrize("section", ["timeSlicing", "mps"])
def test_replicas_have_a_limit(tmp_path: Path, section: str) -> None:
    """It is that of the policy file; NVIDIA's plugin has none."""
    file = "flags: {mpsRoot: /m}\n" + SHARED.replace("timeSlicing", section)
    path = write(tmp_path / "n.yaml", (file % 10_000).encode())
    assert found(path).config is not None

    write(path, (file % 20_000_000).encode())
    text = f"sharing.{section}.resources[0].replicas: 20000000 replicas of a card are too many: it can have 10000; "
    advice = "NVIDIA's plugin has no limit, but the kubelet has to list them all"
    (mistake,) = found(path).mistakes
    assert mistake.startswith(f"{path}:2:")
    assert mistake.endswith(f"{text}{advice}")


KEY, IN_TIME_SLICING = "NVIDIA's plugin does not know '%s' and ignores it", "sharing: {timeSlicing: {resources: [%s]}}"
MPS = "flags: {mpsRoot: /m}\nsharing: {mps: {%sresources: [{name: nvidia.com/gpu, replicas: %d}]}}"
BOTH = IN_TIME_SLICING[:-1] + ", mps: {resources: [{name: gpu, replicas: 2}]}}"
NOT_OFFERED = "sharing: no card is offered as %s, so this entry shares nothing"
OF_CDI = "flags: {plugin: {nvidiaCTKPath: /c, containerDriverRoot: /d}}"
LISTS_OF_CDI = "flags: {plugin: {deviceListStrategy: [envvar, cdi-cri]}}"
MIG = IN_TIME_SLICING % "{name: nvidia.com/mig-1g.5gb, replicas: 2}"
UNSERVED = "nvidia.com/t4 is not among resources of the class 'nvidia': add it there, or its pods see no card"


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("version: v1", []),
        ("flags: {failOnInitError: false}", []),
        ("resources: {}\n", []),
        ("flags: {migStrategy: mixed}\n" + MIG, []),
        (MPS % ("", 16), []),
        (MPS % ("", 17), ["sharing.mps: nvidia.com/gpu has 17 replicas, but GPUs below"]),
        ("flags: {migStrateg: mixed}", [f"line 1: {KEY % 'flags.migStrateg'}; did you mean 'migStrategy'?"]),
        ('resources: {gpus: [{pattern: "*", name: t4}]}', [UNSERVED]),
        ("resources:\n  gpus: []\n  migs: []", [f"line 3: {KEY % 'resources.migs'}; did you mean 'mig'?"]),
        ("a: 1\nversion: v1\ntimeSlicing: {}", [f"line 1: {KEY % 'a'}", "line 3: " + KEY % "timeSlicing"]),
        ("version: v1\nmigStrategy: x", [f"line 2: {KEY % 'migStrategy'}; did you mean 'flags.migStrategy'?"]),
        (
            "version: v1\nsleepInterval: 5s",
            [f"line 2: {KEY % 'sleepInterval'}; did you mean 'flags.gfd.sleepInterval'?"],
        ),
        ("version: v1\npassDeviceSpecs: x", [f"line 2: {KEY % 'passDeviceSpecs'}; did you mean 'flags.plugin.passD"]),
        (IN_TIME_SLICING % "{name: gpu, replicas: 2, a: 1}", ["line 1: " + KEY % "sharing.timeSlicing.resources[0].a"]),
        (SHARED.replace("gpu", "gpuu") % 2, [f"{NOT_OFFERED % 'nvidia.com/gpuu'}; did you mean nvidia.com/gpu?"]),
        (MIG, [NOT_OFFERED % "nvidia.com/mig-1g.5gb"]),
        ("flags: {mpsRoot: /m}\n" + BOTH % "{name: gpu, replicas: 2}", ["sharing.timeSlicing has no effect beside"]),
        ("flags: {failOnInitError: true}", ["flags.failOnInitError: true does not make criproxy exit"]),
        (OF_CDI, [f"flags.plugin.{key} has no effect" for key in ("nvidiaCTKPath", "containerDriverRoot")]),
        (LISTS_OF_CDI, ["flags.plugin.deviceListStrategy: criproxy writes no CDI specification: nvidia-ctk must"]),
    ],
)
def test_what_has_no_effect_is_noted(tmp_path: Path, text: str, notes: list[str]) -> None:
    """A sentence for each key that was set: NVIDIA's plugin, or ours, passes over it, and the other keys count."""
    file, path = with_text(tmp_path, text)

    assert file.config is not None
    said = [each.removeprefix(f"{path}: ") for each in file.notes]
    assert [each[: len(note)] for each, note in zip(said, notes, strict=True)] == notes


def test_flags_without_effect_are_noted(tmp_path: Path) -> None:
    """As keys are; others are not."""
    file, _ = with_text(tmp_path, "version: v1", {"kubelet-socket": "/k.sock", "cdi-feature-flags": "a"})

    assert [note.partition(" has")[0] for note in file.notes] == ["--cdi-feature-flags=a"]


MISTAKE = "unknown MIG strategy: half; "


@pytest.mark.parametrize(
    ("flags", "env", "begins"),
    [
        ({"mig-strategy": "half"}, {"MIG_STRATEGY": "none"}, f"--mig-strategy=half: {MISTAKE}"),
        ({}, {"MIG_STRATEGY": "half"}, f"MIG_STRATEGY=half: {MISTAKE}"),
        ({}, {"DEVICE_LIST_STRATEGY": "envvar,x", "MIG_STRATEGY": "none"}, "DEVICE_LIST_STRATEGY=envvar,x: invalid --"),
        ({}, {"FAIL_ON_INIT_ERROR": "maybe"}, "FAIL_ON_INIT_ERROR=maybe: must be true or false"),
    ],
)
def test_mistakes_of_flags_and_variables(
    tmp_path: Path, flags: dict[str, str], env: dict[str, str], begins: str
) -> None:
    """They are told of the one that has the mistake, and not of the file, which has none."""
    (mistake,) = with_text(tmp_path, "version: v1\n", flags, env)[0].mistakes

    assert mistake.startswith(begins)


def test_a_name_that_chooses_among_none(tmp_path: Path) -> None:
    """It is said that it has no effect."""
    path = write(tmp_path / "n.yaml", b"version: v1\n")
    text = "--name x has no effect"

    assert found(path, Node(explicit="x")).notes == (f"{path}: {text}: this is a file, not a directory",)
    assert found("", Node(explicit="x")).notes == (f"{text}: no directory of NVIDIA's files is given",)
    assert found(folder(tmp_path, "x"), Node(explicit="x")).notes == ()


def test_many_notes_are_cut() -> None:
    """Each takes time, and nobody reads thousands; the other keys count."""
    contents = read("version: v1\nflags: {migStrategy: single}\n" + "".join(f"k{n}: 1\n" for n in range(5_000)))

    assert contents.config is not None
    assert contents.config.flags.mig_strategy == "single"
    assert len(contents.notes) == 51
    assert contents.notes[-1] == "there are more such notes"


@pytest.mark.parametrize("text", ["", " \n", "# nothing\n", "---\n"])
def test_a_file_without_content_is_empty(tmp_path: Path, text: str) -> None:
    """A running plugin does not take it for NVIDIA's defaults: it may be still being written."""
    assert found(write(tmp_path / "n.yaml", text.encode())).is_empty
    assert not found(write(tmp_path / "n.yaml", b"version: v1\n")).is_empty


NAMES = st.sampled_from(["default", "host", "group", "a", "b"])


@given(st.sets(NAMES), NAMES | st.just(""), st.lists(NAMES))
def test_a_choice_is_always_a_file_that_exists(names: set[str], host: str, groups: list[str]) -> None:
    """No order makes up a file, and an explicit one is never passed over."""
    for explicit in ("", *names):
        try:
            name, _ = choose(names, explicit, host, groups)
        except ConfigError:
            assert len(names) != 1
            continue
        assert name in names
        assert not explicit or name == explicit
