"""The list ``devices.plugin.profiles`` of a policy file: quotas of memory and cores, by which cards are divided."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from criproxy.devices.classes.vgpu_profiles import CardChoice, Enforcement, Profile, WhenMissing
from criproxy.devices.options.option_types import ClassName, Text

MAX_COUNT = 1000
MAX_PROFILE_NAME = 18
"""The maximum length of a name: with a UUID and a number, an id then has at most 63 characters."""

Percent = Annotated[int, Field(ge=1, le=100)]
ProfileName = Annotated[
    str,
    Text(
        f"[a-z]([a-z0-9.-]{{0,{MAX_PROFILE_NAME - 2}}}[a-z0-9])?",
        f"a name of at most {MAX_PROFILE_NAME} characters of a-z, 0-9, '-' and '.' that begins with a letter",
    ),
]
MemoryQuota = Annotated[
    str,
    Text(r"[1-9][0-9]{0,8}(Mi|Gi)|[1-9][0-9]?%|100%", "an amount such as 8192Mi or 8Gi, or a share such as 50%", "Mi"),
]
NeededEnvName = Annotated[str, Text("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")]
ShareOfCards = Annotated[str, Text(r"[1-9][0-9]?%|100%", "a share such as 50%", "%")]


def _number_or_auto(value: object) -> object:
    if value == "auto" or (type(value) is int and 1 <= value <= MAX_COUNT):
        return value
    raise ValueError(f"must be auto, or the number of vGPUs of each card, from 1 to {MAX_COUNT}, not {value!r:.60}")


Count = Annotated[
    Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_COUNT)],
    BeforeValidator(_number_or_auto),
]


class SelectOptions(BaseModel):
    """Which cards of the class a profile cuts: those that meet every condition that is given."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    models: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Product names, such as Tesla-T4; * and ? are wildcards, and a space matches '-'."""
    indexes: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Card indexes, as numbered by the driver."""
    ids: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Card IDs, as the kubelet knows them; for NVIDIA cards, these are UUIDs."""
    share: ShareOfCards = "100%"
    """What share of the cards that meet the other conditions is divided, starting with the first card; the number is
    rounded down. With enforce: [mig], this is a share of the GPUs with MIG, and all suitable MIG devices on these GPUs
    are used."""
    mig: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Names of MIG profiles, such as 1g.10gb; * and ? are wildcards. Only MIG devices with these profiles are used.
    Allowed only with enforce: [mig]. Compute instances that share a GPU instance (1c.3g.20gb) cannot be vGPUs."""

    def choice(self) -> CardChoice:
        """Convert to plain values."""
        return CardChoice(
            models=self.models,
            indexes=self.indexes,
            ids=self.ids,
            share_percent=int(self.share.removesuffix("%")),
            mig=self.mig,
        )


class ProfileOptions(BaseModel):
    """A quota of a card's memory and cores. Its vGPUs are offered as the resource criproxy.io/NAME."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    name: ProfileName
    """The name of the resource, without the prefix criproxy.io/."""
    kind: ClassName = Field(alias="class")
    """The name of an advertised class."""
    memory: MemoryQuota | None = None
    """How much of the card's memory a container may use, such as 8192Mi, 8Gi or 50%; unlimited by default."""
    cores: Percent | None = None
    """What share of the card's compute a container may use, in percent; by default compute is not limited."""
    count: Count = "auto"
    """How many vGPUs each card has: a number, or as many as both quotas allow (auto). With enforce: [mig], only auto is
    possible: each MIG device is one vGPU."""
    select: SelectOptions = SelectOptions()
    """Which cards are divided; by default, all cards of the class."""
    enforce: tuple[Enforcement, ...] = Field(default=("watch",), min_length=1)
    """One or more methods that enforce the quota: criproxy, which monitors usage and acts after the quota is exceeded
    (watch); NVIDIA's MPS (mps); the library HAMi-core (hami-core); the driver's own limit (nvidia-memory-limit); or
    existing MIG devices, each of which is one vGPU (mig)."""
    env: Mapping[NeededEnvName, str] = {}
    """Variables that containers get, such as the name of a vendor's template. {memory_mib}, {cores_percent} and {card}
    are replaced with the vGPU's values."""
    if_missing: WhenMissing = "refuse"
    """What happens if the node lacks something that one of these methods needs: criproxy uses the remaining methods
    (next), or refuses the container (refuse)."""

    def profile(self) -> Profile:
        """Convert to plain values."""
        memory = self.memory or "0Mi"
        amount = int(memory.rstrip("%GMi"))
        return Profile(
            name=self.name,
            kind=self.kind,
            memory_mib=0 if memory.endswith("%") else amount * (1024 if memory.endswith("Gi") else 1),
            memory_percent=amount if memory.endswith("%") else 0,
            cores_percent=self.cores or 0,
            count=None if self.count == "auto" else self.count,
            select=self.select.choice(),
            enforce=self.enforce,
            env=tuple(self.env.items()),
            when_missing=self.if_missing,
        )
