"""Configurations of CRI-RM and nri-plugins, and policy files → NodePolicy objects; nothing is left out in silence.

Their objects say by their names for which nodes they are: ``node.NAME``, ``group.GROUP`` or ``default``. Of those that
match a node, the first of this list counts; here, priorities say the same.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from criproxy.config.convert_options import NRI_POLICIES, Translation, list_of_pools, of_crirm, of_nri_plugins
from criproxy.config.document import MAX_VALUES as DOCUMENT_VALUES
from criproxy.config.document import Document, parse
from criproxy.config.mistakes import MAX_WORD, Mistake
from criproxy.config.settings import read_settings
from criproxy.config.validation_errors import dotted
from criproxy.errors import ConfigError

API_VERSION, KIND = "criproxy.io/v1alpha1", "NodePolicy"
HOST_LABEL = "kubernetes.io/hostname"
GROUP_LABELS = {
    "CRI-RM": "cri-resource-manager.intel.com/group",
    "nri-plugins": "config.nri/group",
    "criproxy": "criproxy.io/group",
}
"""Program → the label of nodes whose value is their group: they have it already."""
PRIORITIES = {"default": 0, "group": 10, "node": 20}
MAX_BYTES, MAX_VALUES = 16 << 20, 200_000
"""Of one file: all objects of a namespace, as kubectl prints them, are larger than any policy file."""
_DOCUMENTS = re.compile(r"(?m)^---(?=\s|$)")
_SCOPE = re.compile(r"(?:.*\.)?(?:(?P<scope>node|group)\.(?P<value>[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)|default)")


_WORD = re.compile(r"(?!(?i:y|n|yes|no|on|off|true|false|null)$)[A-Za-z][A-Za-z0-9._/-]*")
"""A text that is one without quotes, too."""


@dataclass(frozen=True, slots=True)
class Converted:
    """One NodePolicy, and what people should know about it."""

    origin: str
    """Such as ``ConfigMap kube-system/cri-resmgr-config.default``."""
    name: str
    selector: Mapping[str, Any]
    """A LabelSelector; empty: all nodes."""
    priority: int
    policy: Mapping[str, Any]
    """The content of a policy file that `criproxy check` takes."""
    notes: Sequence[str]
    """A sentence for each option that has no equivalent or no effect."""

    @property
    def manifest(self) -> dict[str, Any]:
        """The object for the API server."""
        spec = {"nodeSelector": dict(self.selector), "priority": self.priority, "policy": dict(self.policy)}
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": self.name}, "spec": spec}


@dataclass(frozen=True, slots=True)
class Skipped:
    """An object that is not converted."""

    origin: str
    why: str


def convert(text: str, file: Path, labels: Mapping[str, str]) -> Iterator[Converted | Skipped]:
    """Yield what becomes of each object in the *text* of a file.

    Args:
        text: one or more YAML documents: objects, lists of objects, or a configuration alone.
        file: where it comes from; its name becomes that of a NodePolicy made of a configuration alone.
        labels: of the nodes for which a configuration alone is.

    Raises:
        ConfigError: it is no YAML, or a configuration is wrong; a line for each mistake.
    """
    for data in _objects(text, file):
        origin, kind = _origin(data, file), data.get("kind")
        try:
            if kind == "ConfigMap":
                found = _of_config_map(data, origin)
            elif str(data.get("apiVersion")).startswith("config.nri/") and kind in NRI_POLICIES:
                spec = data.get("spec")
                done = of_nri_plugins(str(kind), spec if isinstance(spec, Mapping) else {})
                found = _scoped(data, origin, "nri-plugins", done)
            elif isinstance(kind, str):
                found = Skipped(origin, "it is no configuration of CRI-RM or nri-plugins that has an equivalent")
            else:
                found = _alone(data, origin, file, labels)
            if labels and isinstance(kind, str) and isinstance(found, Converted):
                raise ConfigError("its name says for which nodes it is: convert it without --node-selector")
            yield found
        except ConfigError as error:
            raise ConfigError("\n".join(f"{origin}: {line}" for line in str(error).splitlines())) from error


def node_policies(text: str) -> list[tuple[str, Document]]:
    """Return the NodePolicies in the *text* of a file, by their names; none if the first object is none."""
    documents = [each for each in _documents(text) if each.mistakes or each.data is not None]
    if not documents or documents[0].inside("kind").data != KIND:
        return []
    found = []
    for each in documents:
        if each.inside("kind").data != KIND:
            each.mistakes.append(Mistake(*each.place((), of_key=False), f"this is no {KIND}, as the first object is"))
        found.append((str(each.inside("metadata", "name").data), each))
    return found


def _documents(text: str, max_values: int = DOCUMENT_VALUES) -> Iterator[Document]:
    line = 0
    for part in _DOCUMENTS.split(text):
        yield parse("\n" * line + part, max_values)  # so that lines are those of the file
        line += part.count("\n")


def _objects(text: str, file: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in a file, also those in lists."""
    for document in _documents(text, MAX_VALUES):
        data = _checked(document, str(file))
        if data is None:
            continue
        if not isinstance(data, Mapping):
            line, _ = document.place((), of_key=False)
            raise ConfigError(f"{file}:{line}: neither an object of Kubernetes nor a configuration")
        items = data.get("items") if str(data.get("kind")).endswith("List") else None
        yield from [each for each in items if isinstance(each, Mapping)] if isinstance(items, list) else [data]


def _checked(document: Document, where: str) -> Any:  # noqa: ANN401 (YAML)
    """Return the data of a document.

    Raises:
        ConfigError: it has mistakes.
    """
    if document.mistakes:
        lines = [f"{where}:{each.line}:{each.column}: {each.sentence}" for each in document.mistakes]
        raise ConfigError("\n".join(lines))
    return document.data


def _origin(data: Mapping[str, Any], file: Path) -> str:
    metadata, kind = data.get("metadata"), data.get("kind")
    if not isinstance(kind, str) or not isinstance(metadata, Mapping):
        return str(file)
    name = "/".join(str(metadata[key])[:253] for key in ("namespace", "name") if metadata.get(key))
    return f"{file}: {kind[:MAX_WORD]} {name}"


def _of_config_map(data: Mapping[str, Any], origin: str) -> Converted | Skipped:
    """Convert a ConfigMap of CRI-RM, in which each key is a module in YAML."""
    texts = data.get("data")
    texts = texts if isinstance(texts, Mapping) else {}
    if not re.search(r"(?mi)^\s*active:", str(texts.get("policy"))):
        return Skipped(origin, "it has no key 'policy' with a policy of CRI-RM in it ('Active:')")
    modules = {key: _checked(parse(str(text)), f"data.{key}") for key, text in texts.items()}
    return _scoped(data, origin, "CRI-RM", of_crirm(modules))


def _scoped(data: Mapping[str, Any], origin: str, program: str, done: Translation) -> Converted | Skipped:
    """Select the nodes that the name of the object says."""
    metadata = data.get("metadata")
    name = str(metadata.get("name")) if isinstance(metadata, Mapping) else ""
    found = _SCOPE.fullmatch(name)
    if found is None:
        return Skipped(origin, "no node uses an object of this name: such names are node.NAME, group.GROUP or default")
    scope, value = found["scope"] or "default", found["value"]
    label = GROUP_LABELS[program]
    selector: dict[str, Any] = {"matchLabels": {HOST_LABEL if scope == "node" else label: value}}
    if scope == "default":  # a node in a group without an object does not use the default one of nri-plugins
        absent = {"matchExpressions": [{"key": label, "operator": "DoesNotExist"}]}
        selector = absent if program == "nri-plugins" else {}
    return _judged(origin, _name(f"{scope}.{value}" if value else scope), selector, PRIORITIES[scope], done)


def _alone(data: Mapping[str, Any], origin: str, file: Path, labels: Mapping[str, str]) -> Converted:
    """Convert a configuration that is not in an object: one of CRI-RM, or a policy file.

    Raises:
        ConfigError: nothing says for which nodes it is, or it is neither.
    """
    scope, found = ("group", file.stem.removeprefix("group-")) if file.stem.startswith("group-") else ("default", "")
    own = dict(labels) or ({GROUP_LABELS["criproxy"]: found} if found else {})
    if not own and file.stem != "default":
        raise ConfigError("it does not say for which nodes it is: name them with --node-selector LABEL=VALUE")
    policy = data.get("policy")
    if isinstance(policy, Mapping):
        done = of_crirm(data)
    elif isinstance(policy, str):
        done = Translation(list_of_pools(dict(data)))
    else:
        raise ConfigError("it is neither an object nor a configuration of CRI-RM nor a policy file of criproxy")
    return _judged(origin, _name(file.stem), {"matchLabels": own} if own else {}, PRIORITIES[scope], done)


def _name(text: str) -> str:
    """Return *text* as an object can be called."""
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip(".-")[:253] or "policy"


def _judged(origin: str, name: str, selector: Mapping[str, Any], priority: int, done: Translation) -> Converted:
    """Check the policy as `criproxy check` does.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """
    contents = read_settings(parse(to_yaml(done.policy)), Path(name))
    if contents.settings is None:
        raise ConfigError("\n".join(each.sentence for each in contents.wrong))
    contents.settings.build_policy()
    notes = (*done.lost, *(f"{dotted(path)} is kept: {text}" for path, text in contents.settings.notes()))
    return Converted(origin, name, selector, priority, done.policy, notes)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that any reader of YAML could take for something else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 (the library's signature)
        """Write a value as often as it is used."""
        return True


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if _WORD.fullmatch(text) else '"')


_Dumper.add_representer(str, _quoted)


def to_yaml(value: Mapping[str, Any]) -> str:
    """Write plain data as YAML that all its readers read alike."""
    return yaml.dump(
        dict(value), Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1000
    )
