"""What the documentation tells users to type, follow and copy exists."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from criproxy.cli import main
from criproxy.cli.kubectl.plugin import main as plugin
from criproxy.placement.options.annotation_keys import CLASS_KEYS, KEYS, RESTRICTED
from criproxy.placement.policies import BUILTIN
from tests.asking import criproxy
from tests.conftest import ROOT
from tests.tables import anchor

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/policies").glob("*.md")),
    *sorted((ROOT / "docs/decisions").glob("*.md")),
]
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
_STATUS = re.compile(r"Status: (?:accepted|superseded by \[(\d{4})\]\(\1-[a-z0-9-]+\.md\))")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CALL = re.compile(
    r"(?:^\s*|[/=;&|] ?)(?P<plugin>kubectl )?criproxy (?P<command>[a-z][a-z-]*)(?P<rest>[^\n#|;&\x22\x27]*)"
)
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")

_FILES_OF_DEVICES = re.compile(r"checkpoint|device-plugins|kubelet\.sock")
"""Of the kubelet's device manager: pods keep their cards by them, and device plugins register there."""
_DELETING = re.compile(r"\b(?:delet\w*|remov\w*|eras\w*|unlink\w*|rm)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.:;])\s+|\n\n|\n\|")


def code(text: str) -> Iterator[str]:
    """Lines of a page that are code: fenced, indented by four, or between backticks."""
    for _, block in _FENCE.findall(text):
        yield from block.splitlines()
    rest = _FENCE.sub("", text)
    yield from (line for line in rest.splitlines() if line.startswith("    "))
    yield from re.findall(r"`([^`\n]+)`", rest)


def planned() -> set[str]:
    """What the table in docs/support.md says is still to come."""
    rows = re.findall(r"^\|(.*)\| planned \|$", (ROOT / "docs/support.md").read_text(), re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub links to them."""
    return {anchor(title) for title in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_exists(page: Path) -> None:
    """A command of criproxy in a page is one of its commands, with options that it has, or README calls it planned."""
    for line in code(page.read_text()):
        for call in _CALL.finditer(line):
            if call["command"] in planned():
                continue
            group = plugin if call["plugin"] else main
            command = group.get_command(click.Context(group), call["command"])
            assert command is not None, f"{page.name}: no such command: {line}"
            known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
            used = {word.partition("=")[0] for word in call["rest"].split() if word.startswith("--")}
            assert used <= known | {"--help"}, f"{page.name}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Links within the repository name a file or folder that is there, and a heading of it."""
    for target, heading in _LINK.findall(page.read_text()):
        place = page.parent / target if target else page
        assert place.exists(), f"{page.name}: {target}"
        if heading:
            assert heading in anchors(place), f"{page.name}: {target}#{heading}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_yaml_example_is_yaml(page: Path) -> None:
    """What is to be copied parses."""
    for kind, block in _FENCE.findall(page.read_text()):
        if kind == "yaml":
            assert yaml.safe_load(block) is not None, f"{page.name}: {block}"


def policy_files() -> Iterator[pytest.ParameterSet]:
    """The examples of policy files: what is YAML and says ``policy: NAME``; CRI-RM has a group of options there."""
    for page in PAGES:
        blocks = [block for kind, block in _FENCE.findall(page.read_text()) if kind == "yaml"]
        for number, block in enumerate(blocks):
            data = yaml.safe_load(block)
            if isinstance(data, dict) and isinstance(data.get("policy"), str):
                yield pytest.param(block, id=f"{page.stem}-{number}")


@pytest.mark.parametrize("block", list(policy_files()))
def test_every_policy_file_would_be_taken(tmp_path: Path, block: str) -> None:
    """``criproxy check`` finds no mistake in it."""
    file = tmp_path / "policy.yaml"
    file.write_text(block)

    result = criproxy("check", "--no-machine", file)

    assert result.exit_code == 0, result.output


def _option_names(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _option_names(part)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("migrate-*.md")), ids=lambda page: page.stem)
def test_options_to_move_to_exist(page: Path) -> None:
    """What a migration page calls the same here, or names beside an old name, can be written here."""
    known = {
        *_option_names(json.loads((ROOT / "policies/policy.schema.json").read_text())),
        *KEYS,
        *CLASS_KEYS,
        *BUILTIN,
    }
    rows = [
        line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| ") and line.count(" | ") > 1
    ]
    named = {
        name
        for there, here, *_ in rows
        for name in re.findall(r"`([A-Za-z.-]+)`", there if here.strip() == "same" else here)
    }

    assert len(named) > 8
    assert {name for name in named - known if not known.issuperset(name.split("."))} == set()


def test_every_file_to_copy_is_there() -> None:
    """The units, policies and drop-ins that the installation copies."""
    page = (ROOT / "docs" / "install.md").read_text() + (ROOT / "README.md").read_text()
    wanted = re.findall(r"(?<![\w/.])(?:systemd|policies)/[\w.*/-]+", page)

    assert wanted
    for pattern in wanted:
        assert list(ROOT.glob(pattern.rstrip("/."))), pattern


def test_every_module_that_is_named_to_contributors_is_there() -> None:
    """The recipes lead to files that exist, by the end of their paths."""
    named = set(re.findall(r"`([\w./]+\.py)`", (ROOT / "CONTRIBUTING.md").read_text()))
    parts = ("criproxy", "lab", "packaging", "tests")
    known = [f"/{path.relative_to(ROOT)}" for part in parts for path in (ROOT / part).rglob("*.py")]

    assert len(named) > 50
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in known)] == []


def deleting_advice(text: str) -> list[str]:
    """Sentences of a page that speak of deleting files of the kubelet's device manager."""
    sentences = _SENTENCE_END.split(text)
    return [each for each in sentences if _FILES_OF_DEVICES.search(each) and _DELETING.search(each)]


@pytest.mark.parametrize(
    "sentence",
    [
        "Where the kubelet's directory was moved, delete the former one's checkpoint or name the new one.",
        "    rm /var/lib/kubelet/device-plugins/kubelet.sock",
    ],
)
def test_advice_to_delete_files_of_the_kubelet_would_be_found(sentence: str) -> None:
    """Such as docs/devices.md once gave, in whatever sentence of a page it is."""
    (found,) = deleting_advice(f"One is enough.\n\n{sentence}\n")

    assert sentence.strip() in found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nobody_is_told_to_delete_what_pods_keep_their_cards_by(page: Path) -> None:
    """The kubelet's checkpoint and the sockets of device plugins stay."""
    assert deleting_advice(page.read_text()) == []


def test_the_page_on_annotations_says_which_reach_other_pods() -> None:
    """Restricted keys are there as such, keys that name a pool or a balloon type too, and no others are restricted."""
    page = (ROOT / "docs/annotations.md").read_text()
    rows = [
        line.strip("| ").split(" | ")
        for line in page.partition("\n## Who may use an annotation\n")[2].partition("\n## ")[0].splitlines()
        if line.startswith("| `")
    ]
    allowed = {key: by_default for keys, _, by_default in rows for key in re.findall(r"`([\w.-]+)`", keys)}

    assert allowed.keys() <= KEYS.keys()
    assert {key for key, by_default in allowed.items() if by_default == "no"} == RESTRICTED
    assert allowed.keys() > {"pool.podpools", "balloon.balloons", "affinity", "anti-affinity", "memory-type"}


SURPRISES = {
    "a moved directory of the kubelet": (
        "devices.md",
        "",
        [
            "Do not change the kubelet's files, especially the checkpoint",
            "only the podresources socket moves",
            "podresources: {socket: /data/kubelet/pod-resources/kubelet.sock",
        ],
    ),
    "CPUs that the scheduler counts and nobody gets": (
        "install.md",
        "\nMake the kubelet reserve the same CPUs as the policy",
        ["reservedSystemCPUs:", "scheduler", "stay in"],
    ),
    "owners without CPUs": (
        "install.md",
        "\n* **containers are created during a bypass**",
        ["exclusive CPUs, but has had shared CPUs", "gets its exclusive CPUs", "`promote`"],
    ),
    "starts that end with us": (
        "install.md",
        "\n* **criproxy hangs or dies**",
        ["exit code 128", "`restartPolicy: Never`"],
    ),
    "pods with a total": ("configuration.md", "", ["spec.resources", "share the exclusive CPUs"]),
    "how a pod's total is shown": ("status.md", "", ["`2 by pod`", "`pod_cpu_milli`"]),
    "how a scenario has a pod's total": ("simulate.md", "", ["`pod_cpu`"]),
    "options that restrict annotations": (
        "configuration.md",
        "\n## Tenants",
        ["`annotations.allow`", "`annotations.deny`", "annotationNamespaces", "(annotations.md#who-may-use-an-"],
    ),
}


@pytest.mark.parametrize(("page", "beginning", "words"), SURPRISES.values(), ids=SURPRISES)
def test_a_page_says_what_surprises(page: str, beginning: str, words: list[str]) -> None:
    """Where a reader looks for it: in the page, its section or its item of a list."""
    text = (ROOT / "docs" / page).read_text()
    if beginning:
        text = text.partition(beginning)[2].partition("\n## ")[0]
    if beginning and "## " not in beginning:
        text = text.partition("\n* **")[0]

    assert [word for word in words if word not in " ".join(text.split())] == []


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_every_decision_has_the_same_parts(page: Path) -> None:
    """Number and title, status, context, decision, consequences, in this order."""
    lines = page.read_text().splitlines()

    assert lines[0].startswith(f"# {int(page.name[:4])}. ")
    assert _STATUS.fullmatch(lines[2])
    assert [line for line in lines if line.startswith("## ")] == ["## Context", "## Decision", "## Consequences"]


def test_every_decision_has_a_number_of_its_own() -> None:
    """They count from 1 without a gap."""
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))
