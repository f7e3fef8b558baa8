"""NVIDIA's file that a policy file names: which of several it is, and what is said of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.configuration.nvidia_file import Node, NvidiaFile, choose, examine, read
from criproxy.deviceplugin.nvidia.options import PluginConfig, SharedResource
from criproxy.devices.classes.offers import SharedCards
from criproxy.devices.plugin.plan import NVIDIA_ALONE
from criproxy.errors import ConfigError
from tests.config.files import write

PLACE = "; did you mean 'flags.plugin.passDeviceSpecs'?"
MPS = "flags: {mpsRoot: /m}\nsharing: {mps: {%sresources: [{name: nvidia.com/gpu, replicas: %d}]}}"
SHARED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: %d}]}}"


def found(path: Path | str, node: Node | None = None, *sharing: SharedCards, **env: str) -> NvidiaFile:
    """What is made of the file at *path*."""
    plan = replace(NVIDIA_ALONE, nvidia_config=str(path), sharing=sharing)
    return examine(plan, node or Node(hostname="h1", group=""), env=env)


def folder(tmp_path: Path, *names: str) -> Path:
    """Files with these names, each with other replicas: 2, 3 and so on."""
    for number, name in enumerate(names):
        write(tmp_path / "nvidia" / name, (SHARED % (number + 2)).encode())
    return tmp_path / "nvidia"


def test_no_file() -> None:
    """NVIDIA's defaults, flags and variables hold."""
    file = found("", MIG_STRATEGY="mixed")

    assert (file.file, file.reason) == (None, "no file is named")
    assert file.config is not None
    assert file.config.flags.mig_strategy == "mixed"


@pytest.mark.parametrize(
    ("names", "node", "chosen", "reason"),
    [
        pytest.param(
            ["default", "h1", "x"], Node(hostname="h1", explicit="x", group=""), 4, "the option names it", id="option"
        ),
        pytest.param(
            ["default.yaml", "h1.yaml"], Node(hostname="h1", group="g"), 3, "it has the name of this host", id="host"
        ),
        pytest.param(["default", "g"], Node(hostname="h1", group="g"), 3, "this host is in the group g", id="group"),
        pytest.param(
            ["default", "group-g.yml"],
            Node(hostname="h1", group="g"),
            3,
            "this host is in the group group-g",
            id="as-policies",
        ),
        pytest.param(["default", "x"], Node(hostname="h1", group="g"), 2, "it is named default", id="default"),
        pytest.param(["x.json"], Node(hostname="h1", group=""), 2, "it is the only one", id="only"),
        pytest.param(
            ["default", "default.yaml"], Node(hostname="h1", group=""), 2, "it is named default", id="exactly"
        ),
        pytest.param(["x", "..data"], Node(hostname="h1", group=""), 2, "it is the only one", id="configmap"),
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
    file = found(path := write(tmp_path / "n.yaml", text))

    assert (file.config, file.mistakes) == (None, (f"{path}: {sentence}",))


@pytest.mark.parametrize("key", ["version: v1", "flags: {}", "sharing: {}", "imex: {}", "resources: {gpus: []}"])
def test_a_file_that_nvidias_plugin_heeds_is_taken(tmp_path: Path, key: str) -> None:
    """Whatever else it has."""
    file = found(write(tmp_path / "n.yaml", f"kind: ConfigMap\napiVersion: v1\ndata: {{a: b}}\n{key}\n"))

    assert file.config is not None
    assert len(file.notes) == 3


@pytest.mark.parametrize(
    ("name", "mode", "mistake"),
    [
        pytest.param("none.yaml", 0o600, "there is no such file or directory", id="missing"),
        pytest.param("n.yaml", 0o666, "can be written by every user", id="writable"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, name: str, mode: int, mistake: str) -> None:
    """As for policy files: it decides over the whole node."""
    write(tmp_path / "n.yaml", b"version: v1\n").chmod(mode)

    file = found(tmp_path / name)

    assert file.config is None
    assert mistake in str(file.error)


def test_cards_that_our_section_shares(tmp_path: Path) -> None:
    """They are shared by time slicing, unless the file shares cards, too."""
    entry = SharedCards(name="nvidia.com/gpu", devices=("0",), replicas=3, rename="nvidia.com/x", only_one=True)
    plain = write(tmp_path / "plain.yaml", b"version: v1\n")
    both = write(tmp_path / "both.yaml", (SHARED % 2).encode())

    config = found(plain, None, entry).config

    assert isinstance(config, PluginConfig)
    assert config.sharing.time_slicing is not None
    assert config.sharing.time_slicing.resources == (
        SharedResource(name="nvidia.com/gpu", devices=("0",), replicas=3, rename="nvidia.com/x"),
    )
    assert found(both, None, entry).mistakes == (
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


def test_what_has_no_effect(tmp_path: Path) -> None:
    """Keys that NVIDIA's plugin ignores, and resources whose cards criproxy would hide."""
    text = b'flags: {migStrateg: mixed}\nresources: {gpus: [{pattern: "*", name: t4}]}\n'

    file = found(path := write(tmp_path / "n.yaml", text))

    assert file.config is not None
    assert file.notes == (
        f"{path}: line 1: NVIDIA's plugin does not know 'flags.migStrateg' and ignores it; did you mean 'migStrategy'?",
        f"{path}: nvidia.com/t4 is not among resources of the class 'nvidia': add it there, or its pods see no card",
    )


@pytest.mark.parametrize(
    ("text", "note"),
    [
        pytest.param(
            "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpuu, replicas: 2}]}}",
            "sharing: no card is offered as nvidia.com/gpuu, so this entry shares nothing; did you mean "
            "nvidia.com/gpu?",
            id="no-such-resource",
        ),
        pytest.param(
            "sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 2}]}}",
            "sharing: no card is offered as nvidia.com/mig-1g.5gb, so this entry shares nothing",
            id="mig-without-mixed",
        ),
        pytest.param(
            "flags: {mpsRoot: /m}\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}, "
            "mps: {resources: [{name: gpu, replicas: 2}]}}",
            "sharing.timeSlicing has no effect beside sharing.mps, which takes precedence",
            id="both-ways",
        ),
        pytest.param(
            "version: v1\ntimeSlicing: {resources: []}\n",
            "line 2: NVIDIA's plugin does not know 'timeSlicing' and ignores it; did you mean 'sharing.timeSlicing'?",
            id="time-slicing-at-the-top",
        ),
        pytest.param("resources: {}\n", "", id="no-resources"),
        pytest.param(
            "flags: {migStrategy: mixed}\nsharing: {timeSlicing: {resources: "
            "[{name: nvidia.com/mig-1g.5gb, replicas: 2}]}}",
            "",
            id="mig",
        ),
    ],
)
def test_what_may_not_be_meant(tmp_path: Path, text: str, note: str) -> None:
    """NVIDIA's plugin passes over it without a word."""
    path = write(tmp_path / "n.yaml", text.encode())

    assert found(path).notes == ((f"{path}: {note}",) if note else ())


@pytest.mark.parametrize(
    ("flags", "env", "begins"),
    [
        pytest.param({"mig-strategy": "half"}, {}, "--mig-strategy=half: unknown MIG strategy: half; ", id="flag"),
        pytest.param({}, {"MIG_STRATEGY": "half"}, "MIG_STRATEGY=half: unknown MIG strategy: half; ", id="variable"),
        pytest.param(
            {"fail-on-init-error": "true"},
            {"DEVICE_LIST_STRATEGY": "envvar,x", "MIG_STRATEGY": "none"},
            "DEVICE_LIST_STRATEGY=envvar,x: invalid --device-list-strategy option: invalid strategy: x; ",
            id="one-of-several",
        ),
        pytest.param({"mig-strategy": "half"}, {"MIG_STRATEGY": "none"}, "--mig-strategy=half: ", id="both"),
        pytest.param(
            {}, {"FAIL_ON_INIT_ERROR": "maybe"}, "FAIL_ON_INIT_ERROR=maybe: must be true or false", id="unreadable"
        ),
    ],
)
def test_mistakes_of_flags_and_variables(
    tmp_path: Path, flags: dict[str, str], env: dict[str, str], begins: str
) -> None:
    """They are told of the one that has the mistake, and not of the file, which has none."""
    plan = replace(NVIDIA_ALONE, nvidia_config=str(write(tmp_path / "n.yaml", b"version: v1\n")))

    (mistake,) = examine(plan, Node(hostname="h1", group=""), flags, env).mistakes

    assert mistake.startswith(begins)


def test_a_name_that_chooses_among_none(tmp_path: Path) -> None:
    """It is said that it has no effect."""
    path = write(tmp_path / "n.yaml", b"version: v1\n")
    text = "--name x has no effect"

    assert found(path, Node(explicit="x")).notes == (f"{path}: {text}: this is a file, not a directory",)
    assert found("", Node(explicit="x")).notes == (f"{text}: no directory of NVIDIA's files is given",)
    assert found(folder(tmp_path, "x"), Node(explicit="x")).notes == ()


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        pytest.param(
            "resources:\n  gpus: []\n  migs: []",
            ["line 3: NVIDIA's plugin does not know 'resources.migs' and ignores it; did you mean 'mig'?"],
            id="plural",
        ),
        pytest.param(
            "version: v1\nmigStrategy: mixed\npassDeviceSpecs: true",
            [
                "line 2: NVIDIA's plugin does not know 'migStrategy' and ignores it; did you mean 'flags.migStrategy'?",
                "line 3: NVIDIA's plugin does not know 'passDeviceSpecs' and ignores it" + PLACE,
            ],
            id="as-in-values-of-its-chart",
        ),
        pytest.param(
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, colour: red}]}}",
            [
                "line 1: NVIDIA's plugin does not know 'sharing.timeSlicing.resources[0].colour' and ignores it",
            ],
            id="in-a-list",
        ),
    ],
)
def test_keys_without_effect_are_noted(text: str, notes: list[str]) -> None:
    """The other keys count, and a mistyped one comes with the one that it is most like."""
    contents = read(text)

    assert contents.config is not None
    assert list(contents.notes) == notes


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


@pytest.mark.parametrize(
    ("text", "flags", "begins"),
    [
        pytest.param("version: v1", {}, [], id="defaults"),
        pytest.param("flags: {failOnInitError: false}", {}, [], id="goes-on-as-asked"),
        pytest.param(
            "flags: {failOnInitError: true}",
            {},
            ["flags.failOnInitError: true does not make criproxy exit"],
            id="ends-where-nvml-fails",
        ),
        pytest.param("", {"kubelet-socket": "/k.sock"}, [], id="kubelet-socket"),
        pytest.param(
            "flags: {plugin: {nvidiaCTKPath: /c, containerDriverRoot: /d}}",
            {"cdi-feature-flags": "a"},
            [
                "flags.plugin.nvidiaCTKPath has no effect",
                "flags.plugin.containerDriverRoot has no effect",
                "--cdi-feature-flags=a has no effect",
            ],
            id="of-cdi-specifications",
        ),
        pytest.param(
            "flags: {plugin: {deviceListStrategy: [envvar, cdi-cri]}}",
            {},
            ["flags.plugin.deviceListStrategy: criproxy writes no CDI specification: nvidia-ctk must write one"],
            id="cdi-names",
        ),
        pytest.param(
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: []}]}}",
            {},
            ["sharing: an entry for nvidia.com/gpu has an empty list of devices"],
            id="no-devices",
        ),
        pytest.param(MPS % ("", 16), {}, [], id="mps"),
        pytest.param(
            MPS % ("", 17), {}, ["sharing.mps: nvidia.com/gpu has 17 replicas, but GPUs below"], id="old-gpus"
        ),
    ],
)
def test_settings_without_effect_are_noted(tmp_path: Path, text: str, flags: dict[str, str], begins: list[str]) -> None:
    """A sentence for each key that was set, and none for defaults."""
    path = write(tmp_path / "n.yaml", text.encode())
    plan = replace(NVIDIA_ALONE, nvidia_config=str(path))

    found = [note.removeprefix(f"{path}: ") for note in examine(plan, Node(hostname="h", group=""), flags).notes]

    assert [note[: len(begin)] for note, begin in zip(found, begins, strict=True)] == begins


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
