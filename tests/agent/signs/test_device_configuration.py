"""The label of NVIDIA's config manager, and what is chosen by it, beside a daemon's side that keeps it on the node."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from criproxy.agent.changes import Changes
from criproxy.agent.kubernetes.client import CONFIG_MAPS, NODES, ApiClient
from criproxy.agent.kubernetes.watch import Watched
from criproxy.agent.node_view import NodeView
from criproxy.agent.signs.device_configuration import LABEL, DeviceConfiguration, choose
from criproxy.agent.troubles import Troubles
from criproxy.api.device_configuration import DeviceConfigurations
from criproxy.devices.plugin.named_configuration import FILE_NAME, from_json
from lab.apiserver.faults import Refuses
from lab.apiserver.server import ApiServer
from tests.agent.parts import running, until, until_said
from tests.agent.signs.world import NAME
from tests.agent.views import view_of
from tests.asking import serving
from tests.node.world import RecordingLog

A100 = "version: v1\nflags: {migStrategy: mixed}\n"
T4 = "version: v1\nflags: {migStrategy: none}\n"
BAD = "version: v2\n"


@pytest.mark.parametrize(
    ("label", "names", "default", "expected"),
    [
        pytest.param("a100", "a100 t4 default", "t4", "a100", id="label"),
        pytest.param("", "a100 t4 default", "t4", "t4", id="option"),
        pytest.param("", "a100 t4 default", "", "default", id="named"),
        pytest.param("", "a100", "", "a100", id="single"),
        pytest.param("", "a100 t4", "", "", id="none-of-two"),
        pytest.param("", "", "", "", id="none-there"),
        pytest.param("h100", "a100 default", "", None, id="unknown-label"),
        pytest.param("", "a100 default", "h100", None, id="unknown-option"),
    ],
)
def test_the_order(label: str, names: str, default: str, expected: str | None) -> None:
    """NVIDIA's, except that nothing unknown ends a process, and that the node's own file stands for an empty one."""
    found, problem = choose(label, dict.fromkeys(names.split(), ""), default)
    assert found == expected
    assert bool(problem) is (expected is None)


def test_an_unknown_name_is_explained() -> None:
    """With what there is."""
    _, problem = choose("h100", {"t4": "", "a100": ""})
    assert (
        problem
        == "the node label nvidia.com/device-plugin.config names the configuration 'h100', but there are only a100, t4"
    )


class Cluster(Changes):
    """A Node and a ConfigMap in a small API server, and the daemon's side of the command in *directory*."""

    def __init__(self, server: ApiServer, client: ApiClient, directory: Path) -> None:
        super().__init__()
        self.server, self.client, self.directory = server, client, directory
        self.troubles = Troubles(RecordingLog())
        self.view = NodeView(str(directory / "control.sock"), NAME, self.troubles)
        self.told: list[tuple[str, str, bool]] = []

    def node(self, label: str = "") -> None:
        """Make the Node."""
        labels = {LABEL: label} if label else {}
        self.server.objects.create(NODES, {"metadata": {"name": NAME, "labels": labels}})

    def relabel(self, label: str) -> None:
        """Change the label of the Node; empty: take it away."""
        labels = {LABEL: label} if label else {}
        self.server.objects.update(
            NODES, NAME, "", lambda node: {**node, "metadata": {**node["metadata"], "labels": labels}}
        )

    def texts(self, **data: str) -> None:
        """Make or change the ConfigMap."""
        obj = {"metadata": {"name": "gpus", "namespace": "criproxy"}, "data": data}
        if self.server.objects.all(CONFIG_MAPS):
            self.server.objects.update(CONFIG_MAPS, "gpus", "criproxy", lambda old: {**old, "data": data})
        else:
            self.server.objects.create(CONFIG_MAPS, obj)

    def tell(self, reason: str, message: str, is_warning: bool) -> None:
        """Take an Event."""
        self.told.append((reason, message, is_warning))
        self.notify()

    @property
    def chosen(self) -> str:
        """The text that the device plugin gets; empty: that of the node's own file."""
        file = self.directory / FILE_NAME
        return from_json(file.read_bytes()).text if file.exists() else ""

    async def until(self, text: str) -> None:
        """Return when the device plugin gets this text."""
        await until(self, lambda: self.chosen == text)

    @property
    def said(self) -> list[str]:
        """What the agent says on the node."""
        return self.troubles.sentences(wrong=False)

    @asynccontextmanager
    async def agent(self, default: str = "", instance: str = "first") -> AsyncIterator[DeviceConfigurations]:
        """Run the agent's part beside the daemon's; the daemon knows only what is on its disk."""
        daemon = DeviceConfigurations(self.directory, RecordingLog())
        self.view.last, self.view.problem = view_of(instance=instance), ""

        async def command(arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
            self.commands.append(arguments)
            return await daemon.command(arguments)

        self.commands: list[Mapping[str, Any]] = []
        async with serving(self.directory, {"device-configuration": command}):
            node = Watched(self.client, NODES, name=NAME, metadata_only=True)
            config_map = Watched(self.client, CONFIG_MAPS, name="gpus", namespace="criproxy")
            part = DeviceConfiguration(
                self.view, node, config_map, "criproxy/gpus", self.troubles, self.tell, default, gap_s=0.001
            )
            async with running(node.run(), config_map.run(), part.run()):
                yield daemon


@pytest.fixture
def cluster(apiserver: ApiServer, api_client: ApiClient, tmp_path: Path) -> Cluster:
    """A cluster without a Node."""
    return Cluster(apiserver, api_client, tmp_path)


async def test_label_and_text_choose_at_run_time(cluster: Cluster) -> None:
    """Another label, another text under the same name, which NVIDIA's does not notice, and no label."""
    cluster.node("a100")
    cluster.texts(a100=A100, default=T4)
    async with cluster.agent():
        await cluster.until(A100)
        cluster.texts(a100=A100 + "# changed\n", default=T4)
        await cluster.until(A100 + "# changed\n")
        cluster.relabel("default")
        await cluster.until(T4)
        cluster.relabel("a100")
        await cluster.until(A100 + "# changed\n")
        cluster.relabel("")
        await cluster.until(T4)
        cluster.texts(a100=A100, t4=T4)
        await cluster.until("")
    assert {reason for reason, _, _ in cluster.told} == {"DeviceConfigurationChosen"}
    assert cluster.told[0][1].startswith("configuration a100 of the ConfigMap criproxy/gpus, hash ")
    assert cluster.told[-1][1] == "the node's own file counts for the cards"


async def test_an_unknown_name_keeps_the_old_one_and_says_so(cluster: Cluster) -> None:
    """In `status` and as an Event, once."""
    cluster.node("a100")
    cluster.texts(a100=A100)
    async with cluster.agent():
        await cluster.until(A100)
        cluster.relabel("h100")
        await until_said(cluster.troubles, "names the configuration 'h100', but there are only a100")
        assert "the configuration a100 stays" in cluster.said[0]
        cluster.texts(a100=A100, h100=T4)
        await cluster.until(T4)
        await until_said(cluster.troubles)
    assert [reason for reason, _, _ in cluster.told].count("DeviceConfigurationRefused") == 1


async def test_a_bad_text_keeps_the_old_one_and_is_sent_once(cluster: Cluster) -> None:
    """The daemon's words are said; the next text is tried again."""
    cluster.node("a100")
    cluster.texts(a100=A100)
    async with cluster.agent():
        await cluster.until(A100)
        cluster.texts(a100=BAD)
        await until_said(cluster.troubles, "unknown version: v2")
        before = len(cluster.commands)
        cluster.view.notify()
        cluster.texts(a100=BAD, more="")
        cluster.texts(a100=BAD, more="", again="")
        await until_said(cluster.troubles, "unknown version: v2")
        assert cluster.chosen == A100
        cluster.texts(a100=T4)
        await cluster.until(T4)
        assert len(cluster.commands) == before + 1
        await until_said(cluster.troubles)


async def test_what_is_gone_changes_nothing(cluster: Cluster) -> None:
    """A ConfigMap that is deleted; a wiped API server; a Node that is made anew, without its label."""
    cluster.node("a100")
    cluster.texts(a100=A100, default=T4)
    async with cluster.agent():
        await cluster.until(A100)
        cluster.server.objects.delete(CONFIG_MAPS, "gpus", "criproxy")
        await until_said(cluster.troubles, "there is no ConfigMap criproxy/gpus")
        cluster.server.objects.wipe()
        cluster.node()
        cluster.texts(a100=A100, default=T4)
        await until_said(cluster.troubles, "the Node was made anew, without the label")
        assert cluster.chosen == A100
        cluster.relabel("default")
        await cluster.until(T4)
        cluster.relabel("")  # this Node has had a label: now it has none, as NVIDIA's takes it
        await until_said(cluster.troubles)
    assert cluster.chosen == T4


async def test_the_default_of_an_option(cluster: Cluster) -> None:
    """For nodes without a label."""
    cluster.node()
    cluster.texts(a100=A100, t4=T4)
    async with cluster.agent(default="t4"):
        await cluster.until(T4)


async def test_restarts(cluster: Cluster) -> None:
    """Of both: what is chosen already is not sent again, and what changed meanwhile is."""
    cluster.node("a100")
    cluster.texts(a100=A100)
    async with cluster.agent():
        await cluster.until(A100)
    told = len(cluster.told)
    async with cluster.agent(instance="second"):
        cluster.texts(a100=A100, more="version: v1\n")
        await cluster.server.until(lambda: cluster.server.requests["watch", "configmaps"] >= 2)
        cluster.relabel("more")
        await cluster.until("version: v1\n")
        assert [each.get("name") for each in cluster.commands] == [None, "more"]
    assert len(cluster.told) == told + 1


async def test_what_is_forbidden_is_said(cluster: Cluster) -> None:
    """Without the right to read the ConfigMap nothing changes."""
    cluster.server.faults.refuses["list", "configmaps"] = Refuses(403, "configmaps is forbidden", "Forbidden")
    cluster.node("a100")
    async with cluster.agent():
        await until_said(cluster.troubles, "configmaps is forbidden")
        cluster.server.faults.refuses.clear()
        cluster.texts(a100=A100)
        await cluster.until(A100)
        await until_said(cluster.troubles)
