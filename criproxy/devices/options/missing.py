"""What the node lacks of what its vGPUs need: methods that cannot enforce a quota, and programs that report use."""

from collections.abc import Callable, Iterator, Mapping
from posixpath import join

from criproxy.devices.classes.vgpu_profiles import Enforcement, Profile, Vgpu
from criproxy.devices.options.usage_options import unwatched
from criproxy.devices.plugin.enforcement import EnforcementBuilder
from criproxy.devices.plugin.plan import PluginPlan

Exists = Callable[[str], bool]
"""Whether a path is on the host."""


def missing_methods(plan: PluginPlan, profile: Profile, makers: EnforcementBuilder, exists: Exists) -> dict[str, str]:
    """By method of a profile that cannot work on this node, why: a sentence."""
    found: dict[str, str] = {}
    for method in profile.enforce:
        if missing := next((path for path in _needs(method, profile, makers) if not exists(path)), ""):
            found[method] = f"{method} needs {missing}, which does not exist on this node"
        elif method == "watch" and profile.kind in unwatched(plan):
            found[method] = f"watch needs an entry for the class {profile.kind} in devices.plugin.usage"
    return found


def _needs(method: Enforcement, profile: Profile, makers: EnforcementBuilder) -> Iterator[str]:
    """The files that the node must have, without those that criproxy makes for each vGPU."""
    vgpu = Vgpu(id=profile.name, card="", profile=profile.name, memory_mib=profile.memory_mib, cores_percent=0)
    made = {join(makers.hami.containers, vgpu.file_name), makers.hami.lock}
    return (path for path in makers.build(method, vgpu).needs if path not in made)


def notes(plan: PluginPlan, makers_of: Callable[[str], EnforcementBuilder], exists: Exists) -> Iterator[str]:
    """Sentences for people about all of it, before the device plugin runs: files may still come.

    Args:
        plan: what the device plugin is to do.
        makers_of: what knows the methods of a resource.
        exists: whether a path is on the host.
    """
    for profile in plan.profiles:
        refuses = profile.when_missing == "refuse"
        then = "its pods are not admitted" if refuses else "ifMissing: next continues without it"
        for method, reason in missing_methods(plan, profile, makers_of(profile.resource), exists).items():
            yield f"profile {profile.name}: {reason}" + ("" if method == "watch" else f": {then}")
    programs: Mapping[str, str] = {each.kind: each.command[0] for each in plan.usage if each.command}
    for kind, program in programs.items():
        if not exists(program):
            yield f"usage of the class {kind}: {program} does not exist on this node: its quotas are not checked"
