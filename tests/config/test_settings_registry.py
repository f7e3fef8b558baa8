"""Policies of other packages are found by name, and those that cannot be used say why."""

from pathlib import Path

import pytest

from criproxy.config import load
from criproxy.config.settings import find, names
from criproxy.errors import ConfigError
from criproxy.placement.policies import BUILTIN
from criproxy.simulate.hosts import machine
from tests.config.files import told, write
from tests.config.packages import install


def test_a_policy_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy file names it as any other, and its options are checked like ours."""
    install(tmp_path, monkeypatch, points="fixed = acme:ENTRY", name="acme")
    text = "policy: fixed\ncolor: red\npools:\n- {cpus: 0-1, size: 2}\n"

    settings = load(write(tmp_path / "p.yaml", text), "node1")

    assert (names(), type(settings.build_policy()).__name__) == ([*BUILTIN, "fixed"], "Pools")
    assert settings.values()["pools"] == [{"cpus": "0-1", "size": 2}]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param("pools: [{cpu: 0}]", "2:10: unknown option 'pools[0].cpu'; did you mean 'cpus'?", id="nested"),
        pytest.param("pools: [{size: 9}]", "2:9: the option 'pools[0].cpus' is missing", id="missing"),
        pytest.param("pools: [{}]", "2:9: the option 'pools[0].cpus' is missing", id="missing-in-empty"),
        pytest.param(
            "pools:\n- cpus: 0\n  size: 9",
            "4:9: pools[0].size: must be less than or equal to 8, not 9",
            id="range",
        ),
        pytest.param(
            "byName: {a: {cpus: 0, sise: 1}}",
            "2:23: unknown option 'byName.a.sise'; did you mean 'size'?",
            id="in-a-mapping",
        ),
        pytest.param("byName: [a]", "2:9: byName: must be a group of options, indented on", id="no-mapping"),
        pytest.param("byName: {a: 1}", "2:13: byName.a: must be a group of options, indented on", id="no-group"),
        pytest.param("pools: 3", "2:8: pools: must be a list, such as [a, b], not 3", id="no-list"),
        pytest.param("pools: [{cpus: 0, size: many}]", "must be a whole number, not 'many'", id="no-number"),
        pytest.param("pools: [{cpus: 0, size: 1.5}]", "must be a whole number, not 1.5", id="no-whole-number"),
        pytest.param("spread: 2", "2:9: spread: must be true or false, not 2", id="no-boolean"),
        pytest.param("spread: maybe", "2:9: spread: must be true or false, not 'maybe'", id="maybe"),
        pytest.param("share: half", "2:8: share: must be a number, not 'half'", id="no-float"),
        pytest.param("title: 12", "2:8: title: must be text, not 12; in quotes it is text", id="number-for-text"),
        pytest.param("title:", "2:7: title: has no value: give one, or leave the line out", id="no-value"),
        pytest.param("title: {a: 1}", "2:8: title: must be text, not a group of options", id="group-for-text"),
        pytest.param("kind: sqare", "'round' or 'square', not 'sqare'; did you mean 'square'?", id="choice"),
        pytest.param("mode: outo", "2:7: mode: must be 'auto', not 'outo'; did you mean 'auto'?", id="union"),
        pytest.param("poolz: []", "2:1: unknown option 'poolz'; did you mean 'pools'?", id="top"),
        pytest.param("pools: [{cpus: 9}]", "2:16: pools[0].cpus: CPU 9 is not online in this", id="not-in-machine"),
    ],
)
def test_mistakes_in_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, said: str) -> None:
    """Every kind of mistake, at any depth, is told in words and with its place."""
    install(tmp_path, monkeypatch, points="fixed = acme:ENTRY", name="acme")

    assert any(said in line for line in told(tmp_path, f"policy: fixed\n{lines}\ncolor: red\n", machine()))


def test_words_for_booleans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a boolean is wanted, on and off, yes and no are understood."""
    install(tmp_path, monkeypatch, points="fixed = acme:ENTRY", name="acme")

    for word, value in [("on", True), ("no", False), ("true", True), ("False", False)]:
        settings = load(write(tmp_path / "p.yaml", f"policy: fixed\ncolor: red\nspread: {word}\n"), "node1")
        assert settings.values()["spread"] is value


@pytest.mark.parametrize(
    ("source", "point", "message"),
    [
        pytest.param("import nowhere", "x = acme:E", "acme:E cannot be imported: ModuleNotFoundError", id="import"),
        pytest.param("1 / 0", "x = acme:E", "acme:E cannot be imported: ZeroDivisionError", id="raises"),
        pytest.param("", "x = acme:E", "acme:E cannot be imported: AttributeError", id="no-such-name"),
        pytest.param(
            "E = 3",
            "x = acme:E",
            r"acme:E must be a criproxy\.placement\.policies\.Entry, but is of type int",
            id="no-entry",
        ),
        pytest.param(
            "from criproxy.placement.policies import Entry\nE = Entry(dict, print)",
            "x = acme:E",
            "needs a class of",
            id="options",
        ),
    ],
)
def test_a_broken_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, point: str, message: str
) -> None:
    """Its fault is told with policy, package and reason; other policies are not affected."""
    install(tmp_path, monkeypatch, source, points=point, name="acme")

    with pytest.raises(ConfigError, match=f"the policy 'x' of acme 1.0 cannot be used: .*{message}"):
        find("x")
    assert find("none") is BUILTIN["none"]


def test_a_name_given_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages, or a package and criproxy, with one name are an error: neither wins silently."""
    install(tmp_path, monkeypatch, points="x = acme:ENTRY\nstatic = acme:ENTRY", name="acme")
    install(tmp_path, monkeypatch, points="x = other:ENTRY", name="other")

    with pytest.raises(ConfigError, match=r"the policy 'x' is in acme 1\.0 and in other 1\.0: uninstall all but one"):
        find("x")
    with pytest.raises(ConfigError, match=r"the policy 'static' is in criproxy itself and in acme 1\.0"):
        find("static")


def test_an_unknown_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The valid ones are listed, those of other packages included."""
    install(tmp_path, monkeypatch, points="fixed = acme:ENTRY", name="acme")

    assert told(tmp_path, "policy: fixt\n") == [
        f"1:9: policy: unknown policy 'fixt'; policies are: {', '.join(BUILTIN)}, fixed; did you mean 'fixed'?"
    ]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("memtier", "topology-aware"),
        ("podpools", "pools"),
        ("static-pools", "pools"),
        ("static-plus", "static"),
        ("dynamic-pools", "balloons"),
    ],
)
def test_a_policy_of_cri_rm(tmp_path: Path, name: str, instead: str) -> None:
    """The one that replaces it is named, not the one with the most similar name."""
    (mistake,) = told(tmp_path, f"policy: {name}\n")

    assert mistake.startswith(f"1:9: policy: unknown policy {name!r}; policies are: ")
    assert mistake.endswith(
        f"; {instead!r} replaces CRI-RM's {name!r}: docs/migrate-from-crirm.md explains how to translate its options"
    )


def test_options_of_an_unknown_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt policy does not make mistakes of the options that other policies have."""
    install(tmp_path, monkeypatch, points="unused = acme:ENTRY", name="acme")
    monkeypatch.setitem(BUILTIN, "fixed", find("unused"))

    lines = told(tmp_path, "policy: fixt\nspread: true\nsprad: true\n")

    assert [line.split(":")[0] for line in lines] == ["1", "3"]
