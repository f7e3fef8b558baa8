"""The content of the file of a pod with cards: the grants, use and incidents of its containers."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from criproxy.devices.usage.rows import CardRow
from criproxy.model.text.bounded import bounded
from criproxy.model.text.notices import Values, timestamp

_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})")
"""A UUID, or the hash of a static pod: no character has a meaning in a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFile:
    """The file of one pod."""

    lasting: Values
    """The part that does not change with each report."""
    uses: tuple[tuple[int | None, float | None], ...]
    """The use, by container and card: MiB of memory and percent of computing units; None if unknown."""

    def text(self, at_s: float) -> str:
        """Return the text of the file when it is written at *at_s*, in seconds since the epoch."""
        pairs = zip(self.lasting["containers"], self.uses, strict=True)
        containers = [{**each, "used_mib": used_mib, "sm_util": cores} for each, (used_mib, cores) in pairs]
        values = {**self.lasting, "containers": containers, "updated": timestamp(at_s)}
        return json.dumps(values, indent=1) + "\n"


def is_uid(text: str) -> bool:
    """Whether *text* is safe as the name of a file."""
    return _UID.fullmatch(text) is not None


def pod_files(rows: Iterable[CardRow]) -> dict[str, PodFile]:
    """Return, by UID, the files of the pods in *rows*; pods with an invalid UID have none."""
    found: dict[str, list[CardRow]] = {}
    for row in rows:
        if is_uid(row.grant.pod_uid):
            found.setdefault(row.grant.pod_uid, []).append(row)
    return {uid: _file(uid, own) for uid, own in found.items()}


def _file(uid: str, own: list[CardRow]) -> PodFile:
    own = sorted(own, key=lambda row: (row.container.name, row.container.attempt, row.container.key, row.card))
    last = own[-1].container
    return PodFile(
        lasting=bounded(
            {
                "pod": last.pod_name,
                "namespace": last.namespace,
                "uid": uid,
                "containers": [_container(row) for row in own],
            }
        ),
        uses=tuple((row.use.memory_mib, row.use.cores_percent) if row.use else (None, None) for row in own),
    )


def _container(row: CardRow) -> Values:
    grant, over = row.grant, row.over_since_s
    return {
        "name": row.container.name,
        "id": row.container.key if row.container.has_id else "",
        "state": row.container.state.value,
        "class": grant.kind,
        "device": row.card,
        "resource": grant.resource,
        "ids": list(grant.ids),
        "profile": grant.quota.profile if grant.quota else "",
        "memory_limit_mib": row.memory_limit_mib,
        "cores": row.cores_limit_percent,
        "over_since": timestamp(min(over.values())) if over else None,
        "over": sorted(quantity.value for quantity in over),
        "actions": row.actions,
    }
