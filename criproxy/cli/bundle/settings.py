"""What a bundle is made of: the paths on the node. The processes that collect its parts get this as an argument."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Paths are absolute: the processes run in another directory."""

    control_socket: str
    state_dir: str
    host_root: str = "/"
    config: str = ""
    """The policy file or directory; empty: that of the installed unit."""
    runtime_endpoint: str = ""
    """The runtime's socket; empty: that of the installed unit."""
    http: tuple[str, ...] = ()
    """The addresses of metrics; empty: those of the installed units."""
    with_state: bool = False

    @classmethod
    def read(cls, text: str) -> "Settings":
        """Read what `as_argument` has written."""
        values = json.loads(text)
        return cls(**{**values, "http": tuple(values["http"])})

    def as_argument(self) -> str:
        """Return the settings as one argument of a command line."""
        return json.dumps(asdict(self))

    def path(self, name: str) -> Path:
        """Return where the node's path *name* is for this process."""
        return Path(self.host_root) / name.lstrip("/")
