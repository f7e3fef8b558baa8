"""The list of cases in which criproxy differs from NVIDIA's code on purpose; `tests.contract` judges all cases."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.vectors.deliberate import DELIBERATE, MAX_DIFFERENCES
from tests.vectors.runner import LOADER, module_of

VECTORS = "nvidia-vectors"


def test_the_list_of_differences_is_short_and_says_why() -> None:
    """A drop-in differs in few cases, each for a reason."""
    assert len(DELIBERATE) <= MAX_DIFFERENCES
    assert all(difference.reason for difference in DELIBERATE.values())


def test_the_list_of_differences_names_cases_that_exist(shared_dir: Path) -> None:
    """A difference that no case shows is no difference, and a case that says so itself is listed, too."""
    cases = dict(_cases(shared_dir / VECTORS))
    honoured = {name for name, case in cases.items() if "expect_if_honoured" in case}

    assert not DELIBERATE.keys() - cases.keys()
    assert not honoured - DELIBERATE.keys()


def _cases(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every case, by its judging module and its id."""
    for path in directory.glob("*.yaml"):
        for case in yaml.load(path.read_text(), Loader=LOADER)["cases"]:  # noqa: S506 (a safe one)
            yield f"{module_of(case)}:{case['id']}", case
