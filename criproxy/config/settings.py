"""What a policy file says, checked: the options that do not depend on the policy, and those of the policy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from criproxy.config.document import Document, Mistake
from criproxy.config.words import did_you_mean
from criproxy.policy import BUILTIN
from criproxy.policy.api import Policy
from criproxy.policy.options import Options


def _known_policy(name: str) -> str:
    if name not in BUILTIN:
        raise ValueError(f"there is no policy {name!r}, but {', '.join(BUILTIN)}{did_you_mean(name, BUILTIN)}")
    return name


class Common(BaseModel):
    """Options beside those of the policy."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    policy: Annotated[str, AfterValidator(_known_policy)]
    """The name of the placement policy."""
    on_error: Literal["shared", "pass", "refuse"] = "shared"
    """What becomes of a container when criproxy itself fails: it goes on with the last known shared CPUs, passes as
    the kubelet sent it, or is refused."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One checked policy file."""

    common: Common
    options: Options
    """Those of the policy that `common` names."""
    source: Path

    def build_policy(self) -> Policy:
        """A policy with these options."""
        return BUILTIN[self.common.policy].build(self.options)


def to_settings(document: Document, source: Path) -> tuple[Settings | None, list[Mistake]]:
    """The settings, or None and all mistakes."""
    mistakes = list(document.mistakes)
    data = document.data
    if not isinstance(data, dict):
        if not mistakes:
            mistakes.append(Mistake(1, 1, _not_a_mapping(data)))
        return None, mistakes
    common_names = set(_names(Common))
    common = _validate(Common, {k: v for k, v in data.items() if k in common_names}, document, mistakes)
    name = data.get("policy")
    model = BUILTIN[name].options if isinstance(name, str) and name in BUILTIN else Options
    options = _validate(model, {k: v for k, v in data.items() if k not in common_names}, document, mistakes)
    if mistakes or not isinstance(common, Common) or not isinstance(options, Options):
        return None, mistakes
    return Settings(common, options, source), []


def _validate(
    model: type[BaseModel], data: dict[str, Any], document: Document, mistakes: list[Mistake]
) -> BaseModel | None:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        mistakes += [_mistake(detail, model, document) for detail in error.errors()]
        return None


def _mistake(detail: ErrorDetails, model: type[BaseModel], document: Document) -> Mistake:
    path, kind = detail["loc"], detail["type"]
    name = ".".join(map(str, path))
    place = document.place(path, of_key=kind == "extra_forbidden")
    if kind == "extra_forbidden":
        hint = did_you_mean(str(path[-1]), [*_names(Common), *_names(model)])
        return Mistake(*place, f"there is no option {name!r}{hint}")
    if kind == "missing":
        return Mistake(*place, f"the option {name!r} is missing")
    text = detail["msg"].removeprefix("Value error, ").replace("Input should", "must")
    expected = detail.get("ctx", {}).get("expected")
    hint = did_you_mean(str(detail["input"]), expected.replace(" or ", ", ").split(", ")) if expected else ""
    return Mistake(*place, f"{name}: {text}{hint}")


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _not_a_mapping(data: object) -> str:
    example = f"'policy: NAME' with one of {', '.join(BUILTIN)}"
    return f"the file is empty; it needs at least {example}" if data is None else f"must be options such as {example}"
