"""What the driver tells the checker; every line is in the file when the call returns."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Journal:
    """Containers are called POD/NAME."""

    path: Path

    def wants(self, title: str, owns: Sequence[int], *, unsettled: bool = False) -> None:
        """How many CPUs a container shall own, before it is asked for."""
        self._write(container=title, owns=list(owns), unsettled=unsettled)

    def knows(self, identifier: str, title: str) -> None:
        """Who an id is: a container, or a sandbox, which has no title."""
        self._write(id=identifier, container=title)

    def disturbs(self, container_id: str) -> None:
        """Somebody is about to write its cpuset."""
        self._write(disturbed=container_id)

    def away(self) -> None:
        """Criproxy is about to be away, or not asked any more."""
        self._write(away=True, at_s=time.time())

    def back(self) -> None:
        """It is there again, and asked."""
        self._write(away=False, at_s=time.time())

    def forgets(self) -> None:
        """While it is away, it loses its database."""
        self._write(forgets=True)

    def _write(self, **entry: object) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
