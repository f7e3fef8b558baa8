"""The policy file of an installation: whether the node can use it, and how it differs from the kubelet."""

from collections.abc import Iterator
from pathlib import Path

from criproxy.config.files import Choice
from criproxy.config.load import judge, load
from criproxy.config.settings import Settings
from criproxy.errors import ConfigError, CriproxyError, UsageError
from criproxy.host.machine import discover, host_reader
from criproxy.install import paths
from criproxy.install.kubelet_cpus import differences
from criproxy.install.plan import Plan, option


def policy_text(file: Path, host_root: Path) -> str:
    """Return the text of a policy file that this machine can use.

    Raises:
        UsageError: it is a directory.
        ConfigError: it cannot be read, or has mistakes.
        CriproxyError: the machine cannot be read, and the file has no mistakes by itself.
    """
    if file.is_dir():
        raise UsageError(f"--policy: {file} is a directory; name the policy file of this node")
    try:
        topology = discover(host_root)
    except CriproxyError:
        load(file, "")  # first, what is wrong with the file that the user names
        raise
    load(file, "", topology=topology, host=host_reader(host_root))
    return file.read_text()


def wrong_policy(plan: Plan) -> list[str]:
    """Return what is wrong with the policy file of the node, if criproxy is to start with it."""
    host = plan.host
    is_kept = plan.request.policy is None and host.read(paths.POLICY) is not None
    if plan.is_active or not is_kept or option(host, "config") not in (None, paths.POLICY):
        return []
    folder, _, name = paths.POLICY.rpartition("/")
    try:
        policy_text(host.path(folder) / name, host.root)
    except ConfigError as error:
        return str(error).splitlines()
    except CriproxyError:  # files of the machine are not below this root: the daemon will see them
        return []
    return []


def nri_notes(settings: Settings) -> Iterator[str]:
    """Yield what of a policy file has no effect, or less, if criproxy is a plugin of the runtime."""
    if settings.common.on_error == "refuse":
        yield (
            "onError: refuse does not hold with NRI while criproxy is down or too slow: containers start then, and get "
            "their place later"
        )
    if (devices := settings.common.devices) is None:
        return
    if "privileged" in devices.model_fields_set:
        yield f"devices.privileged: {devices.privileged} has no effect with NRI, which does not tell who is privileged"
    if devices.exempt.images:
        yield "devices.exempt.images has no effect with NRI, which does not tell the image of a container"
    if devices.on_no_evidence == "keep":
        yield (
            "devices.onNoEvidence: keep leaves an image that asks for all cards alone while the kubelet does not tell "
            "which it has allocated: NRI does not tell variables of the image from those of the container"
        )
    if devices.plugin is not None:
        yield (
            "devices.plugin: with NRI, 'kubectl describe' does not show the reasons of quotas and of unhealthy cards; "
            "'criproxy explain' does"
        )


def policy_notes(plan: Plan) -> list[str]:
    """Return how the policy with which criproxy is to run differs from the kubelet; nothing if that is unknown."""
    if plan.policy is None or option(plan.host, "config") not in (None, paths.POLICY):
        return []
    reader = host_reader(plan.host.root)
    try:
        topology = discover(plan.host.root)
    except CriproxyError:  # files of the machine are not below this root
        return []
    settings = judge(plan.policy, Choice(Path(paths.POLICY), ""), topology, reader).settings
    if settings is None or settings.common.policy == "none":
        return []
    unable = nri_notes(settings) if plan.request.nri else ()
    return [*differences(plan.kubelet, settings.options, topology, reader.cgroup), *unable]
