"""Files that were written for CRI-RM or nri-plugins are recognised, and the page about them is named."""

import re
from pathlib import Path

import pytest

from tests.config.files import told

DOCS = Path(__file__).parents[2] / "docs"
CRIRM = " this is a configuration of CRI-RM: docs/migrate-from-crirm.md explains how to translate it"
NRI = " this is a configuration of nri-plugins: docs/migrate-from-nri-plugins.md explains how to translate it"


def blocks(page: str) -> list[str]:
    """The YAML in a page."""
    return re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_examples_of_the_pages(tmp_path: Path) -> None:
    """What is to be translated is recognised; what it becomes has no mistakes."""
    for page, sentence in (("migrate-from-crirm.md", CRIRM), ("migrate-from-nri-plugins.md", NRI)):
        before, after = blocks(page)[:2]

        first, *others = told(tmp_path, before)

        assert first == sentence
        assert others, "each option has its mistake, too"
        assert told(tmp_path, after) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("apiVersion: config.nri/v1alpha1\nspec: {}\n", NRI, id="version"),
        pytest.param("kind: TopologyAwarePolicy\nspec: {}\n", NRI, id="kind"),
        pytest.param("policy: {Active: static}\n", CRIRM, id="group"),
        pytest.param("kind: ConfigMap\nmetadata: {name: cri-resmgr-config.default}\n", CRIRM, id="config-map"),
        pytest.param("kind: ConfigMap\nmetadata: {name: other}\n", "", id="other-config-map"),
        pytest.param("kind: [a]\nmetadata: [b]\napiVersion: {c: d}\n", "", id="anything"),
        pytest.param("policy: static\nkind: x\n", "", id="a-policy-file-with-a-mistake"),
        pytest.param("kind: ConfigMap\ndata: {policy: 'Active: static'}\n", CRIRM, id="config-map-of-any-name"),
        pytest.param("kind: ConfigMap\ndata: {logger: 'Debug: a'}\n", CRIRM, id="config-map-without-policy"),
        pytest.param(
            "kind: ConfigMap\nmetadata: {name: nri-resource-policy-config.node.a}\n", NRI, id="nri-config-map"
        ),
        pytest.param("kind: ConfigMap\ndata: {nri-resource-policy.cfg: ''}\n", NRI, id="nri-config-map-of-any-name"),
    ],
)
def test_what_is_recognised(tmp_path: Path, text: str, sentence: str) -> None:
    """By what only such files have."""
    mistakes = told(tmp_path, text)

    assert [each for each in mistakes if "this is a configuration of" in each] == ([sentence] if sentence else [])


def test_options_that_have_no_place_in_a_policy_file(tmp_path: Path) -> None:
    """They are no misspelt options of criproxy."""
    assert told(tmp_path, "policy: none\ninstrumentation: {}\nlogger: {}\nlog: {}\n") == [
        (
            "2:1: unknown option 'instrumentation'; it is one of CRI-RM and nri-plugins, see "
            "docs/migrate-from-crirm.md and docs/migrate-from-nri-plugins.md"
        ),
        "3:1: unknown option 'logger'; it is one of CRI-RM, see docs/migrate-from-crirm.md",
        "4:1: unknown option 'log'; it is one of nri-plugins, see docs/migrate-from-nri-plugins.md",
    ]


NVIDIA = "name that file with devices.plugin.nvidiaConfig"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(
            "config: {pinCPU: true}\nnri: {runtime: {patchConfig: true}}\n",
            "these are Helm values of nri-plugins: the policy file is the content of 'config' with the name of its "
            "policy; docs/migrate-from-nri-plugins.md explains how to translate it",
            id="nri-values",
        ),
        pytest.param(
            "policy: {policy: static}\nnodeSelector: {a: b}\n",
            "these are values of criproxy's Helm chart: the policy file is the content of 'policy'",
            id="our-values",
        ),
        pytest.param(
            "policy: null\ndevicePlugin: {enabled: false, nvidiaConfig: null}\n",
            "these are values of criproxy's Helm chart: the policy file is the content of 'policy'",
            id="our-values-without-a-policy",
        ),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\ndata: {policy.yaml: 'policy: static'}\n",
            "this is a ConfigMap: the policy file is the text of data.policy.yaml alone",
            id="our-config-map",
        ),
        pytest.param(
            "kind: ConfigMap\ndata: {a: '', b: '', c: '', d: '', e: 3}\n",
            "this is a ConfigMap: the policy file is the text of data.a, data.b, data.c or another key alone",
            id="many-texts",
        ),
        pytest.param("kind: ConfigMap\n", "this is a ConfigMap without texts", id="no-text"),
        pytest.param(
            'kind: ConfigMap\ndata: {any: "version: v1\\nflags: {}"}\n',
            f"this is a ConfigMap: the text of data.any alone is a file of NVIDIA's device plugin; {NVIDIA}",
            id="nvidia-config-map",
        ),
        pytest.param(
            "version: v1\nsharing: {}\n", f"this is a file of NVIDIA's device plugin: {NVIDIA}", id="nvidia-file"
        ),
        pytest.param(
            "config: {map: {default: 'version: v1'}}\n",
            "these are Helm values: the text of config.map.default alone is a file of NVIDIA's device plugin; "
            f"{NVIDIA}",
            id="nvidia-values",
        ),
        pytest.param(
            "nvidia-device-plugin: {config: {map: {default: 'version: v1'}}}\n",
            f"the text of nvidia-device-plugin.config.map.default alone is a file of NVIDIA's device plugin; {NVIDIA}",
            id="umbrella-values",
        ),
        pytest.param(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
            "this is an object of Kubernetes (KubeletConfiguration), not a policy file",
            id="another-object",
        ),
    ],
)
def test_what_is_right_instead_of_a_whole_file(tmp_path: Path, text: str, sentence: str) -> None:
    """Users have policies inside objects and values; what to take out of them is said first."""
    assert told(tmp_path, text)[0] == f" {sentence}"
