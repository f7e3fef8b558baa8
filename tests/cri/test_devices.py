"""What CRI's create says about devices is read as it stands, and written without touching anything else."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri import api_pb2 as api
from criproxy.cri import devices
from criproxy.cri.devices import hide_all
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.device_request import DeviceNode, DeviceRequest, EnvVar, MountPoint, Requester, Response
from criproxy.devices.mps_client import PIPE_DIRECTORY
from criproxy.devices.plugin.enforcement import Enforced, with_enforcement
from tests.cri.test_rewrite import field

NEWER = field(900, b"newer")
"""A field that we do not know."""


def message(*parts: tuple[int, bytes]) -> api.CreateContainerRequest:
    """A create whose configuration has these fields."""
    config = b"".join(field(number, payload) for number, payload in parts)
    return api.CreateContainerRequest.FromString(field(2, config))


KIND = DeviceClass(name="card", resources=(), visible_env="A", strip_env=("B", "C*"))


def read(request: api.CreateContainerRequest) -> devices.DeviceEntries:
    """What the rules of a class with some variables read."""
    return devices.read(request, asyncio.run(devices.managed_variables(request, (KIND,))))


def env(name: str, value: bytes) -> tuple[int, bytes]:
    """A variable with a field that we do not know."""
    return 6, field(1, name.encode()) + field(2, value) + NEWER


def test_everything_is_read() -> None:
    """Variables as bytes, devices, mounts, and CDI names of the field and of annotations, each once."""
    request = api.CreateContainerRequest()
    config = request.config
    config.envs.add(key="A", value=b"\xff")
    config.devices.add(container_path="/dev/x", host_path="/dev/y", permissions="rw")
    config.mounts.add(container_path="/data", host_path="/srv")
    config.CDI_devices.add(name="nvidia.com/gpu=0")
    config.annotations["cdi.k8s.io/nvidia"] = "nvidia.com/gpu=0, nvidia.com/gpu=1"
    config.annotations["other"] = "nvidia.com/gpu=2"

    assert read(request).asked == DeviceRequest(
        envs=(EnvVar("A", b"\xff"),),
        devices=(DeviceNode("/dev/x", "/dev/y", "rw"),),
        mounts=(MountPoint("/data", "/srv"),),
        cdi=("nvidia.com/gpu=0", "nvidia.com/gpu=1"),
        annotations=dict(config.annotations),
    )


def test_a_pods_own_annotations_are_no_evidence() -> None:
    """Those of the sandbox are user input, and not read."""
    request = api.CreateContainerRequest()
    request.sandbox_config.annotations["cdi.k8s.io/nvidia"] = "nvidia.com/gpu=0"
    request.sandbox_config.annotations["devices.criproxy.io/nvidia.com_gpu"] = "GPU-a"

    assert read(request).asked == DeviceRequest()


def test_who_it_is() -> None:
    """Namespace, image by both names, and whether it is privileged."""
    request = api.CreateContainerRequest()
    request.sandbox_config.metadata.namespace = "team"
    request.config.image.image, request.config.image.user_specified_image = "sha256:1", "registry/app:2"
    request.config.linux.security_context.privileged = True

    assert devices.identity(request, "kata") == Requester(
        namespace="team", images=("sha256:1", "registry/app:2"), privileged=True, runtime="kata"
    )
    assert devices.identity(api.CreateContainerRequest()) == Requester()


VARIABLES = st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from([b"1", b"2"])), max_size=6)


@given(VARIABLES, st.lists(st.booleans(), min_size=6, max_size=6), VARIABLES)
def test_writing_leaves_the_rest_as_it_was(
    before: list[tuple[str, bytes]], stays: list[bool], added: list[tuple[str, bytes]]
) -> None:
    """Whatever goes and comes, the message says what it shall, and who stays keeps fields that we do not know."""
    other = (env("other", b"1"), env("other", b"2"))
    mixed = (part for each in before for part in (other[0], env(*each), other[1]))
    request = message(*mixed, (7, field(1, b"/m") + NEWER), (900, b"newer"))
    kept = [EnvVar(*each) for each, stay in zip(before, stays, strict=False) if stay]
    wanted = DeviceRequest(envs=(*kept, *(EnvVar(*each) for each in added)), mounts=(MountPoint("/m", ""),))

    read(request).write(wanted)

    assert read(request).asked == wanted
    assert [each.value for each in request.config.envs if each.key == "other"] == [b"1", b"2"] * len(before)
    whole = request.SerializeToString()
    assert whole.count(NEWER) >= len(kept) + 2 * len(before) + 2
    assert field(900, b"newer") in whole


def test_writing_what_was_read_changes_no_byte() -> None:
    """A create without a change is the same message."""
    request = message(env("A", b"1"), env("B", b"2"), (8, field(1, b"/dev/x") + NEWER), (900, b"newer"))
    before = request.SerializeToString()

    read(request).write(read(request).asked)

    assert request.SerializeToString() == before


def test_only_variables_that_rules_manage_are_read() -> None:
    """Those of classes, of MPS and of the quota that the plugin has written beside them; never a million others."""
    found = Enforced(envs={"LIMIT": "1"}, strip=("HAMI_*", "LIMIT"))
    response = with_enforcement(Response(), found)
    request = api.CreateContainerRequest()
    request.config.annotations.update(response.annotations)
    managed = ["A", "B", "C1", "LIMIT", "HAMI_X", PIPE_DIRECTORY]
    for name in ("X", *managed, "OTHER", "HAM"):
        request.config.envs.add(key=name)
    before = request.SerializeToString()

    assert [each.name for each in read(request).asked.envs] == managed
    assert request.SerializeToString() == before


@pytest.mark.parametrize("more", [0, 1])
async def test_other_calls_get_their_turn_between_very_many_variables(more: int) -> None:
    """A usual create is read in one go."""
    request = api.CreateContainerRequest()
    request.config.envs.extend([api.KeyValue(key="X")] * (devices.AT_ONCE - 1 + more))
    request.config.envs.add(key="A")
    others = list[int]()
    asyncio.get_running_loop().call_soon(others.append, 1)

    assert await devices.managed_variables(request, (KIND,)) == [devices.AT_ONCE - 1 + more]

    assert len(others) == more


# ---------------------------------------------------------------- where the device rules failed


def test_the_others_stay_as_they_were() -> None:
    """In their order, with fields that we do not know."""
    entry = field(6, field(1, b"A") + field(900, b"newer"))
    card = field(6, field(1, b"NVIDIA_VISIBLE_DEVICES") + field(2, b"all"))
    void = field(6, field(1, b"NVIDIA_VISIBLE_DEVICES") + field(2, b"void"))
    request = api.CreateContainerRequest.FromString(field(2, (entry + card) * 1001 + entry))

    hide_all(request, DeviceRules(classes=(NVIDIA,)))

    assert request.SerializeToString() == field(2, entry * 1002 + void)
