"""Which methods enforce the quotas of profiles on this node, as the log and the daemon are told."""

import asyncio
from dataclasses import replace

import pytest

from criproxy.deviceplugin.configuration.configuration import Loaded
from criproxy.deviceplugin.usage.quota_methods import Methods, missing_methods, notes
from criproxy.devices.classes.vgpu_profiles import Enforcement, Profile, WhenMissing
from criproxy.devices.options.quota_options import NVML
from criproxy.devices.plugin.enforcement import CGROUP_V2, HAMI, EnforcementBuilder
from criproxy.devices.plugin.plan import PluginPlan, UsageSource
from criproxy.devices.plugin.published import Advertised, Published
from tests.deviceplugin.news import PATIENT_S, running
from tests.deviceplugin.node import Log

RESOURCE = "criproxy.io/gpu-8g"
REPORT = Published(
    resources=(
        Advertised(name=RESOURCE, device_class="nvidia", profile="gpu-8g"),
        Advertised(name="nvidia.com/gpu", device_class="nvidia"),
    )
)

MISSING = f"hami-core needs {HAMI.library}, which does not exist on this node"


def loaded(when_missing: WhenMissing) -> Loaded:
    """What a policy file with one profile says."""
    profile = Profile(name="gpu-8g", kind="nvidia", memory_mib=8192, enforce=("hami-core", "watch"))
    plan = PluginPlan(advertised=(), profiles=(replace(profile, when_missing=when_missing),), usage=(NVML,))
    return Loaded(plan=plan)


@pytest.mark.parametrize("when_missing", ["next", "refuse"])
async def test_a_method_that_cannot_work(when_missing: WhenMissing) -> None:
    """The daemon learns of it and of its return at once; the log has it once if the profile does without it.

    Where it does not, its pods are not admitted and say why.
    """
    there, log, news = set[str](), Log(), asyncio.Queue[None]()
    methods = Methods(lambda path: path != HAMI.library or path in there, lambda: news.put_nowait(None), log, 0.01)
    methods.use(loaded(when_missing))
    async with running(methods.run()):
        async with asyncio.timeout(PATIENT_S):
            await news.get()
            without, other = methods.told(REPORT).resources
            there.add(HAMI.library)
            await news.get()
            complete, _ = methods.told(REPORT).resources

    assert (without.enforce, without.not_enforced) == (("hami-core", "watch"), {"hami-core": MISSING})
    assert (complete.enforce, complete.not_enforced) == (("hami-core", "watch"), {})
    assert (other.enforce, other.not_enforced) == ((), {})
    text = "a profile continues without one of its enforcement methods (ifMissing: next)"
    line = (text, {"profile": "gpu-8g", "method": "hami-core", "reason": MISSING})
    assert log.lines == ([line] if when_missing == "next" else [])


PROFILE = Profile(name="gpu-8g", kind="nvidia", memory_mib=8192, cores_percent=25)
PIPE = "/run/nvidia/mps/criproxy.io/gpu-8g/pipe"


def missing(plan: PluginPlan, *paths: str) -> dict[str, str]:
    """Return what does not work of the plan's only profile where these paths do not exist."""
    (profile,) = plan.profiles
    return missing_methods(plan, profile, EnforcementBuilder(resource=profile.resource), lambda path: path not in paths)


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
    assert missing(plan, path) == {method: f"{method} needs {path}, which does not exist on this node"}
    assert missing(plan) == {}


def test_what_criproxy_makes_itself_is_not_missing() -> None:
    """The folders of HAMi-core appear when a container gets a vGPU."""
    assert missing(plan_of("hami-core"), HAMI.lock, f"{HAMI.containers}/gpu-8g") == {}


def test_watching_needs_a_source_of_usage() -> None:
    """Without an entry for the class nothing is watched."""
    text = "watch needs an entry for the class nvidia in devices.plugin.usage"

    assert missing(plan_of("watch", usage=())) == {"watch": text}


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
