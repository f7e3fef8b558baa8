"""Pseudonyms of names, and of registries."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cli.bundle.pseudonyms import PUBLIC, Names
from criproxy.cli.bundle.registries import Registries
from criproxy.cli.bundle.vocabulary import OWN_WORDS, reveals_nothing
from tests.conftest import ROOT
from tests.test_check_page import in_package


def names_of(*titles: str) -> Names:
    """Names learned from NAMESPACE/POD/CONTAINER."""
    names = Names("worker-7.example.net")
    names.learn_json({"containers": [{"container": title} for title in titles]})
    return names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("shop/web/main: gets 2", "namespace-1/pod-1/container-1: gets 2", id="title"),
        pytest.param("shop/web gets 2", "namespace-1/pod-1 gets 2", id="title-of-a-pod"),
        pytest.param("namespace shop may not", "namespace namespace-1 may not", id="word"),
        pytest.param("web-config and my.web", "pod-1-config and my.pod-1", id="part-of-a-word"),
        pytest.param("website and cobweb", "website and cobweb", id="part-of-a-piece"),
        pytest.param("default/7/a: 7 of a", "default/pod-2/container-2: 7 of a", id="short-names"),
        pytest.param('pod="7" container="a"', 'pod="pod-2" container="container-2"', id="short-names-in-metrics"),
        pytest.param("on worker-7 and worker-7.example.net", "on node and node", id="hostname"),
        pytest.param("CPUs 0-3,8 of pod-1", "CPUs 0-3,8 of pod-1", id="numbers"),
        pytest.param("/sys/fs/cgroup/x", "/sys/fs/cgroup/x", id="path"),
        pytest.param("a \ue000\ue011\ue001 b", "a ??? b", id="forged"),
    ],
)
def test_text(text: str, said: str) -> None:
    """A name has the same pseudonym everywhere, and what is no name stays."""
    assert names_of("shop/web/main", "default/7/a").replaced(text) == said


def test_a_name_that_looks_like_a_pseudonym_is_replaced_once() -> None:
    """Each name has one pseudonym, whatever the names are."""
    names = names_of("pod-2/namespace-1/pod-1")

    assert names.replaced("pod-2 namespace-1 pod-1") == "namespace-1 pod-1 container-1"


def test_json_keeps_its_format() -> None:
    """Keys of the format stay, also if a container has the same name; keys with other characters are replaced."""
    names = names_of("shop/lane/tide")
    value = {"tide": "0-3", "pod": "lane", "labels": {"app": "x"}, "shop/lane": 1, "said": ["tide of shop"]}

    assert names.replaced_json(value) == {
        "tide": "0-3",
        "pod": "pod-1",
        "labels": {"app": "<hidden>"},
        "namespace-1/pod-1": 1,
        "said": ["container-1 of namespace-1"],
    }


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("policy: topology-aware\ndevices: {classes: [nvidia]}\nreservedCpus: 0-3", id="policy-file"),
        pytest.param("criproxy_policy_failures_total 0\ncriproxy_device_plugin_up 1", id="metrics"),
        pytest.param("NUMA node 0: CPUs 4-7,8-11, 250m of 12 CPUs", id="numbers"),
        pytest.param("All is well: 29 containers, 1 with exclusive CPUs, all where they should be.", id="check"),
        pytest.param("memory-type.criproxy.io/pod: dram", id="annotation"),
        pytest.param("no container kubelet/criproxy/main on this node", id="title-of-such-names"),
    ],
)
def test_our_own_words_stay_whatever_pods_are_called(text: str) -> None:
    """Such names reveal nothing, and anybody may give them to pods; other names in their titles are replaced."""
    names = names_of("policy/containers/exclusive", "criproxy/topology-aware/nvidia", "0-3/4-7/8-11", "is/with/well")
    names.learn_json(
        {"containers": ["no/total/failures", "1-2/250m/3-4", "kubelet/devices/memory-type", "type/node/up"]}
    )
    names.learn_titles(text)

    assert names.replaced(text) == text.replace("main", "container-1")


def test_a_word_of_ours_in_another_name_protects_it_not() -> None:
    """Only whole names stay, and titles with a namespace of such a name are still recognised."""
    names = names_of("policy/policy-web/shared-db")
    names.learn_titles("policy/ledger/main")

    assert names.replaced("policy/ledger/main: policy-web, shared-db") == "policy/pod-2/container-2: pod-1, container-1"


def test_the_vocabulary_has_the_words_of_the_output() -> None:
    """Those of policy files, kinds of notices and metrics."""
    schema = json.loads((ROOT / "policies/policy.schema.json").read_text())
    metrics = (ROOT / "docs/monitoring.md").read_text()
    expected = set(_schema_words(schema)) | {each.kind for each in in_package()}
    expected |= {word for name in re.findall(r"`(?:python|process)_(\w+)", metrics) for word in name.split("_")}

    assert sorted(word for word in expected if not reveals_nothing(word)) == []


def _schema_words(schema: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the keys and values of policy files that a name of a pod could be, too."""
    if isinstance(schema, dict):
        words = [*schema.get("properties", ()), *schema.get("enum", ()), schema.get("const"), schema.get("default")]
        yield from (word for word in words if isinstance(word, str) and re.fullmatch(r"[a-z0-9][a-z0-9.-]+", word))
        schema = list(schema.values())
    if isinstance(schema, list):
        for each in schema:
            yield from _schema_words(each)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        pytest.param('x{namespace="shop",pod="web"} 1', {"shop", "web"}, id="metric"),
        pytest.param("created container=shop/web/main id=1", {"shop", "web", "main"}, id="log"),
        pytest.param('request={"metadata": {"name": "web", "namespace": "shop"}}', {"shop"}, id="trace-as-text"),
        pytest.param("the container: it is gone", set[str](), id="sentence"),
    ],
)
def test_names_are_learned_from_text(text: str, known: set[str]) -> None:
    """From the notations of metrics and of the log."""
    names = Names()
    names.learn_text(text)

    assert names.known == known


def test_titles_of_known_namespaces_are_learned() -> None:
    """A path is no title."""
    names = names_of("shop/web/main")
    names.learn_titles("shop/old/job ended; default/ledger/x; run/lib/y")

    assert {"old", "job", "ledger", "x"} <= names.known
    assert not {"lib", "y"} & names.known


def test_namespaces_of_a_policy_are_learned() -> None:
    """Also those of patterns; a pattern for all is none."""
    names = Names()
    names.learn_policy({"devices": {"exempt": {"namespaces": ["monitoring", "team-*", "*"]}}, "policy": "static"})

    assert names.known == {"monitoring", "team"}


labels = st.from_regex(r"[a-z][a-z0-9]{1,6}(-[a-z0-9]{1,5}){0,2}", fullmatch=True)
labels = labels.filter(lambda name: name not in OWN_WORDS)
titles = st.tuples(labels, labels, labels)
FORMAT = {"namespace", "pod", "container", "node", "hidden", "name", "said", "metrics", "log", "x", "id"}


@given(st.lists(titles, min_size=1, max_size=6), st.text(" ,.:;=\"'()/", min_size=1, max_size=3))
def test_no_name_survives(found: list[tuple[str, str, str]], between: str) -> None:
    """In titles, in words of their own, in metrics and in the log; each name has exactly one pseudonym."""
    names = names_of(*("/".join(title) for title in found))
    text = between.join(["", *("/".join(title) for title in found), *(name for title in found for name in title), ""])
    value = {"said": [text], "log": " ".join(f"pod={pod} id=1" for _, pod, _ in found)}
    shown = json.dumps(names.replaced_json(value))
    left = set(re.findall(r"[a-z0-9][a-z0-9-]*", re.sub(r"(?:namespace|pod|container)-\d+", "", shown)))

    assert not (left - FORMAT) & {name for title in found for name in title if name not in PUBLIC | FORMAT}
    assert names.replaced(text) == names.replaced(text)


@pytest.mark.parametrize(
    ("value", "text", "said"),
    [
        pytest.param(
            {"image": {"image": "reg.corp:5000/team/app:1"}},
            "pulled reg.corp:5000/team/app:1",
            "registry-1",
            id="image",
        ),
        pytest.param("pulled quay.example/a/b:2", "quay.example is slow", "registry-1 is slow", id="reference"),
        pytest.param({"images": ["reg.corp/*"]}, "reg.corp", "registry-1", id="pattern"),
        pytest.param('image="localhost/x"', "localhost/x", "registry-1/x", id="log"),
        pytest.param({"image": "busybox:1"}, "busybox:1", "busybox:1", id="no-registry"),
        pytest.param({"resource": "nvidia.com/gpu"}, "nvidia.com/gpu", "nvidia.com/gpu", id="no-image"),
        pytest.param({"image": "reg.corp/a"}, "myreg.corp reg.corp.example", "myreg.corp reg.corp.example", id="other"),
    ],
)
def test_registries(value: object, text: str, said: str) -> None:
    """Only the registry is replaced; the rest of the name stays."""
    registries = Registries()
    registries.learn_json(value)

    assert said in registries.replaced(text)
    assert not any(f"{registry}/" in registries.replaced(text) for registry in registries.known)
