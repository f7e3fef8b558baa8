"""NVIDIA's configuration on this node: which of several files applies, what it says, and what is wrong with it."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from criproxy.config.document import Document, parse
from criproxy.config.files import GROUP_FILE, read_group, read_text
from criproxy.config.mistakes import Mistake, did_you_mean, reported, shown
from criproxy.config.predecessors import instead_of_nvidia_file
from criproxy.config.validation_errors import Location, complaint, dotted, explain, model_at, names_of
from criproxy.deviceplugin.configuration.nvidia_notes import notes
from criproxy.deviceplugin.nvidia.options import PLACES, PluginConfig, SharedResource, SharedResources, Sharing
from criproxy.deviceplugin.nvidia.settings import CDI_FEATURES, Override
from criproxy.devices.plugin.plan import PluginPlan
from criproxy.errors import ConfigError

DEFAULT = "default"
MAX_NOTES = 50
MAX_VALUES = 100_000
"""Limit for values in a file, counting each use of an alias: a list of devices may be long."""
_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What decides which of several named files applies on a node, in this order."""

    explicit: str = ""
    """The name of a file, by an option of the command line."""
    hostname: str = ""
    group: str | None = None
    """None takes it from the file of the node's group, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaFile:
    """NVIDIA's configuration as it applies on this node."""

    file: Path | None = None
    """None: there is no file, but flags and variables."""
    reason: str = ""
    """Why it is this one."""
    config: PluginConfig | None = None
    """None if something is wrong."""
    mistakes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What has no effect."""
    is_empty: bool = False
    """Whether the file has no content at all, but for comments."""

    @property
    def error(self) -> ConfigError:
        """All mistakes, a line each."""
        return ConfigError("\n".join(self.mistakes))


def examine(plan: PluginPlan, node: Node, given: Sequence[Override] = ()) -> NvidiaFile:
    """Read and check the file that *plan* names, or the one of a directory that *node* chooses; may block.

    Args:
        plan: The section of our policy file; its entries for shared cards of NVIDIA's count where the file has none.
        node: Chooses among several files.
        given: What NVIDIA's flags and variables say, which override the file.
    """
    try:
        file, reason = _chosen(Path(plan.nvidia_config), node) if plan.nvidia_config else (None, "no file is named")
    except ConfigError as error:
        return NvidiaFile(mistakes=(f"{plan.nvidia_config}: {error}",))
    text, wrong = read_text(file) if file else ("", [])
    if file and (wrong or text is None):
        return NvidiaFile(file=file, reason=reason, mistakes=_located(wrong, file))
    found = replace(examine_text(plan, text or "", file, given), reason=reason)
    prefix = f"{file}: " if file else ""
    return replace(found, notes=(*found.notes, *(f"{prefix}{note}" for note in _name_note(plan, node, file))))


def examine_text(plan: PluginPlan, text: str, file: Path | None, given: Sequence[Override] = ()) -> NvidiaFile:
    """Check the *text* of a file; the arguments are those of `examine`, and mistakes and notes name *file*."""
    found = read(text, given, file)
    if found.config is None:
        return found
    prefix = f"{file}: " if file else ""
    try:
        config = with_own_sharing(found.config, plan)
    except ConfigError as error:
        return NvidiaFile(file=file, mistakes=(f"{prefix}{error}",))
    about = (*found.notes, *_bounded(notes(config, plan)))
    without_effect = (
        f"{override.source} has no effect: criproxy writes no CDI specification"
        for override in given
        if override.key == CDI_FEATURES
    )
    return replace(found, config=config, notes=(*(f"{prefix}{note}" for note in about), *without_effect))


def read(text: str, given: Sequence[Override] = (), file: Path | None = None) -> NvidiaFile:
    """Return what *text* says, with *given* in place of what it says there; mistakes name *file* if there is one.

    Its notes are about keys that NVIDIA's plugin does not know, and do not name the file.
    """
    document = parse(text, MAX_VALUES)
    if document.mistakes:
        return NvidiaFile(file=file, mistakes=_located(document.mistakes, file))
    if wrong := _whole(document.data):
        return NvidiaFile(file=file, mistakes=_located([Mistake(0, 0, wrong)], file))
    data = reduce(_with_override, given, document.data or {})
    unknown = [detail for detail in _errors(data) if detail["type"] == "extra_forbidden"]
    data = _without(data, {detail["loc"] for detail in unknown})
    sources = {override.key: override.source for override in given}
    of_file = [mistake for detail in unknown if (mistake := _misspelt(detail["loc"], document))]
    of_overrides = list[str]()
    for detail in _errors(data):  # again: what depends on several values is only checked if each one is valid
        if source := next((sources[key] for key in _keys(detail["loc"]) if key in sources), ""):
            of_overrides.append(f"{source}: {complaint(detail)}")
        else:
            of_file.append(explain(detail, PluginConfig, document))
    if of_overrides or of_file:
        return NvidiaFile(file=file, mistakes=(*of_overrides, *_located(of_file, file)))
    ignored = _bounded(_ignored(detail["loc"], document) for detail in unknown)
    is_empty = file is not None and document.data is None
    return NvidiaFile(file=file, config=_validated(data), notes=ignored, is_empty=is_empty)


def _whole(data: Any) -> str:  # noqa: ANN401 (YAML)
    """Why *data* is no file of NVIDIA's; empty if it may be one."""
    if data is not None and not isinstance(data, dict):
        return f"the file must be a mapping of keys to values, not {shown(data)}"
    return instead_of_nvidia_file(data, PLACES)


def _validated(data: object) -> PluginConfig:
    return PluginConfig.model_validate(data, by_name=False, by_alias=True)


def _errors(data: object) -> list[ErrorDetails]:
    try:
        _validated(data)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


def _located(mistakes: list[Mistake], file: Path | None) -> tuple[str, ...]:
    return tuple(each.located(file) if file else each.sentence for each in reported(mistakes))


def _misspelt(path: Location, document: Document) -> Mistake | None:
    """A key whose capitals are wrong: Go's decoder accepts it in some sections, so that it must not be ignored."""
    same = [name for name in _names_beside(path) if name.lower() == str(path[-1]).lower()]
    if not same:
        return None
    return Mistake(*document.place(path, of_key=True), f"{dotted(path)}: write {same[0]!r}, with these capitals")


def _ignored(path: Location, document: Document) -> str:
    key, line = str(path[-1]), document.place(path, of_key=True)[0]
    hint = did_you_mean(key, _names_beside(path))
    near = get_close_matches(key, PLACES, n=1) if len(path) == 1 else [key] if key in PLACES else []
    if near:
        hint = f"; did you mean {PLACES[near[0]]!r}?"
    return f"line {line}: NVIDIA's plugin does not know {dotted(path)!r} and ignores it{hint}"


def _names_beside(path: Location) -> list[str]:
    return names_of(model_at(PluginConfig, path[:-1]))


def _with_override(data: Any, override: Override) -> Any:  # noqa: ANN401 (YAML)
    return _put(data, override.key.split("."), override.value) if "." in override.key else data


def _put(data: Any, path: Sequence[str], value: object) -> Any:  # noqa: ANN401
    if data is not None and not isinstance(data, dict):
        return data  # which is a mistake of the file
    first, *rest = path
    below = (data or {}).get(first)
    return {**(data or {}), first: _put(below, rest, value) if rest else value}


def _without(data: Any, paths: AbstractSet[Location], here: Location = ()) -> Any:  # noqa: ANN401
    """Return *data*, which is at *here*, without the values at *paths*."""
    if isinstance(data, list):
        return [_without(item, paths, (*here, at)) for at, item in enumerate(data)]
    if not isinstance(data, dict):
        return data
    return {key: _without(item, paths, (*here, key)) for key, item in data.items() if (*here, key) not in paths}


def _bounded(notes: Iterable[str]) -> tuple[str, ...]:
    """Return the first notes: each takes time, and nobody reads thousands."""
    found = tuple(islice(notes, MAX_NOTES + 1))
    return found if len(found) <= MAX_NOTES else (*found[:MAX_NOTES], "there are more such notes")


def _keys(location: Location) -> Iterator[str]:
    """Yield the key at *location*, and those around it."""
    return (dotted(location[:length]) for length in range(len(location), 0, -1))


def _chosen(path: Path, node: Node) -> tuple[Path, str]:
    """The file *path*, or the one of the directory *path* that applies on *node*, and why.

    Raises:
        ConfigError: None of them does.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - is_dir() raises for a name that is too long
        return path, "it was named"
    try:
        names = [name for name in os.listdir(path) if not (name.startswith("..") or (path / name).is_dir())]  # noqa: PTH208
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}") from None
    files = {_stem(name): name for name in sorted(names, key=lambda name: (name == _stem(name), name))}
    group = read_group(GROUP_FILE) if node.group is None else node.group
    name, reason = choose(files, _stem(node.explicit), node.hostname, [group, f"group-{group}"] if group else [])
    return path / files[name], reason


def _stem(name: str) -> str:
    """The name without what says that it is YAML: NVIDIA's own files have none."""
    return next((name.removesuffix(each) for each in _SUFFIXES if name.endswith(each)), name)


def choose(
    names: Collection[str], explicit: str = "", hostname: str = "", groups: Sequence[str] = ()
) -> tuple[str, str]:
    """Choose a file: an explicit name, the host's, a group's, `default`, the only one; return it, and why.

    Raises:
        ConfigError: None of these files exists.
    """
    if explicit and explicit not in names:
        there = ", ".join(sorted(names)) or "none"
        raise ConfigError(f"specified config {explicit} does not exist; there are {there}")
    wanted = {explicit: "the option names it"} if explicit else {hostname: "it has the name of this host"}
    wanted |= {group: f"this host is in the group {group}" for group in groups if group not in wanted}
    wanted.setdefault(DEFAULT, f"it is named {DEFAULT}")
    for name, reason in wanted.items():
        if name in names:
            return name, reason
    if len(names) == 1:
        return next(iter(names)), "it is the only one"
    if not names:
        raise ConfigError("no configuration files available")
    listed = ", ".join(filter(None, wanted))
    raise ConfigError(f"none of the files {', '.join(sorted(names))} is for this host; name one of them {listed}")


def _name_note(plan: PluginPlan, node: Node, file: Path | None) -> Iterator[str]:
    """That the name of a file chooses among none."""
    if node.explicit and (file is None or file == Path(plan.nvidia_config)):
        what = "this is a file, not a directory" if file else "no directory of NVIDIA's files is given"
        yield f"--name {node.explicit} has no effect: {what}"


def with_own_sharing(config: PluginConfig, plan: PluginPlan) -> PluginConfig:
    """NVIDIA's *config* with the cards that our own section shares.

    Raises:
        ConfigError: Both say which cards are shared.
    """
    entries = plan.shared_of(plan.nvidia) if plan.nvidia else ()
    if not entries:
        return config
    if config.sharing.shared is not None:
        raise ConfigError(
            "sharing: devices.plugin.sharing of the policy file also shares NVIDIA's cards; keep one of them"
        )
    resources = tuple(SharedResource.model_construct(**asdict(each)) for each in entries)
    only_one = any(each.only_one for each in entries)
    shared = SharedResources(resources=resources, fail_requests_greater_than_one=only_one)
    return config.model_copy(update={"sharing": Sharing(time_slicing=shared)})
