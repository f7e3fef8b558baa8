"""Which files are in force, and what they make of each other."""

from pathlib import Path

import pytest

from criproxy.deviceplugin.configuration.configuration import DEFAULT_CONFIG, NAMED_CONFIG, Options, load
from criproxy.devices.plugin.named_configuration import NamedConfiguration
from criproxy.errors import ConfigError, UsageError
from tests.deviceplugin.program import policy

FILE = NAMED_CONFIG.lstrip("/")
NVIDIA = "version: v1\nflags: {migStrategy: single}\n"


def options(folder: Path, **given: object) -> Options:
    """Return options with the files of *folder*, on a host whose root it is, with no variables."""
    defaults = {"config": folder / "policy.yaml", "host_root": folder, "env": {}, "hostname": "node7", "group": ""}
    return Options(**{**defaults, **given})  # type: ignore[arg-type]


def write(folder: Path, name: str, text: str) -> str:
    """Write a file, and return its path."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return str(file)


def test_the_default_file_is_that_of_the_daemon() -> None:
    """Both programs go by one file."""
    from criproxy.node.configuration import load as daemon

    assert daemon.DEFAULT_CONFIG == DEFAULT_CONFIG


@pytest.mark.skipif(DEFAULT_CONFIG.exists(), reason="this machine has a policy file")
def test_without_a_file_nvidia_s_cards_are_offered(tmp_path: Path) -> None:
    """That is what a node needs where nothing else of criproxy runs."""
    loaded = load(options(tmp_path, config=None))

    assert [each.kind.name for each in loaded.plan.advertised] == ["nvidia"]
    assert loaded.watched == (DEFAULT_CONFIG, tmp_path / "var/lib/criproxy/device-configuration.json")


def test_a_file_without_the_section_offers_nothing(tmp_path: Path) -> None:
    """It says so; a file of NVIDIA's that is named beside it is meant."""
    write(tmp_path, "policy.yaml", "policy: none\n")
    nvidia = write(tmp_path, "nvidia.yaml", NVIDIA)

    loaded = load(options(tmp_path))
    assert loaded.plan.advertised == ()
    assert "has no devices.plugin section" in loaded.notes[0]
    assert load(options(tmp_path, nvidia_config=nvidia)).nvidia.flags.mig_strategy == "single"


def test_which_file_of_nvidia_s_counts(tmp_path: Path) -> None:
    """The option, then the variable, then our own file, whose path is below the host's root."""
    write(tmp_path, "policy.yaml", policy("{nvidiaConfig: /etc/own.yaml}"))
    texts = {name: f"version: v1\nflags: {{migStrategy: {name}}}\n" for name in ("none", "single", "mixed")}
    write(tmp_path, "etc/own.yaml", texts["none"])
    variable, option = write(tmp_path, "v.yaml", texts["single"]), write(tmp_path, "o.yaml", texts["mixed"])

    def strategy(**given: object) -> str:
        return load(options(tmp_path, **given)).nvidia.flags.mig_strategy

    assert strategy() == "none"
    assert strategy(env={"CONFIG_FILE": variable}) == "single"
    assert strategy(env={"CONFIG_FILE": variable}, nvidia_config=option) == "mixed"
    assert strategy(env={"MIG_STRATEGY": "single"}) == "single"
    assert strategy(env={"MIG_STRATEGY": "single"}, nvidia_flags={"mig-strategy": "mixed"}) == "mixed"


def test_mistakes_are_told_as_check_tells_them(tmp_path: Path) -> None:
    """With file and place; NVIDIA's in NVIDIA's words."""
    write(tmp_path, "policy.yaml", policy("{advertise: [nvidia], registre: kubelet, nvidiaConfig: /n.yaml}"))
    with pytest.raises(ConfigError, match=f"^{tmp_path}/policy.yaml:6:"):
        load(options(tmp_path))

    write(tmp_path, "policy.yaml", policy("{advertise: [nvidia], nvidiaConfig: /n.yaml}"))
    with pytest.raises(ConfigError, match=f"^{tmp_path}/n.yaml: there is no such file"):
        load(options(tmp_path))

    write(tmp_path, "n.yaml", "version: v1\nflags: {migStrategy: half}\n")
    with pytest.raises(ConfigError, match=f"^{tmp_path}/n.yaml:2:22: flags.migStrategy: unknown MIG strategy: half"):
        load(options(tmp_path))


def test_variables_of_feature_discovery_count(tmp_path: Path) -> None:
    """The plugin writes its labels; one that is wrong is a mistake like any other."""
    write(tmp_path, "policy.yaml", policy("{advertise: [nvidia], labels: {}}"))

    loaded = load(options(tmp_path, env={"GFD_NO_TIMESTAMP": "true"}))

    assert loaded.nvidia.flags.gfd.no_timestamp
    with pytest.raises(ConfigError, match=r"^GFD_ONESHOT=often: must be true or false, not 'often'$"):
        load(options(tmp_path, env={"GFD_ONESHOT": "often"}))


def test_only_named_resources_are_ours(tmp_path: Path) -> None:
    """A pattern of a class is none: another plugin may offer what it matches."""
    section = "{advertise: [nvidia, ali-npu], sharing: [{resource: nvidia.com/gpu, replicas: 2, rename: nvidia.com/x}]}"
    write(tmp_path, "policy.yaml", policy(section))
    loaded = load(options(tmp_path))

    ours = ["aliyun.com/npu", "nvidia.com/gpu", "nvidia.com/x", "nvidia.com/gpu.other", "nvidia.com/mig-1g.5gb"]
    assert [name for name in ours if loaded.names(name)] == ours[:3]


def test_where_the_kubelet_says_what_is_in_use(tmp_path: Path) -> None:
    """Where the policy file says, or in the kubelet's directory that is named; or nowhere."""
    write(tmp_path, "policy.yaml", policy("{}"))
    assert load(options(tmp_path)).podresources == tmp_path / "var/lib/kubelet/pod-resources/kubelet.sock"
    named = load(options(tmp_path, kubelet_dir=Path("/data/kubelet")))
    assert named.podresources == Path("/data/kubelet/pod-resources/kubelet.sock")

    off = policy("{}").replace("  plugin:", '  podresources: {socket: ""}\n  plugin:')
    write(tmp_path, "policy.yaml", off)
    assert load(options(tmp_path)).podresources is None


@pytest.mark.parametrize("prefix", ["", "unix://"])
def test_the_daemon_s_socket_is_not_ours(tmp_path: Path, prefix: str) -> None:
    """Metrics cannot be served there."""
    socket = f"{tmp_path}/control.sock"
    given = options(tmp_path, http=f"unix://{socket}", control_socket=f"{prefix}{socket}")
    assert given.daemon_socket == socket
    with pytest.raises(UsageError, match="which is the daemon's socket"):
        given.address()


@pytest.mark.parametrize(
    ("flags", "variable", "found"),
    [
        pytest.param({}, None, None, id="as-usual"),
        pytest.param({}, "/k/kubelet.sock", "/k/kubelet.sock", id="variable"),
        pytest.param({"kubelet-socket": "/f.sock"}, "/k.sock", "/f.sock", id="flag"),
    ],
)
def test_the_kubelets_socket(tmp_path: Path, flags: dict[str, str], variable: str | None, found: str | None) -> None:
    """NVIDIA's flag or variable names it."""
    env = {} if variable is None else {"KUBELET_SOCKET": variable}
    given = options(tmp_path, nvidia_flags=flags, env=env)

    assert given.kubelet_socket("kubelet") == (found and Path(found))


def test_an_empty_socket_of_the_kubelet(tmp_path: Path) -> None:
    """No kubelet would learn of the plugin, unless it looks into its own folder."""
    given = options(tmp_path, env={"KUBELET_SOCKET": ""})

    with pytest.raises(UsageError, match="use --register plugins-registry"):
        given.kubelet_socket("kubelet")
    assert given.kubelet_socket("plugins-registry") is None


def choose(folder: Path, text: str, name: str = "a100") -> None:
    """Put a configuration that was chosen in the cluster where the daemon puts it."""
    chosen = NamedConfiguration(name=name, text=text, source="ConfigMap criproxy/gpus")
    write(folder, NAMED_CONFIG.lstrip("/"), chosen.to_json())


def test_what_the_cluster_has_chosen_counts_before_nvidia_s_file(tmp_path: Path) -> None:
    """Flags and variables still count before it; without it, the node's file does; both places are watched."""
    write(tmp_path, "policy.yaml", policy("{nvidiaConfig: /etc/own.yaml}"))
    write(tmp_path, "etc/own.yaml", NVIDIA)
    own = load(options(tmp_path))
    choose(tmp_path, "version: v1\nflags: {migStrategy: mixed}\n")

    loaded = load(options(tmp_path))

    assert (own.nvidia.flags.mig_strategy, loaded.nvidia.flags.mig_strategy) == ("single", "mixed")
    assert loaded.nvidia_source == "configuration a100 of ConfigMap criproxy/gpus"
    assert own.watched == loaded.watched == (tmp_path / "policy.yaml", tmp_path / "etc/own.yaml", tmp_path / FILE)
    assert load(options(tmp_path, nvidia_flags={"mig-strategy": "none"})).nvidia.flags.mig_strategy == "none"
    assert load(options(tmp_path, ignores_named=True)) == own


def test_what_the_cluster_has_chosen_stands_for_a_section(tmp_path: Path) -> None:
    """A policy file without one offers NVIDIA's cards then, as with NVIDIA's own file beside it."""
    write(tmp_path, "policy.yaml", "policy: none\n")
    choose(tmp_path, NVIDIA)

    assert [each.kind.name for each in load(options(tmp_path)).plan.advertised] == ["nvidia"]


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        pytest.param('{"name": 1}', 0o600, "criproxy has not written this file", id="other-json"),
        pytest.param("version: v1", 0o600, "criproxy has not written this file", id="no-json"),
        pytest.param('{"name": "a", "text": "version: v2"}', 0o600, "configuration a:1:10: ", id="mistake"),
        pytest.param('{"name": "a", "text": "version: v1"}', 0o666, "can be written by every user", id="mode"),
    ],
)
def test_a_choice_that_cannot_be_used(tmp_path: Path, content: str, mode: int, said: str) -> None:
    """It is said where the mistake is."""
    write(tmp_path, "policy.yaml", policy("{}"))
    Path(write(tmp_path, FILE, content)).chmod(mode)

    with pytest.raises(ConfigError, match=said):
        load(options(tmp_path))


def test_mistakes_beside_our_own_sharing(tmp_path: Path) -> None:
    """What the cluster has chosen and our own section must not both share NVIDIA's cards."""
    write(tmp_path, "policy.yaml", policy("{sharing: [{resource: nvidia.com/gpu, replicas: 2}]}"))
    choose(tmp_path, "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n")

    with pytest.raises(ConfigError, match=r"configuration a100 of ConfigMap criproxy/gpus: .*keep one of them"):
        load(options(tmp_path))
