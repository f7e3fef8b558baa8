"""`criproxy convert`: what CRI-RM and nri-plugins say becomes NodePolicy objects, and nothing is lost in silence."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from criproxy.agent.objects.node_policy import Spec
from tests.agent.objects.structural import complaints
from tests.agent.objects.test_crds import schema_of
from tests.asking import criproxy
from tests.conftest import ROOT

LABELS = {"crirm": "cri-resource-manager.intel.com/group", "nri": "config.nri/group"}
_FENCE = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def config_map(name: str, policy: str, **modules: str) -> dict[str, Any]:
    """Return a ConfigMap as CRI-RM's agent reads it."""
    metadata = {"name": name, "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"policy": policy, **modules}}


def custom_resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return an object of nri-plugins."""
    return {"apiVersion": "config.nri/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def convert(
    tmp_path: Path, *objects: dict[str, Any], name: str = "objects.yaml", options: tuple[str, ...] = ()
) -> Result:
    """Convert a file with *objects*."""
    file = tmp_path / name
    file.write_text("\n---\n".join(map(json.dumps, objects)))  # JSON is YAML, and quotes all texts
    return criproxy("convert", file, *options)


def converted(result: Result) -> list[dict[str, Any]]:
    """Return the objects of a conversion, each of which has a policy that `criproxy check` and the API server take."""
    assert result.exit_code == 0, result.output
    objects = list(yaml.safe_load_all(result.stdout))
    for each in objects:
        assert complaints(schema_of("NodePolicy"), {"spec": each["spec"]}) == []
    return objects


def comments(result: Result) -> list[str]:
    """Return what the conversion says above its objects."""
    return [line.removeprefix("# ") for line in result.stdout.splitlines() if line.startswith("# ")]


def checked(tmp_path: Path, text: str) -> Result:
    """Give a file with *text* to `criproxy check`."""
    file = tmp_path / "checked.yaml"
    file.write_text(text)
    return criproxy("check", "--no-machine", file)


def before_and_after(page: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first two examples of a page about migration: what there was, and what a person makes of it."""
    first, second, *_ = _FENCE.findall((ROOT / "docs" / page).read_text())
    return yaml.safe_load(first), yaml.safe_load(second)


@pytest.mark.parametrize(
    ("name", "selector", "priority"),
    [
        pytest.param("node.worker-1", {"matchLabels": {"kubernetes.io/hostname": "worker-1"}}, 20, id="node"),
        pytest.param("group.Fast_1", {"matchLabels": {LABELS["crirm"]: "Fast_1"}}, 10, id="group"),
        pytest.param("default", {}, 0, id="default"),
    ],
)
def test_names_of_config_maps_select_nodes(tmp_path: Path, name: str, selector: dict[str, Any], priority: int) -> None:
    """The node before the group before the default, as CRI-RM's agent chooses."""
    (policy,) = converted(convert(tmp_path, config_map(f"cri-resmgr-config.{name}", "Active: none")))

    assert policy["spec"] == {
        "nodeSelector": selector,
        "priority": priority,
        "policy": {"policy": "none", "rules": "crirm"},
    }
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", policy["metadata"]["name"])


def test_the_default_of_nri_plugins_is_not_for_nodes_in_a_group(tmp_path: Path) -> None:
    """A node whose group has no object gets none there, and so none here."""
    objects = [custom_resource("TopologyAwarePolicy", name, {}) for name in ("default", "group.fast")]
    default, group = converted(convert(tmp_path, *objects))

    assert default["spec"]["nodeSelector"] == {"matchExpressions": [{"key": LABELS["nri"], "operator": "DoesNotExist"}]}
    assert group["spec"]["nodeSelector"] == {"matchLabels": {LABELS["nri"]: "fast"}}


def test_the_page_about_nri_plugins_says_the_same(tmp_path: Path) -> None:
    """Its example becomes what the page makes of it; what it removes is named, or kept and said to have no effect."""
    before, after = before_and_after("migrate-from-nri-plugins.md")
    result = convert(tmp_path, before)
    (policy,) = converted(result)

    assert policy["spec"]["policy"] == after
    said = "\n".join(comments(result))
    for lost in ("spec.log is left out", "spec.instrumentation is left out", "annotations.allow permits cpu-class"):
        assert lost in said


def test_the_page_about_crirm_says_the_same(tmp_path: Path) -> None:
    """The same for a configuration of CRI-RM that is no object: the user names the nodes."""
    before, after = before_and_after("migrate-from-crirm.md")
    result = convert(tmp_path, before, name="fallback.cfg", options=("--node-selector", "pool=latency"))
    (policy,) = converted(result)

    assert policy["metadata"]["name"] == "fallback"
    assert policy["spec"]["nodeSelector"] == {"matchLabels": {"pool": "latency"}}
    assert policy["spec"]["policy"] == after
    assert {line.split()[0] for line in comments(result)[1:]} == {"instrumentation", "logger", "classes:"}


CRIRM = [
    pytest.param(
        "Active: static-plus\nReservedResources: {CPU: 750m}",
        {
            "policy": "static",
            "reservedResources": {"cpu": "750m"},
            "exclusiveFor": ["Guaranteed", "Burstable"],
            "sharedRemainder": True,
            "preferIsolatedCPUs": True,
        },
        [],
        id="static-plus",
    ),
    pytest.param(
        "Active: static\nstatic: {RelaxedIsolation: true}",
        {"policy": "static", "preferIsolatedCPUs": True},
        ["policy.static.RelaxedIsolation is left out"],
        id="static",
    ),
    pytest.param(
        "Active: podpools\nReservedResources: {CPU: cpuset:0}\n"
        "podpools: {Pools: [{Name: dual, Instances: 50 %, CPU: 2, MaxPods: 3, FillOrder: Packed}]}",
        {
            "policy": "pools",
            "reservedResources": {"cpu": "cpuset:0"},
            "pools": [{"name": "dual", "instances": "50 %", "cpu": 2, "maxPods": 3, "fillOrder": "Packed"}],
        },
        [],
        id="podpools",
    ),
    pytest.param(
        "Active: static-pools\nstatic-pools: {LabelNode: true, Pools: {exclusive: {exclusive: true, cpuLists: "
        '[{Cpuset: "6,7", Socket: 0}]}}}',
        {
            "policy": "pools",
            "pools": [{"name": "exclusive", "exclusive": True, "cpuLists": [{"cpuset": "6,7", "socket": 0}]}],
        },
        ["policy.static-pools.LabelNode is left out"],
        id="static-pools",
    ),
    pytest.param(
        "Active: dynamic-pools\ndynamic-pools: {PinMemory: true, DynamicPoolTypes: [{Name: a, Namespaces: [b]}]}",
        {
            "policy": "balloons",
            "pinMemory": True,
            "balloonTypes": [{"name": "a", "namespaces": ["b"], "shareIdleCPUsInSame": "system"}],
        },
        ["dynamic-pools becomes balloons"],
        id="dynamic-pools",
    ),
    pytest.param(
        "Active: memtier\nAvailableResources: {CPU: 4}\ntopology-aware: {PinCPU: false}\nmemtier: {ColocatePods: true}",
        {"policy": "topology-aware", "colocatePods": True},
        ["policy.topology-aware is left out", "policy.AvailableResources.CPU is left out: an amount (4)"],
        id="memtier, an amount, and a policy that is not active",
    ),
]


@pytest.mark.parametrize(("text", "expected", "lost"), CRIRM)
def test_policies_of_crirm(tmp_path: Path, text: str, expected: dict[str, Any], lost: list[str]) -> None:
    """Each becomes the one that does its work, with all options that there are."""
    result = convert(tmp_path, config_map("cri-resmgr-config.default", text))
    (policy,) = converted(result)

    assert policy["spec"]["policy"] == {"rules": "crirm"} | expected
    assert checked(tmp_path, result.stdout).exit_code == 0
    said = comments(result)[1:]
    assert len(said) == len(lost)
    assert all(any(line.startswith(start) for line in said) for start in lost), said


def test_lists_and_other_objects(tmp_path: Path) -> None:
    """What kubectl prints of a whole namespace has objects of others: they are named, and the rest is converted."""
    objects = [
        config_map("cri-resmgr-config.default", "Active: none"),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "coredns"}, "data": {"Corefile": ".:53 {}"}},
        custom_resource("TemplatePolicy", "default", {}),
        custom_resource("BalloonsPolicy", "mine", {}),
    ]
    result = convert(tmp_path, {"apiVersion": "v1", "kind": "List", "items": objects})

    assert len(converted(result)) == 1
    said = result.stderr.splitlines()
    assert [line.partition(" is left out: ")[0].rpartition(": ")[2] for line in said] == [
        "ConfigMap coredns",
        "TemplatePolicy default",
        "BalloonsPolicy mine",
    ]
    assert "node.NAME, group.GROUP or default" in said[2]


def test_pools_by_name_become_a_list(tmp_path: Path) -> None:
    """As the API server wants them: a policy file may have both."""
    file = {"policy": "pools", "pools": {"fast": {"cpu": 2}, "slow": {"cpu": 1}}}
    (policy,) = converted(convert(tmp_path, file, name="group-web.yaml"))

    assert policy["spec"]["policy"]["pools"] == [{"name": "fast", "cpu": 2}, {"name": "slow", "cpu": 1}]


def test_policy_files_by_their_names(tmp_path: Path) -> None:
    """A directory of policy files for each kind of node becomes objects for the same nodes."""
    static = {"policy": "static", "reservedCpus": "0"}
    (group,) = converted(convert(tmp_path, static, name="group-fast.yaml"))
    (default,) = converted(convert(tmp_path, static, name="default.yaml"))

    assert group["spec"] == {
        "nodeSelector": {"matchLabels": {"criproxy.io/group": "fast"}},
        "priority": 10,
        "policy": static,
    }
    assert default["spec"] == {"nodeSelector": {}, "priority": 0, "policy": static}


NOT_CONVERTED = {
    "for no nodes": ([{"policy": "static"}], "mine.yaml", "--node-selector LABEL=VALUE"),
    "something else": ([{"a": 1}], "default.yaml", "neither an object nor"),
    "no policy": ([config_map("c.default", "Active: statik")], "a.yaml", "'statik' is no policy of CRI-RM"),
    "YAML": ([config_map("c.default", "Active: static\n\tx")], "a.yaml", "data.policy:2:1: a tab"),
    "a wrong value": (
        [custom_resource("BalloonsPolicy", "default", {"balloonTypes": [{"name": "a", "maxCPUs": "many"}]})],
        "a.yaml",
        "BalloonsPolicy default: balloonTypes[0].maxCPUs: must be a whole number, not 'many'",
    ),
    "two of one name": (
        [custom_resource("BalloonsPolicy", "default", {}), custom_resource("TopologyAwarePolicy", "default", {})],
        "a.yaml",
        "would both be the NodePolicy default",
    ),
    "none": ([{"kind": "Pod", "metadata": {"name": "a"}}], "a.yaml", "there is no configuration"),
    "an empty file": ([], "a.yaml", "there is no configuration"),
}


@pytest.mark.parametrize(("objects", "name", "complaint"), NOT_CONVERTED.values(), ids=NOT_CONVERTED)
def test_what_cannot_be_converted(tmp_path: Path, objects: list[dict[str, Any]], name: str, complaint: str) -> None:
    """One sentence says what and where; nothing is printed that somebody could apply."""
    result = convert(tmp_path, *objects, name=name)

    assert (result.exit_code, result.stdout) == (1, "")
    assert complaint in result.stderr


def test_one_mistake_keeps_everything_back(tmp_path: Path) -> None:
    """A pipe to kubectl must not apply one half."""
    good, bad = config_map("c.default", "Active: none"), config_map("c.node.a", "Active: nothing")
    result = convert(tmp_path, good, bad)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "c.node.a" in result.stderr


def test_texts_stay_texts(tmp_path: Path) -> None:
    """Another reader of YAML takes none of them for a number or a switch, and comments end with their line."""
    types = [{"name": name} for name in ("on", "1e3", "0x10", "12-30")]
    spec = {"balloonTypes": types, "bad\nkind: Pod": 1}
    result = convert(tmp_path, custom_resource("BalloonsPolicy", "default", spec))
    (policy,) = converted(result)

    assert policy["kind"] == "NodePolicy"
    for each in types:
        assert f'name: "{each["name"]}"' in result.stdout


def test_standard_input() -> None:
    """- is what kubectl writes into a pipe."""
    text = yaml.safe_dump(config_map("c.default", "Active: none"))
    result = criproxy("convert", "-", stdin=text)

    assert len(converted(result)) == 1


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        pytest.param(["pool"], "'pool' is not LABEL=VALUE", id="no-value"),
        pytest.param(["a b=c"], "must be the key of a label such as pool or example.com/pool, not 'a b'", id="label"),
        pytest.param(["a=b=c"], "must be the value of a label", id="two-values"),
        pytest.param(["a=b", "a=c"], "the label 'a' is given twice", id="twice"),
    ],
)
def test_node_selector_takes_labels(tmp_path: Path, labels: list[str], said: str) -> None:
    """What the API server would refuse is a usage error."""
    options = [word for label in labels for word in ("--node-selector", label)]
    result = convert(tmp_path, {"policy": "none"}, options=(*options,))

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--node-selector: {said}" in result.stderr


@pytest.mark.parametrize(
    "obj", [config_map("c.default", "Active: none"), custom_resource("BalloonsPolicy", "group.g", {})]
)
def test_an_object_that_says_for_which_nodes_it_is_needs_no_node_selector(tmp_path: Path, obj: dict[str, Any]) -> None:
    """It would be ignored."""
    result = convert(tmp_path, obj, options=("--node-selector", "pool=a"))

    assert (result.exit_code, result.stdout) == (1, "")
    assert "its name says for which nodes it is: convert it without --node-selector" in result.stderr


def test_all_that_is_printed_can_be_checked(tmp_path: Path) -> None:
    """`criproxy check` takes several objects of one file, and says of each which it is."""
    printed = convert(tmp_path, *(config_map(f"c.{name}", "Active: none") for name in ("default", "node.a"))).stdout
    result = checked(tmp_path, printed)

    assert result.exit_code == 0
    assert re.findall(r"OK \(NodePolicy ([a-z.]+);", result.stdout) == ["default", "node.a"]


def test_mistakes_in_a_node_policy_have_their_places(tmp_path: Path) -> None:
    """Line and column are those of the file, also in the second object."""
    printed = convert(tmp_path, *(config_map(f"c.{name}", "Active: none") for name in ("default", "node.a"))).stdout
    first, second = printed.split("---\n")
    lines = [*first.splitlines(), "---", *second.replace("rules: crirm", "rules: crirn").splitlines()]
    result = checked(tmp_path, "\n".join(lines))

    assert result.exit_code == 1
    number = lines.index("    rules: crirn") + 1
    assert f"checked.yaml:{number}:12: rules: must be 'nri' or 'crirm', not 'crirn'" in result.stdout
    assert "no NodePolicy" in checked(tmp_path, f"{printed}---\nkind: Pod\n").stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("rollout: {tyr: 10m}", ":7:13: unknown option 'spec.rollout.tyr'; did you mean 'try'?"),
        ("rollout: {try: 10}", ":7:18: spec.rollout.try: must be a time such as 30s, 10m or 168h, not 10"),
        ("rollout: {try: 200h}", ":7:18: spec.rollout.try: must be a time from 1s to 168h, not 200h"),
        ("rollout: {atOnce: half}", ":7:21: spec.rollout.atOnce: must be a number of nodes from 1, or a share of them"),
        ('priority: "10"', ":7:13: spec.priority: must be a whole number, not '10'"),
        ("nodeSelector: {matchLabels: {a b: c}}", "spec.nodeSelector.matchLabels.a b: must be the key of a label"),
        (
            "nodeSelector: {matchExpressions: [{key: a, operator: In}]}",
            ":6:37: spec.nodeSelector.matchExpressions[0]: In must have values",
        ),
        ("policy:", ":5:10: spec.policy: has no value: give one"),
        ("rolout: {try: 10m}", ":7:3: unknown option 'spec.rolout'; did you mean 'rollout'?"),
    ],
)
def test_check_reads_the_whole_node_policy(tmp_path: Path, change: str, said: str) -> None:
    """Selector, priority and rollout are checked, too, by what the agent and the API server take."""
    spec = {"policy": "policy: {policy: none}", "nodeSelector": "nodeSelector: {}", change.partition(":")[0]: change}
    head = "apiVersion: criproxy.io/v1alpha1\nkind: NodePolicy\nmetadata: {name: a}\nspec:\n"
    result = checked(tmp_path, head + "".join(f"  {line}\n" for line in spec.values()))

    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 1)
    assert said in result.stdout


def test_check_takes_only_this_version_of_node_policy(tmp_path: Path) -> None:
    """What is missing around the spec is said as well."""
    said = checked(tmp_path, "apiVersion: criproxy.io/v1\nkind: NodePolicy\nmetadata: {name: A}\nspec: {}\n").stdout

    for mistake in (
        ":1:13: apiVersion: must be 'criproxy.io/v1alpha1', not 'criproxy.io/v1'",
        ":3:18: metadata.name: must be the name of an object",
        ":4:7: the option 'spec.nodeSelector' is missing",
        ":4:7: the option 'spec.policy' is missing",
    ):
        assert mistake in said


def test_the_agent_reads_what_is_printed(tmp_path: Path) -> None:
    """Each object is a NodePolicy as the agent takes it."""
    objects = [config_map(f"c.{name}", "Active: none") for name in ("default", "group.g", "node.a")]
    objects.append(custom_resource("BalloonsPolicy", "group.h", {}))
    for each in converted(convert(tmp_path, *objects)):
        assert Spec.model_validate(each["spec"]).policy["policy"] in {"none", "balloons"}
