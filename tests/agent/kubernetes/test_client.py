"""The verbs do what the API server's documentation says, and errors say what was refused and why."""

import json

import pytest

from criproxy.agent.kubernetes.client import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODE_PLACEMENTS,
    NODE_POLICIES,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PODS,
    ApiClient,
    Resource,
)
from criproxy.agent.kubernetes.request import ApiError, Object, Unreachable
from lab.apiserver.server import ApiServer

PATHS = [
    pytest.param(NODES, "", "n1", "status", "/api/v1/nodes/n1/status", id="a node's status"),
    pytest.param(PODS, "shop", "", "", "/api/v1/namespaces/shop/pods", id="all of a namespace"),
    pytest.param(EVENTS, "", "", "", "/api/v1/events", id="all of all namespaces"),
    pytest.param(LEASES, "a", "b", "", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", id="of a group"),
    pytest.param(NODE_POLICIES, "ignored", "p", "", "/apis/criproxy.io/v1alpha1/nodepolicies/p", id="of no namespace"),
]


def config_map(name: str, **data: str) -> Object:
    """A ConfigMap of the namespace ``shop``."""
    return {"metadata": {"name": name, "namespace": "shop"}, "data": data}


@pytest.mark.parametrize(("resource", "namespace", "name", "subresource", "path"), PATHS)
def test_paths(resource: Resource, namespace: str, name: str, subresource: str, path: str) -> None:
    """Of a core or other group, with or without namespace, name and subresource."""
    assert resource.path(namespace, name, subresource) == path


async def test_an_object_is_created_read_and_deleted(api_client: ApiClient) -> None:
    """One that is not there reads as None, and is deleted without an error."""
    assert await api_client.get(CONFIG_MAPS, "a", "shop") is None
    await api_client.create(CONFIG_MAPS, config_map("a", x="1"))
    found = await api_client.get(CONFIG_MAPS, "a", "shop")
    assert found is not None
    assert (found["kind"], found["data"]) == ("ConfigMap", {"x": "1"})
    await api_client.delete(CONFIG_MAPS, "a", "shop")
    await api_client.delete(CONFIG_MAPS, "a", "shop")
    assert await api_client.get(CONFIG_MAPS, "a", "shop") is None


@pytest.mark.parametrize(
    "name", ["#", "../nodes", "../../../api/v1/nodes", "..", "n1?watch=1", "n1/status", "", "x" * 9000]
)
async def test_what_is_no_name_leads_nowhere(apiserver: ApiServer, api_client: ApiClient, name: str) -> None:
    """A name may come from others, such as the holder of a Lease: it makes no agent read all Nodes."""
    apiserver.objects.create(NODES, {"metadata": {"name": "n1"}})
    assert await api_client.get(NODES, name) is None
    assert await api_client.get(NODES, "n1") is not None


async def test_a_second_object_of_a_name_is_refused(api_client: ApiClient) -> None:
    """With the status, which a caller tells apart."""
    await api_client.create(CONFIG_MAPS, config_map("a"))
    with pytest.raises(
        ApiError, match=r'create /api/v1/namespaces/shop/configmaps: 409 .*"a" already exists'
    ) as raised:
        await api_client.create(CONFIG_MAPS, config_map("a"))
    assert raised.value.status == 409


async def test_only_the_object_of_a_uid_is_deleted(api_client: ApiClient) -> None:
    """Another of the same name stays."""
    made = await api_client.create(CONFIG_MAPS, config_map("a"))
    with pytest.raises(ApiError) as raised:
        await api_client.delete(CONFIG_MAPS, "a", "shop", uid="another")
    assert raised.value.status == 409
    await api_client.delete(CONFIG_MAPS, "a", "shop", uid=made["metadata"]["uid"])


async def test_a_list_is_read_in_pages(apiserver: ApiServer, api_client: ApiClient) -> None:
    """All of it, with the version from which a watch goes on."""
    for number in range(7):
        apiserver.objects.create(CONFIG_MAPS, config_map(f"c{number}"))
    found, version = await api_client.list(CONFIG_MAPS, "shop", limit=3)
    assert [each["metadata"]["name"] for each in found] == [f"c{number}" for number in range(7)]
    assert version == str(apiserver.objects.version)
    assert apiserver.requests["list", "configmaps"] == 3


async def test_a_list_takes_selectors(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Of labels and of fields."""
    for name, node in (("a", "n1"), ("b", "n2"), ("c", "n1")):
        labels = {"tier": "web" if name == "a" else "db"}
        metadata = {"name": name, "namespace": "shop", "labels": labels}
        apiserver.objects.create(PODS, {"metadata": metadata, "spec": {"nodeName": node}})
    of_node, _ = await api_client.list(PODS, field_selector="spec.nodeName=n1")
    databases, _ = await api_client.list(PODS, "shop", label_selector="tier in (db, cache)")
    assert [each["metadata"]["name"] for each in of_node] == ["a", "c"]
    assert [each["metadata"]["name"] for each in databases] == ["b", "c"]


async def test_only_the_metadata_can_be_read(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Of one object, and of a list."""
    apiserver.objects.create(NODES, {"metadata": {"name": "n1", "labels": {"a": "b"}}, "status": {"images": []}})
    one = await api_client.get(NODES, "n1", metadata_only=True)
    found, _ = await api_client.list(NODES, metadata_only=True)
    for each in (one, *found):
        assert each is not None
        assert each["metadata"]["labels"] == {"a": "b"}
        assert "status" not in each


async def test_an_applied_field_of_another_manager_is_a_conflict(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Which names it; with force, the field changes its manager."""
    topology = {"metadata": {"name": "n1"}, "zones": [{"name": "node-0", "type": "Node"}]}
    apiserver.objects.apply(NODE_RESOURCE_TOPOLOGIES, topology, manager="topology-updater")
    mine = {"metadata": {"name": "n1"}, "zones": [{"name": "node-0", "type": "Node", "costs": []}]}
    with pytest.raises(ApiError, match=r'conflict with "topology-updater": \.zones') as raised:
        await api_client.apply(NODE_RESOURCE_TOPOLOGIES, mine, force=False)
    assert raised.value.status == 409
    taken = await api_client.apply(NODE_RESOURCE_TOPOLOGIES, mine)
    assert [each["manager"] for each in taken["metadata"]["managedFields"]] == ["criproxy-agent"]


async def test_what_is_applied_no_more_is_removed(api_client: ApiClient) -> None:
    """Unless another manager has it; the same again changes nothing."""
    metadata = {"name": "a", "namespace": "shop"}
    await api_client.apply(CONFIG_MAPS, {"metadata": metadata, "data": {"x": "1", "y": "2"}})
    await api_client.merge_patch(CONFIG_MAPS, "a", {"data": {"z": "3"}}, "shop")
    found = await api_client.apply(CONFIG_MAPS, {"metadata": metadata, "data": {"x": "1"}})
    assert found["data"] == {"x": "1", "z": "3"}
    again = await api_client.apply(CONFIG_MAPS, {"metadata": metadata, "data": {"x": "1"}})
    assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def test_a_status_is_written_apart(api_client: ApiClient) -> None:
    """A write of the object leaves the status, one of the status leaves the object."""
    await api_client.apply(NODE_PLACEMENTS, {"metadata": {"name": "n1"}, "status": {"phase": "Lost"}})
    status = {"metadata": {"name": "n1"}, "spec": {"lost": True}, "status": {"phase": "Applied"}}
    found = await api_client.apply(NODE_PLACEMENTS, status, subresource="status")
    assert (found["status"], found.get("spec")) == ({"phase": "Applied"}, None)
    found = await api_client.apply(NODE_PLACEMENTS, {"metadata": {"name": "n1", "labels": {"a": "b"}}})
    assert found["status"] == {"phase": "Applied"}


async def test_a_write_from_an_old_version_is_a_conflict(api_client: ApiClient) -> None:
    """A merge patch and a replacement that name the version which they saw."""
    metadata = {"name": "l", "namespace": "shop"}
    made = await api_client.create(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "n1"}})
    seen = {"resourceVersion": made["metadata"]["resourceVersion"]}
    body = {"metadata": seen, "spec": {"holderIdentity": "n2"}}
    await api_client.merge_patch(LEASES, "l", body, "shop")
    for attempt in (
        api_client.merge_patch(LEASES, "l", {"metadata": seen, "spec": {"holderIdentity": "n3"}}, "shop"),
        api_client.replace(LEASES, {"metadata": metadata | seen, "spec": {"holderIdentity": "n3"}}),
    ):
        with pytest.raises(ApiError) as raised:
            await attempt
        assert raised.value.status == 409
    found = await api_client.get(LEASES, "l", "shop")
    assert found is not None
    assert found["spec"]["holderIdentity"] == "n2"


async def test_a_condition_of_a_node_is_merged_by_its_type(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Those of the kubelet stay."""
    ready = {"type": "Ready", "status": "True"}
    apiserver.objects.create(NODES, {"metadata": {"name": "n1"}, "status": {"conditions": [ready]}})
    mine = {"type": "CriproxyReady", "status": "False"}
    await api_client.strategic_patch(NODES, "n1", {"status": {"conditions": [mine]}}, subresource="status")
    found = apiserver.objects.get(NODES, "n1")
    assert found["status"]["conditions"] == [ready, mine]


async def test_a_refusal_says_which_right_is_missing(apiserver: ApiServer, api_client: ApiClient) -> None:
    """In one sentence, cut where the server's is long."""
    from lab.apiserver.faults import Refuses

    apiserver.faults.refuses["patch", "nodes"] = Refuses(403, "nodes is forbidden: " + "x" * 1000, "Forbidden")
    with pytest.raises(ApiError, match="patch /api/v1/nodes/n1: 403 nodes is forbidden") as raised:
        await api_client.merge_patch(NODES, "n1", {})
    assert raised.value.status == 403
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    "page",
    [
        [], {}, {"items": None}, {"items": [{}]}, {"items": ["x"]}, {"items": [{"metadata": 1}]},
        {"kind": "PartialObjectMetadataList"}, {"kind": "NodeList", "items": None},
    ],
)  # fmt: skip
async def test_what_is_no_list_is_no_answer(apiserver: ApiServer, api_client: ApiClient, page: object) -> None:
    """And never an empty list."""
    apiserver.faults.bodies["list", "nodes"] = json.dumps(page).encode()
    with pytest.raises(Unreachable, match="list /api/v1/nodes: the answer is not"):
        await api_client.list(NODES)


async def test_an_empty_list_of_metadata_is_null(apiserver: ApiServer, api_client: ApiClient) -> None:
    """As Kubernetes writes it, of the small API server as well: there are no objects, which is no error."""
    found, version = await api_client.list(NODES, field_selector="metadata.name=n1", metadata_only=True)
    assert (found, version) == ([], str(apiserver.objects.version))
    assert await api_client.count(NODES, label_selector="pool=latency") == 0
    body: Object = {"kind": "PartialObjectMetadataList", "metadata": {}, "items": None}
    apiserver.faults.bodies["list", "nodes"] = json.dumps(body).encode()
    assert await api_client.list(NODES, metadata_only=True) == ([], "")


async def test_what_was_asked_is_counted(apiserver: ApiServer, api_client: ApiClient) -> None:
    """By verb, resource and status."""
    assert api_client.counters.since_contact_s() is None
    await api_client.get(NODES, "n1")
    await api_client.list(NODES)
    await apiserver.stop()
    with pytest.raises(Unreachable):
        await api_client.list(NODES)
    assert api_client.counters.requests == {
        ("get", "nodes", "404"): 1,
        ("list", "nodes", "200"): 1,
        ("list", "nodes", "unreachable"): 1,
    }
    assert api_client.counters.since_contact_s() is not None
