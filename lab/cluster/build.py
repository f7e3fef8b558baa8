"""Kubernetes' own programs, made once from Debian's packages alone and kept in the user's cache directory.

    python -m lab.cluster --build

Debian 12 has the whole source of Kubernetes 1.20.2, and the Go that it builds with; both are unpacked below the cache,
never installed. What was built is used without a look at the network. A build that was cut goes on where it was.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.cache import directory
from tests.runtimes.debian import FetchError, Suite, run

SUITE = "bookworm"
UPSTREAM = "1.20.5+really1.20.2"
"""The version of Debian's source package, which is Kubernetes 1.20.2."""
ORIG = f"kubernetes_{UPSTREAM}.orig.tar.gz"
ORIG_SHA256 = "b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc"
RECIPE = "3"
"""Another one, whenever the steps make other programs."""
BUILT = ("kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler")
CNI = ("bridge", "host-local", "loopback")
"""Programs that give pods a network."""
TAKEN = {
    "etcd-server": ("usr/bin/etcd",),
    "kubernetes-client": ("usr/bin/kubectl",),
    "containernetworking-plugins": tuple(f"usr/lib/cni/{name}" for name in CNI),
}
"""Programs that Debian has as packages."""
PROGRAMS = (*BUILT, *(Path(path).name for paths in TAKEN.values() for path in paths))
TOOLS = ("golang-1.19-go", "golang-1.19-src", "golang-github-modern-go-reflect2-dev")
"""Packages that the build needs."""
_VERSION = "v1.20.2"
_REFLECT2 = "github.com/modern-go/reflect2"
_VALIDATION = (
    "vendor/github.com/go-openapi/validate/type.go",
    "vendor/k8s.io/kube-openapi/pkg/validation/validate/type.go",
)
_SAME_ADDRESS = " || reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data))"
_OPENAPI_TAG = "+k8s:openapi-gen="
_NOT_OPENAPI = ("/testdata/", "/code-generator/", "/sample-apiserver/", "/kube-openapi/")
HOW = "make cluster, as root, with a mirror of Debian"


class BuildError(RuntimeError):
    """The programs cannot be built; the text says which step failed, and why."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything lies below the *cache* folder."""

    cache: Path

    @property
    def programs(self) -> Path:
        """The folder of all programs of `PROGRAMS`."""
        return self.cache / "bin"

    @property
    def work(self) -> Path:
        """What the build needs; removed at its end."""
        return self.cache / "work"

    @property
    def root(self) -> Path:
        """Where Debian's packages are unpacked."""
        return self.work / "root"

    @property
    def source(self) -> Path:
        """Kubernetes' source, in a GOPATH."""
        return self.work / "go/src/k8s.io/kubernetes"


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the build, done once."""

    name: str
    about: str
    do: Callable[[Places], None]


def find(cache: Path | None = None) -> Path | None:
    """The folder of the programs in the *cache*; None unless all were built from what this file names."""
    places = Places(cache or directory("cluster"))
    try:
        built = json.loads((places.cache / "built.json").read_text())
    except FileNotFoundError:
        return None
    there = all((places.programs / name).is_file() for name in PROGRAMS)
    return places.programs if there and built == _identity() else None


def build(cache: Path | None = None, steps: Sequence[Step] | None = None) -> Path:
    """The folder of the programs, built if they are not there yet: ten minutes on two CPUs, and 3 GB meanwhile.

    Args:
        cache: where they are kept; the user's cache directory if not given.
        steps: `STEPS` if not given.

    Raises:
        FetchError: Debian's packages cannot be had.
        BuildError: they are not what they should be, or a command failed.
    """
    places = Places(cache or directory("cluster"))
    places.cache.mkdir(parents=True, exist_ok=True)
    with (places.cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found := find(places.cache):
            return found
        places.work.mkdir(exist_ok=True)
        for number, step in enumerate(steps := steps or STEPS, 1):
            done = places.work / f"{step.name}.{RECIPE}.done"
            if not done.exists():
                print(f"cluster: {number}/{len(steps)} {step.about}", file=sys.stderr)
                step.do(places)
                done.touch()
        (places.cache / "built.json").write_text(json.dumps(_identity()))
        shutil.rmtree(places.work)
    return places.programs


def _identity() -> dict[str, str]:
    """What the programs depend on; another one makes them anew."""
    return {"source": UPSTREAM, "sha256": ORIG_SHA256, "recipe": RECIPE}


# ---------------------------------------------------------------- the steps


def fetch(places: Places) -> None:
    """Download the source and the packages; apt checks Debian's signatures, we the digest of the source."""
    packages = places.work / "packages"
    shutil.rmtree(packages, ignore_errors=True)
    shutil.rmtree(places.work / "apt", ignore_errors=True)
    packages.mkdir()
    suite = Suite(SUITE, places.work / "apt", sources=True)
    suite.update()
    for name in (*TOOLS, *TAKEN):
        suite.download(name, suite.version(name)).rename(packages / f"{name}.deb")
    suite.source("kubernetes", UPSTREAM, packages)
    if not (packages / ORIG).is_file():
        raise BuildError(f"Debian's source package of kubernetes {UPSTREAM} has no {ORIG}")
    digest = hashlib.sha256((packages / ORIG).read_bytes()).hexdigest()
    if digest != ORIG_SHA256:
        raise BuildError(f"{ORIG} has the SHA-256 {digest}, not {ORIG_SHA256}: it is not what this rig was made for")


def unpack(places: Places) -> None:
    """Unpack them, and let the source work with a Go that is newer than it."""
    shutil.rmtree(places.root, ignore_errors=True)
    for name in (*TOOLS, *TAKEN):
        run("dpkg-deb", "--extract", str(places.work / f"packages/{name}.deb"), str(places.root))
    shutil.rmtree(places.source, ignore_errors=True)
    places.source.mkdir(parents=True)
    tar = ("tar", "--extract", "--strip-components=1", "--file", str(places.work / "packages" / ORIG))
    run(*tar, "--directory", str(places.source))
    modernise(places.source, places.root / "usr/share/gocode/src" / _REFLECT2)


def modernise(source: Path, reflect2: Path) -> None:
    """Change what works with Go 1.15 alone.

    The library reflect2 there crashes with Go 1.18 and newer, so *reflect2* takes its place. And validation asks
    whether two values are at the same address, which is so for all empty texts now: it would refuse objects with one.

    Raises:
        BuildError: the source is not what it was.
    """
    vendored = source / "vendor" / _REFLECT2
    shutil.rmtree(vendored)
    shutil.copytree(reflect2, vendored)
    for path in _VALIDATION:
        validation = source / path
        text = validation.read_text()
        if text.count(_SAME_ADDRESS) != 1:
            raise BuildError(f"{validation} does not have {_SAME_ADDRESS!r} once")
        validation.write_text(text.replace(_SAME_ADDRESS, ""))


def generate(places: Places) -> None:
    """Make the one source file that the API server lacks: the schemas of its types."""
    generator = places.work / "openapi-gen"
    _go(places, "build", "-o", str(generator), "./vendor/k8s.io/kube-openapi/cmd/openapi-gen")
    command = [str(generator), "-O", "zz_generated.openapi", "--output-base", str(places.work / "go/src")]
    command += ["--output-package", "k8s.io/kubernetes/pkg/generated/openapi"]
    command += ["--go-header-file", str(places.source / "vendor/k8s.io/code-generator/hack/boilerplate.go.txt")]
    command += ["--report-filename", str(places.work / "openapi.report")]
    command += ["--input-dirs", ",".join(openapi_packages(places.source))]
    _command(places, command)


def openapi_packages(source: Path) -> list[str]:
    """The Go packages below *source* whose types want a schema, by import path, without duplicates."""
    found: set[str] = set()
    for top, prefix in (("pkg", "k8s.io/kubernetes/pkg"), ("staging/src/k8s.io", "k8s.io")):
        for file in (source / top).rglob("*.go"):
            wanted = not any(each in f"/{file.relative_to(source)}" for each in _NOT_OPENAPI)
            if wanted and _OPENAPI_TAG in file.read_text(errors="replace"):
                found.add(f"{prefix}/{file.parent.relative_to(source / top)}")
    return sorted(found)


def program(name: str) -> Step:
    """The step that builds one of Kubernetes' programs."""

    def do(places: Places) -> None:
        places.programs.mkdir(exist_ok=True)
        package = "k8s.io/kubernetes/vendor/k8s.io/component-base/version"
        flags = f"-s -w -X {package}.gitVersion={_VERSION} -X {package}.gitMajor=1 -X {package}.gitMinor=20"
        part = places.work / f"{name}.part"
        _go(places, "build", "-ldflags", flags, "-o", str(part), f"./cmd/{name}")
        part.replace(places.programs / name)

    return Step(name, f"building {name}", do)


def take(places: Places) -> None:
    """Keep the programs that are packages."""
    for path in [path for paths in TAKEN.values() for path in paths]:
        shutil.copy2(places.root / path, places.programs / Path(path).name)


STEPS = (
    Step("fetch", f"fetching Debian's source package kubernetes {UPSTREAM}, Go 1.19, etcd and others", fetch),
    Step("unpack", "unpacking them", unpack),
    Step("generate", "generating the API server's schemas", generate),
    *map(program, BUILT),
    Step("take", "keeping etcd, kubectl and the network's programs", take),
)
"""In the order in which they share most of what was compiled."""


def environment(places: Places) -> dict[str, str]:
    """What Go finds: nothing of the user's own settings, and no network."""
    go = places.root / "usr/lib/go-1.19"
    work = places.work
    return {
        **{name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ},
        "PATH": f"{go / 'bin'}:{os.defpath}",
        "HOME": str(work),
        "GOROOT": str(go),
        "GOPATH": str(work / "go"),
        "GOCACHE": str(work / "gocache"),
        "GOENV": "off",
        "GOFLAGS": "",
        "GO111MODULE": "off",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
    }


def _go(places: Places, *arguments: str) -> None:
    _command(places, [str(places.root / "usr/lib/go-1.19/bin/go"), *arguments])


def _command(places: Places, command: list[str]) -> None:
    """Run it in the source at a low priority; what it says is in a file, whose end an error has."""
    log = places.work / "build.log"
    with log.open("ab") as output:
        nice = ["nice", "-n", "10"]
        done = subprocess.run(
            [*nice, *command],
            cwd=places.source,
            env=environment(places),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    if done.returncode:
        end = log.read_text(errors="replace")[-2000:]
        raise BuildError(f"{' '.join(command)[:200]} failed with exit status {done.returncode}; {log} ends so:\n{end}")


__all__ = ["BuildError", "FetchError", "build", "find"]
