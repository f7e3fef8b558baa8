"""NodePolicy: a policy for a group of nodes, and how it is rolled out."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from criproxy import __version__
from criproxy.config.document import Document
from criproxy.config.mistakes import Mistake, shown
from criproxy.config.validation_errors import complaint, dotted, explain
from criproxy.devices.options.option_types import Text
from criproxy.errors import ConfigError
from criproxy.model.text.amounts import parse_seconds
from criproxy.model.text.sources import LONGEST_TRY_S, SHORTEST_TRY_S, hash_of

Part = TypeVar("Part", bound=BaseModel)
Object = dict[str, Any]
"""A Kubernetes object as JSON."""

MAX_FAILURES = 20
"""Failures that the status of a NodePolicy lists."""
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""What json.dumps writes as it is, and YAML forbids or takes for a line break."""


class Wish(BaseModel):
    """A part that users write: an unknown field is a mistake, or a wish that this version cannot fulfil."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Report(BaseModel):
    """A part that agents write: fields of newer agents are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)

    def as_object(self) -> Object:
        """As JSON, without fields that have no value."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


LabelKey = Annotated[
    str,
    Text(
        "([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
        "the key of a label such as pool or example.com/pool",
    ),
]
LabelValue = Annotated[
    str, Text("([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", "the value of a label: at most 63 of A-Za-z0-9._-")
]


class Requirement(Wish):
    """One requirement on a label."""

    key: LabelKey
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label's value and the values relate. NotIn and DoesNotExist also hold for nodes without the label."""
    values: list[LabelValue] = []
    """The values for In and NotIn."""

    @pydantic.model_validator(mode="after")
    def _has_values(self) -> "Requirement":
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            raise ValueError(f"{self.operator} must have {'no ' if self.values else ''}values")
        return self

    def met_by(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels meets it."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels

    def query(self) -> str:
        """Return it as the API server takes it in a query."""
        values = ",".join(self.values)
        return {
            "In": f"{self.key} in ({values})",
            "NotIn": f"{self.key} notin ({values})",
            "Exists": self.key,
            "DoesNotExist": f"!{self.key}",
        }[self.operator]


class NodeSelector(Wish):
    """A selector of nodes by their labels: all of it must hold, and {} selects every node."""

    match_labels: dict[LabelKey, LabelValue] = {}
    """Labels with their values."""
    match_expressions: list[Requirement] = []
    """Requirements on labels."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects a node with these labels."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.met_by(labels) for requirement in self.match_expressions
        )

    def query(self) -> str:
        """Return it as the API server takes it in a query."""
        labels = (f"{key}={value}" for key, value in self.match_labels.items())
        return ",".join((*labels, *(requirement.query() for requirement in self.match_expressions)))


def _try_time(value: object) -> object:
    if isinstance(value, str) and not SHORTEST_TRY_S <= parse_seconds(value, "30s, 10m or 168h") <= LONGEST_TRY_S:
        raise ValueError(f"must be a time from 1s to 168h, not {value}")
    return value


TryTime = Annotated[
    str, Text("[1-9][0-9]{0,6}(s|m|h)", "a time such as 30s, 10m or 168h", "m"), pydantic.BeforeValidator(_try_time)
]
_SHARE = "^([1-9][0-9]?|100) ?%$"


def _node_count(value: object) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if isinstance(value, str) and re.fullmatch(_SHARE, value):
        return value
    raise ValueError(f"must be a number of nodes from 1, or a share of them such as 10%, not {shown(value)}")


NodeCount = Annotated[
    int | str,
    pydantic.PlainValidator(_node_count),
    pydantic.WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _SHARE}]}),
]


class Rollout(Wish):
    """How a new policy reaches the nodes."""

    try_: TryTime = Field(default="10m", alias="try")
    """How long each node tries the policy (1s to 168h). If `criproxy status --check` stays clean for this long, the
    node keeps it, else the former configuration comes back."""
    at_once: NodeCount = 1
    """How many nodes may try the policy at the same time: a number, or a share of the selected nodes, such as 10%,
    rounded down, but at least one node."""
    stop_after_failures: Annotated[int, Field(ge=1)] = 1
    """After how many nodes on which the policy failed no further node begins."""

    @property
    def try_s(self) -> float:
        """How long a node tries the policy, in seconds."""
        return parse_seconds(self.try_)

    def slots(self, nodes: int) -> int:
        """How many of *nodes* may try the policy at the same time; at least 1."""
        if isinstance(self.at_once, int):
            return self.at_once
        return max(1, nodes * int(self.at_once.rstrip(" %")) // 100)


class Spec(Wish):
    """What users wish."""

    node_selector: NodeSelector
    """The nodes that get this policy, by their labels; {} selects every node."""
    priority: int = 0
    """Of several NodePolicies that select a node, the one with the highest priority counts; of equal ones, the first by
    name."""
    policy: dict[str, Any]
    """The content of a policy file."""
    rollout: Rollout = Rollout()
    """How a new policy reaches the nodes."""


class _Metadata(Report):
    """What is read of an object's metadata."""

    name: Annotated[
        str,
        Text(
            r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*",
            "the name of an object: a-z, 0-9, - and .",
        ),
    ]


class _Manifest(Wish):
    """A NodePolicy in a file."""

    api_version: Literal["criproxy.io/v1alpha1"]
    kind: Literal["NodePolicy"]
    metadata: _Metadata
    spec: Spec
    status: dict[str, Any] = {}


def mistakes_in(document: Document) -> list[Mistake]:
    """What is wrong with the NodePolicy in a file, apart from the options of its policy; with the places.

    Numbers and texts must be such, as for the API server. If the file itself has mistakes, nothing is added to them.
    """
    if document.mistakes:
        return []
    try:
        _Manifest.model_validate(document.data, strict=True)
    except ValidationError as error:
        return [explain(detail, _Manifest, document) for detail in error.errors(include_url=False)]
    return []


class RolloutStatus(Report):
    """The rollout in progress, or the last one."""

    generation: int
    """Of the NodePolicy's spec."""
    hash: str
    """Of the policy."""
    nodes: int = 0
    """Selected nodes when the rollout began."""
    slots: int = 1
    """How many of them may try the policy at the same time."""
    begun: str = ""
    """When the rollout began (RFC 3339)."""


class Failure(Report):
    """A node on which the policy failed."""

    node: str
    """Its name."""
    generation: int
    """Of the NodePolicy's spec that failed."""
    hash: str
    """Of the policy that failed."""
    at: str
    """When it failed (RFC 3339)."""
    text: str
    """Why."""


class Status(Report):
    """What the agents report."""

    rollout: RolloutStatus | None = None
    """The rollout in progress, or the last one."""
    failures: list[Failure] = []
    """Nodes on which the policy failed, the last 20 of them."""
    stopped: bool = False
    """Whether the rollout has stopped, because the policy failed on too many nodes."""
    message: str = ""
    """What happened, in a sentence."""


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """A NodePolicy that was read."""

    name: str
    uid: str
    generation: int
    """Changes with each change of the spec."""
    resource_version: str
    spec: Spec
    status: Status
    text: str
    """The policy file that the daemon gets."""
    hash: str
    """The hash of that file, as `criproxy status` shows it."""

    @classmethod
    def read(cls, obj: Object) -> "NodePolicy":
        """The object as a value.

        Raises:
            ConfigError: it is none that this version understands; the text says where, and what would be right.
        """
        metadata = obj.get("metadata") or {}
        name = str(metadata.get("name", ""))
        spec = _part(Spec, obj.get("spec"), name, "spec")
        text = text_of(spec.policy)
        return cls(
            name,
            str(metadata.get("uid", "")),
            int(metadata.get("generation") or 0),
            str(metadata.get("resourceVersion", "")),
            spec,
            _part(Status, obj.get("status") or {}, name, "status"),
            text,
            hash_of(text),
        )


def _part(model: type[Part], value: object, name: str, where: str) -> Part:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        place = dotted((where, *detail["loc"]))
        said = "is missing" if detail["type"] == "missing" else complaint(detail)
        if detail["type"] == "extra_forbidden":
            said = f"is unknown to criproxy {__version__}"
        raise ConfigError(f"NodePolicy {name}: {Mistake(0, 0, f'{place} {said}').sentence}") from None


def text_of(policy: Mapping[str, Any]) -> str:
    """The policy file with this content: JSON with sorted keys, which is YAML, too; equal for equal contents."""
    text = json.dumps(policy, ensure_ascii=False, indent=2, sort_keys=True)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"
