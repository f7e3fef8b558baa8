"""Which methods enforce the quotas of profiles on this node, as the log and the daemon are told."""

import asyncio
from dataclasses import replace

from criproxy.deviceplugin.configuration.configuration import Loaded
from criproxy.deviceplugin.usage.quota_methods import Methods
from criproxy.devices.classes.vgpu_profiles import Profile, WhenMissing
from criproxy.devices.options.quota_options import NVML
from criproxy.devices.plugin.enforcement import HAMI
from criproxy.devices.plugin.plan import PluginPlan
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


async def test_a_method_that_cannot_work() -> None:
    """The daemon learns of it and of its return at once; the log has it once if the profile does without it."""
    there, log, news = set[str](), Log(), asyncio.Queue[None]()
    methods = Methods(lambda path: path != HAMI.library or path in there, lambda: news.put_nowait(None), log, 0.01)
    methods.use(loaded("next"))
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
    assert log.lines == [(text, {"profile": "gpu-8g", "method": "hami-core", "reason": MISSING})]


async def test_a_profile_that_refuses() -> None:
    """Its pods are not admitted and say why, so the log need not."""
    log, news = Log(), asyncio.Queue[None]()
    methods = Methods(lambda path: path != HAMI.library, lambda: news.put_nowait(None), log)
    methods.use(loaded("refuse"))
    async with running(methods.run()):
        async with asyncio.timeout(PATIENT_S):
            await news.get()

    assert methods.told(REPORT).resources[0].not_enforced == {"hami-core": MISSING}
    assert log.lines == []
