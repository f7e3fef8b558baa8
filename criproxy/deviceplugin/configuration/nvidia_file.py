"""NVIDIA's configuration file on this node: which of several holds, and what is wrong with it."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from criproxy.config.choice import GROUP_FILE, read_group
from criproxy.config.predecessors import instead_of_nvidia_file
from criproxy.config.reading.files import read_text
from criproxy.deviceplugin.nvidia.file.command_line import set_values
from criproxy.deviceplugin.nvidia.file.decode import json_text
from criproxy.deviceplugin.nvidia.file.flags import VARIABLES, Program
from criproxy.deviceplugin.nvidia.file.likely_mistakes import likely_mistakes, without_cards
from criproxy.deviceplugin.nvidia.file.load import load
from criproxy.deviceplugin.nvidia.file.no_effect import without_effect
from criproxy.deviceplugin.nvidia.file.selection import Choice, choose, config_names
from criproxy.deviceplugin.nvidia.file.syntax import read_file
from criproxy.deviceplugin.nvidia.file.unknown_keys import unknown_keys
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.go.yaml_like_go import read_yaml
from criproxy.deviceplugin.nvidia.options import PluginConfig, SharedResource, SharedResources, Sharing
from criproxy.devices.classes.sharing import MAX_REPLICAS
from criproxy.devices.plugin.plan import PluginPlan
from criproxy.errors import ConfigError

_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What decides which of several named files holds on a node, in this order."""

    explicit: str = ""
    """The name of a file, by an option of the command line."""
    hostname: str = ""
    group: str | None = None
    """None takes it from the file of the node's group, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaFile:
    """NVIDIA's configuration as it holds on this node."""

    file: Path | None
    """None: there is no file, but flags and variables."""
    reason: str
    """Why it is this one."""
    config: PluginConfig | None
    """None if something is wrong."""
    mistakes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What has no effect."""
    is_empty: bool = False
    """Whether nothing at all stands in the file."""

    @property
    def error(self) -> ConfigError:
        """All mistakes, a line each."""
        return ConfigError("\n".join(self.mistakes))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """One reading of the file: whatever follows from it is from the same text, even if the file changes meanwhile."""

    file: Path | None
    reason: str
    text: str | None = None
    """None: there is no file, or it cannot be read."""
    mistakes: tuple[str, ...] = ()


def read(plan: PluginPlan, node: Node) -> FileText:
    """Read the file that *plan* names, or the one of a folder that *node* chooses."""
    try:
        file, reason = chosen(Path(plan.nvidia_config), node) if plan.nvidia_config else (None, "no file is named")
    except ConfigError as error:
        return FileText(file=None, reason="", mistakes=(f"{plan.nvidia_config}: {error}",))
    if file is None:
        return FileText(file=None, reason=reason)
    text, mistakes = read_text(file)
    return FileText(file=file, reason=reason, text=text, mistakes=tuple(each.located(file) for each in mistakes))


def examine(
    plan: PluginPlan,
    node: Node,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    has_nvml: bool = True,
    program: Program = "plugin",
    found: FileText | None = None,
) -> NvidiaFile:
    """Check the file that *plan* names; whatever is wrong with it comes back as mistakes.

    Args:
        plan: our own section; its entries for shared cards of NVIDIA's count where the file has none.
        node: chooses among several files.
        args: NVIDIA's flags, which come before the file.
        env: the environment, of which NVIDIA's variables come before the file.
        has_nvml: whether there is a library NVML on this machine.
        program: of NVIDIA's, which has flags and variables of its own.
        found: the file, if it has been read for another program; None: read it.
    """
    found = found or read(plan, node)
    file, reason, text = found.file, found.reason, found.text
    if found.mistakes or (file and text is None):
        return NvidiaFile(file=file, reason=reason, config=None, mistakes=found.mistakes)
    prefix = f"{file}: " if file else ""
    if wrong := instead_of_nvidia_file(_data(text)):
        return NvidiaFile(file=file, reason=reason, config=None, mistakes=(f"{prefix}{wrong}",))
    config_of = partial(_config, text, plan, program=program, has_nvml=has_nvml)
    try:
        config = config_of(args, env or {})
    except PluginConfigError as error:
        prefix = _blamed(args, env or {}, program, str(error), config_of) or prefix
        return NvidiaFile(file=file, reason=reason, config=None, mistakes=(f"{prefix}{error}",))
    said = set_values(args, env or {}, program).keys() | (read_file(text).flags.keys() if text is not None else set())
    notes = (*_notes(text, config, plan), *(without_effect(config, said) if plan.nvidia else ()))
    notes = tuple(f"{prefix}{note}" for note in (*notes, *_name_note(plan, node, file)))
    is_empty = text is not None and not text.strip()
    return NvidiaFile(file=file, reason=reason, config=config, notes=notes, is_empty=is_empty)


def _data(text: str | None) -> Any:  # noqa: ANN401 (YAML)
    """The first document of the file; None if there is none, or if it is invalid."""
    try:
        return json.loads(json_text(read_yaml(text or "")))
    except PluginConfigError:
        return None


def _config(
    text: str | None,
    plan: PluginPlan,
    args: Sequence[str],
    env: Mapping[str, str],
    *,
    program: Program,
    has_nvml: bool,
) -> PluginConfig:
    config = with_own_sharing(load(text, args, env, program=program, has_nvml=has_nvml), plan)
    _check_replicas(config)
    return config


def _blamed(
    args: Sequence[str],
    env: Mapping[str, str],
    program: Program,
    mistake: str,
    config_of: Callable[[Sequence[str], Mapping[str, str]], PluginConfig],
) -> str:
    """The flag or variable without which there is no such *mistake*, to begin a sentence with; empty: it is none's.

    A flag is one word, ``--mig-strategy=none``.
    """
    for flag in args:
        if not _is_made(mistake, config_of, [other for other in args if other != flag], env):
            return f"{flag}: "
    for name in VARIABLES[program] & env.keys():
        if not _is_made(mistake, config_of, args, {key: value for key, value in env.items() if key != name}):
            return f"{name}={env[name]}: "
    return ""


def _is_made(
    mistake: str,
    config_of: Callable[[Sequence[str], Mapping[str, str]], PluginConfig],
    args: Sequence[str],
    env: Mapping[str, str],
) -> bool:
    try:
        config_of(args, env)
    except PluginConfigError as error:
        return str(error) == mistake
    return False


def _name_note(plan: PluginPlan, node: Node, file: Path | None) -> Iterator[str]:
    """That the name of a file chooses among none."""
    if node.explicit and (file is None or file == Path(plan.nvidia_config)):
        what = "this is a file, not a directory" if file else "no directory of NVIDIA's files is given"
        yield f"--name {node.explicit} has no effect: {what}"


def chosen(path: Path, node: Node) -> tuple[Path, str]:
    """The file *path*, or of the folder *path* the one that holds on a node, and why.

    Raises:
        ConfigError: none of them does.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - is_dir() raises for a name that is too long
        return path, "it was named"
    try:
        names = [name for name in config_names(os.listdir(path)) if not (path / name).is_dir()]  # noqa: PTH208
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}") from None
    files = {_stem(name): name for name in sorted(names, key=lambda name: name == _stem(name))}
    group = read_group(GROUP_FILE) if node.group is None else node.group
    groups = [group, f"group-{group}"] if group else []
    choice: Choice = choose(files.keys(), _stem(node.explicit), node.hostname, groups)
    return path / files[choice.name], choice.reason


def _stem(name: str) -> str:
    """The name without what says that it is YAML: NVIDIA's own files have none."""
    return next((name.removesuffix(each) for each in _SUFFIXES if name.endswith(each)), name)


def with_own_sharing(config: PluginConfig, plan: PluginPlan) -> PluginConfig:
    """NVIDIA's *config* with the cards that our own section shares.

    Raises:
        PluginConfigError: both say which cards are shared.
    """
    entries = plan.shared_of(plan.nvidia) if plan.nvidia else ()
    if not entries:
        return config
    if config.sharing.shared is not None:
        raise PluginConfigError(
            "sharing: devices.plugin.sharing of the policy file also shares NVIDIA's cards", advice="keep one of them"
        )
    resources = tuple(
        SharedResource(name=each.name, rename=each.rename, devices=each.devices, replicas=each.replicas)
        for each in entries
    )
    only_one = any(each.only_one for each in entries)
    shared = SharedResources(resources=resources, fail_requests_greater_than_one=only_one)
    return replace(config, sharing=Sharing(time_slicing=shared))


def _check_replicas(config: PluginConfig) -> None:
    """Refuse what would use up all memory, here and in the kubelet.

    Raises:
        PluginConfigError: there are more replicas than the policy file may have.
    """
    for each in config.sharing.shared.resources if config.sharing.shared else ():
        if each.replicas > MAX_REPLICAS:
            text = f"sharing: {each.name}: {each.replicas} replicas of a card are too many: it can have {MAX_REPLICAS}"
            raise PluginConfigError(text, advice="NVIDIA's plugin has no limit, but the kubelet has to list them all")


def _notes(text: str | None, config: PluginConfig, plan: PluginPlan) -> Iterator[str]:
    for key in unknown_keys(text or ""):
        yield key.sentence
    yield from likely_mistakes(text or "", config)
    if plan.nvidia is None:
        return
    kind, nowhere = plan.nvidia.kind, {each.rename or each.name for each in without_cards(config)}
    for name in named_resources(config):
        if not kind.serves(name) and name not in nowhere:
            yield f"{name} is not among resources of the class {kind.name!r}: add it there, or its pods see no card"


def named_resources(config: PluginConfig) -> list[str]:
    """The resources that a file names for cards, each once."""
    patterns = (each.name for each in (*config.gpu_resources, *config.mig_resources))
    shared = config.sharing.shared.resources if config.sharing.shared else ()
    return list(dict.fromkeys((*patterns, *(each.rename or each.name for each in shared))))
