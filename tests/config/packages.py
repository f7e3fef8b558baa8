"""Policies of other packages, as an installation leaves them on the import path."""

import sys
from pathlib import Path

import pytest

POLICY = '''
from typing import Literal

from pydantic import BaseModel, Field

from criproxy.placement.policies import Entry
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.options.policy_options import CpuSetOption, Misfit, Options, missing_cpus


class Pool(BaseModel, extra="forbid"):
    """One pool."""

    cpus: CpuSetOption
    """Its CPUs."""
    size: int = Field(1, ge=1, le=8)
    """How many containers fit."""


class PoolOptions(Options):
    """Options of the policy."""

    color: str
    """Of the pools."""
    pools: list[Pool] = []
    """The pools, in order of preference."""
    by_name: dict[str, Pool] = {}
    kind: Literal["round", "square"] | None = None
    spread: bool = False
    share: float = 0.5
    title: str = ""
    mode: int | Literal["auto"] = "auto"

    def misfits(self, topology):
        yield from super().misfits(topology)
        for index, pool in enumerate(self.pools):
            yield from missing_cpus(("pools", index, "cpus"), pool.cpus, topology)


class Pools(NonePolicy):
    """Fixed pools.

    More of it.
    """


ENTRY = Entry(PoolOptions, Pools)
'''


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str = POLICY, *, points: str, name: str) -> None:
    """Make a package *name* 1.0 whose one module has *source*, with the entry points *points*, and import from it."""
    place = folder / name
    info = place / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[criproxy.policies]\n{points}\n")
    (place / f"{name}.py").write_text(source)
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(place)
