"""Kubernetes' programs are built in steps that are done once, from sources that are what they should be."""

import os
import shutil
from pathlib import Path

import pytest

from lab.cluster import build
from lab.cluster.build import BuildError, Places, Step


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Return an empty cache with a folder for the build."""
    found = Places(tmp_path / "cache")
    found.source.mkdir(parents=True)
    return found


def writing(name: str, calls: list[str], fails: bool = False) -> Step:
    """A step that makes a program."""

    def do(places: Places) -> None:
        calls.append(name)
        if fails:
            raise BuildError(f"{name} cannot be made")
        places.programs.mkdir(exist_ok=True)
        (places.programs / name).touch()

    return Step(name, f"making {name}", do)


def test_a_build_that_failed_goes_on_where_it_was(tmp_path: Path) -> None:
    """Steps that are done are not done again, and a build that is there is not looked at."""
    calls: list[str] = []
    steps = [writing(name, calls) for name in build.PROGRAMS]
    with pytest.raises(BuildError, match="last cannot be made"):
        build.build(tmp_path, [*steps, writing("last", calls, fails=True)])
    assert build.find(tmp_path) is None
    assert build.build(tmp_path, [*steps, writing("last", calls)]) == tmp_path / "bin"
    assert calls == [*build.PROGRAMS, "last", "last"]
    assert build.build(tmp_path, [writing("more", calls)]) == build.find(tmp_path) == tmp_path / "bin"
    assert "more" not in calls
    assert not (tmp_path / "work").exists()


def test_programs_of_another_recipe_are_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was built by other steps, or is not complete, does not count."""
    build.build(tmp_path, [writing(name, []) for name in build.PROGRAMS])
    (tmp_path / "bin" / build.PROGRAMS[0]).unlink()
    assert build.find(tmp_path) is None
    (tmp_path / "bin" / build.PROGRAMS[0]).touch()
    assert build.find(tmp_path)
    monkeypatch.setattr(build, "RECIPE", "another")
    assert build.find(tmp_path) is None


def test_schemas_are_of_all_packages_that_ask_for_one(tmp_path: Path) -> None:
    """Packages of Kubernetes and of its libraries count by their import paths; test data and generators do not."""
    for path in (
        "pkg/apis/core/v1/doc.go",
        "pkg/apis/core/v1/more.go",
        "pkg/apis/none/doc.go",
        "staging/src/k8s.io/api/apps/v1/doc.go",
        "staging/src/k8s.io/code-generator/apis/doc.go",
        "staging/src/k8s.io/api/testdata/v1/doc.go",
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("package v1\n" if "none" in path else "// +k8s:openapi-gen=true\npackage v1\n")
    assert build.openapi_packages(tmp_path) == ["k8s.io/api/apps/v1", "k8s.io/kubernetes/pkg/apis/core/v1"]


def test_go_finds_nothing_of_the_users(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of Go from outside would make other programs, or reach the network."""
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    monkeypatch.setenv("GOPROXY", "https://proxy.invalid")
    environment = build.environment(places)
    assert (environment["GOFLAGS"], environment["GOPROXY"], environment["GO111MODULE"]) == ("", "off", "off")
    assert environment["HOME"] == str(places.work)
    assert not [name for name in environment if name.startswith("http")]


def test_a_command_that_fails_is_said_with_the_end_of_its_log(places: Places) -> None:
    """Whoever reads the error sees what the compiler said."""
    go = places.root / "usr/lib/go-1.19/bin/go"
    go.parent.mkdir(parents=True)
    go.write_text(f"#!{shutil.which('sh')}\necho cannot find package k8s.io/api >&2\nexit 3\n")
    go.chmod(0o755)
    with pytest.raises(BuildError, match=r"exit status 3(.|\n)*cannot find package"):
        build.program("kubelet").do(places)
    assert not (places.programs / "kubelet").exists()


def test_a_source_that_is_another_one_is_not_changed(tmp_path: Path) -> None:
    """The place that has to be changed for a newer Go must be there once."""
    places = [tmp_path / "vendor" / name for name in ("github.com/go-openapi", "k8s.io/kube-openapi/pkg/validation")]
    files = [place / "validate/type.go" for place in places]
    for folder in (*[file.parent for file in files], tmp_path / "vendor/github.com/modern-go/reflect2"):
        folder.mkdir(parents=True)
    (library := tmp_path / "reflect2").mkdir()
    (library / "new.go").touch()
    same = " || reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data))"
    for file in files:
        file.write_text(f"if data == nil{same} {{\n")
    build.modernise(tmp_path, library)
    assert [file.read_text() for file in files] == ["if data == nil {\n"] * 2
    assert os.listdir(tmp_path / "vendor/github.com/modern-go/reflect2") == ["new.go"]  # noqa: PTH208 (names)
    with pytest.raises(BuildError, match=r"type\.go does not have"):
        build.modernise(tmp_path, library)
