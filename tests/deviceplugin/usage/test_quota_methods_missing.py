"""What the node lacks of what its vGPUs need."""

from dataclasses import replace

import pytest

from criproxy.deviceplugin.usage.quota_methods import missing_methods, notes
from criproxy.devices.classes.vgpu_profiles import Enforcement, Profile
from criproxy.devices.options.quota_options import NVML
from criproxy.devices.plugin.enforcement import CGROUP_V2, HAMI, EnforcementBuilder
from criproxy.devices.plugin.plan import PluginPlan, UsageSource

PROFILE = Profile(name="gpu-8g", kind="nvidia", memory_mib=8192, cores_percent=25)
BUILDER = EnforcementBuilder(resource="criproxy.io/gpu-8g")
PIPE = "/run/nvidia/mps/criproxy.io/gpu-8g/pipe"
NO_ENTRY = "watch needs an entry for the class nvidia in devices.plugin.usage"


def plan_of(*enforce: Enforcement, usage: tuple[UsageSource, ...] = (NVML,)) -> PluginPlan:
    """A plan with one profile."""
    return PluginPlan(advertised=(), profiles=(replace(PROFILE, enforce=enforce),), usage=usage)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("hami-core", HAMI.library, id="library"),
        pytest.param("hami-core", HAMI.preload, id="preload"),
        pytest.param("mps", PIPE, id="mps"),
        pytest.param("nvidia-memory-limit", CGROUP_V2, id="cgroup-v1"),
    ],
)
def test_a_method_without_one_of_its_files(method: Enforcement, path: str) -> None:
    """It is named with the file; the others work."""
    plan = plan_of(method, "watch")
    (profile,) = plan.profiles

    found = missing_methods(plan, profile, BUILDER, lambda each: each != path)

    assert found == {method: f"{method} needs {path}, which does not exist on this node"}
    assert missing_methods(plan, profile, BUILDER, lambda _: True) == {}


def test_what_criproxy_makes_itself_is_not_missing() -> None:
    """The folders of HAMi-core appear when a container gets a vGPU."""
    plan = plan_of("hami-core")
    made = [HAMI.lock, f"{HAMI.containers}/gpu-8g"]

    assert missing_methods(plan, plan.profiles[0], BUILDER, lambda path: path not in made) == {}


def test_watching_needs_a_source_of_usage() -> None:
    """Without an entry for the class nothing is watched."""
    plan = plan_of("watch", usage=())

    assert missing_methods(plan, plan.profiles[0], BUILDER, lambda _: True) == {"watch": NO_ENTRY}


def test_all_of_it_for_people() -> None:
    """With what follows from it; a program that reports use is named, too."""
    program = UsageSource(kind="nvidia", source="command", command=("/bin/gpu-usage", "--json"))
    plan = plan_of("hami-core", "mps", usage=(program,))
    (profile,) = plan.profiles
    both = replace(plan, profiles=(profile, replace(profile, name="half", enforce=("mps",), when_missing="next")))

    def lacks(path: str) -> bool:
        return path not in (HAMI.library, PIPE, PIPE.replace("gpu-8g", "half"), "/bin/gpu-usage")

    assert list(notes(both, lambda resource: EnforcementBuilder(resource=resource), lacks)) == [
        f"profile gpu-8g: hami-core needs {HAMI.library}, which does not exist on this node: its pods are not admitted",
        f"profile gpu-8g: mps needs {PIPE}, which does not exist on this node: its pods are not admitted",
        (
            "profile half: mps needs /run/nvidia/mps/criproxy.io/half/pipe, which does not exist on this node: "
            "ifMissing: next continues without it"
        ),
        "usage of the class nvidia: /bin/gpu-usage does not exist on this node: its quotas are not checked",
    ]
