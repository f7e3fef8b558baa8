"""The configuration of this node as the controller wants it: a policy, and what its file says beside that."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from criproxy.control.settings import Adopt, Log, OnError, Promote, Settings
from criproxy.discovery.named import host_reader
from criproxy.engine.guard import Guarded
from criproxy.model.topology import Topology
from criproxy.policy.api import Policy
from criproxy.policy.none import NonePolicy
from criproxy.policy.options import Options

DEFAULT_CONFIG = Path("/etc/criproxy/policy.yaml")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What one policy file says."""

    policy: Policy
    settings: Settings
    source: Path | None
    """None: there is no file, and so nobody is placed."""
    misfits: tuple[tuple[str, str], ...] = ()
    """Options that ask for what the machine has not, and why that is so."""

    def tell(self, log: Log) -> None:
        """Log what is in force now, and loudly what does not fit the machine."""
        if self.source is None:
            log.warning("no policy file: no container is placed", file=str(DEFAULT_CONFIG), policy="none")
            return
        for option, text in self.misfits:
            log.error("policy file does not fit this machine", file=str(self.source), option=option, reason=text)
        log.info("policy loaded", policy=self.settings.policy_name, file=str(self.source))


def load_configuration(
    config: Path | None, topology: Topology, base: Settings, *, required: bool = False
) -> Configuration:
    """Read the policy file of this node; may block, and imports what only files need.

    A file that asks for what *topology* does not have is used all the same: a node that lost a CPU over a reboot must
    come up. `criproxy check` refuses it.

    Args:
        config: a file or directory; None: `DEFAULT_CONFIG`, which may be absent.
        topology: the machine.
        base: settings that no file has a say in.
        required: the file may not be absent: there was one.

    Raises:
        ConfigError: it is wrong, or absent though it may not be.
    """
    if config is None and not required and not os.path.lexists(DEFAULT_CONFIG):
        none = replace(base, policy_name="none", configuration="", apply_all=False, devices=None)
        return Configuration(NonePolicy(Options()), none, None)
    from criproxy.config.load import load

    file = load(config or DEFAULT_CONFIG, os.uname().nodename, host=host_reader(base.host_root))
    common = file.common
    policy = file.build_policy()
    if file.external:
        policy = Guarded(policy, common.policy, file.options)
    settings = replace(
        base,
        policy_name=common.policy,
        on_error=OnError(common.on_error),
        adopt=Adopt(common.adopt),
        promote=Promote(common.promote or ""),
        apply_all=common.apply == "all",
        devices=common.devices.rules() if common.devices is not None else None,
        configuration=file.digest(),
    )
    misfits = tuple((".".join(map(str, path)), text) for path, text in file.options.misfits(topology))
    return Configuration(policy, settings, file.source, misfits)
