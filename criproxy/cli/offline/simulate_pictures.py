"""``criproxy simulate FILE --svg DIR``: a picture of each case."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from criproxy.cli.pictures.placement_svg import draw
from criproxy.errors import CriproxyError
from criproxy.simulate.scenario.runner import Result


def write(folder: Path, results: Sequence[Result]) -> None:
    """Write ID.svg into *folder* for each case, or ID.RULES.svg where a case was run by several rules.

    Raises:
        CriproxyError: a file cannot be written.
    """
    runs = Counter(result.vector.id for result in results)
    for result in results:
        if result.topology is None:
            continue
        rules = f".{result.rules}" if runs[result.vector.id] > 1 else ""
        file = folder / f"{result.vector.id.replace('/', '-')}{rules}.svg"
        title = result.vector.title or result.vector.id
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(draw(title, result.topology, result.moments) + "\n", encoding="utf-8")
        except OSError as error:
            raise CriproxyError(f"{file} cannot be written: {error.strerror}") from error
