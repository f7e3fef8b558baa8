"""Builds packages as `make package` does, in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEXT = "99.0"
"""The version of the package that tests upgrade to."""
KINDS = ("wheel", "sdist", "deb", "image", "chart", "sbom")


def built(target: Path, *kinds: str, umask: int = 0o022, **env: str) -> dict[str, Path]:
    """Build packages in *target*; returns kind → place."""
    kinds = kinds or KINDS
    run = subprocess.run(
        (sys.executable, "-m", "packager", "build", *kinds, "--target", target),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        umask=umask,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'packaging'}:{os.environ.get('PYTHONPATH', '')}", **env},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return dict(zip(kinds, map(Path, run.stdout.splitlines()), strict=True))


def renumbered(package: Path, scratch: Path, version: str) -> Path:
    """Make the same package with another *version*, in the folder *scratch*."""
    root, made = scratch / "root", scratch / "next.deb"
    subprocess.run(("dpkg-deb", "--raw-extract", package, root), check=True)
    control = root / "DEBIAN/control"
    control.write_text(re.sub("(?m)^Version: .*", f"Version: {version}", control.read_text()))
    (module,) = root.glob("opt/criproxy/lib/*/site-packages/criproxy/__init__.py")
    module.write_text(f'__version__ = "{version}"\n')
    (root / "DEBIAN/md5sums").unlink()
    subprocess.run(
        ("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", root, made), check=True, capture_output=True
    )
    return made
