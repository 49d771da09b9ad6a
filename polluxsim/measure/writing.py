"""Write what was recorded as measured tables, beside what is there already."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

import yaml

from polluxsim.applications.described import FILE, read_described
from polluxsim.applications.measured import PlacementRow
from polluxsim.applications.osdi21 import PLACEMENTS, SCALABILITY, STEP_COLUMNS, VALIDATION_COLUMNS, read_placements
from polluxsim.errors import InvalidConfigError
from polluxsim.files import appearing_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from polluxsim.applications.measured import EpochRow

FOLDER = {"source": "measured with polluxsim.measure", "license": "unknown"}
ABOUT = {"title": "", "optimizer": "unknown", "target": "the end of the training", "learning_rate_rule": "unknown"}
"""What is said of the folder and of an application where the user says nothing; the title is then its name."""


def validation_file(folder: Path, batch_size: int) -> Path:
    """Return the file of the training at a batch size."""
    return folder / f"validation-{batch_size}.csv"


def write_measured(
    root: Path,
    application: str,
    steps: Sequence[PlacementRow],
    epochs: Mapping[int, Sequence[EpochRow]],
    about: Mapping[str, str],
) -> Path:
    """Write step times and epochs by batch size; older rows stay unless measured again. Return the folder."""
    if unknown := about.keys() - FOLDER.keys() - ABOUT.keys():
        raise InvalidConfigError(f"write: {', '.join(sorted(unknown))}; allowed are {', '.join([*ABOUT, *FOLDER])}")
    folder = root / application
    texts = {validation_file(folder, size): _table(VALIDATION_COLUMNS, rows) for size, rows in epochs.items()}
    if steps:
        texts |= _step_tables(folder, steps)
    if epochs:
        said = {**FOLDER, **ABOUT, "title": application, **about}
        texts[root / FILE] = _described(root / FILE, application, min(map(len, epochs.values())), said)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        with appearing_whole(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return folder


def _step_tables(folder: Path, steps: Sequence[PlacementRow]) -> dict[Path, str]:
    path = folder / PLACEMENTS
    before = read_placements(path) if path.exists() else []
    rows = sorted({row[:2]: row for row in (*before, *steps)}.values())
    counted = defaultdict[tuple[int, int, int], list[PlacementRow]](list)
    for row in rows:
        counted[len(row.gpus_by_node), sum(row.gpus_by_node), row.atomic_batch_size].append(row)
    means = [
        (*counts, fmean(row.step_time for row in same), fmean(row.sync_time for row in same))
        for counts, same in sorted(counted.items())
    ]
    placed = [("".join(map(str, row.gpus_by_node)), *row[1:]) for row in rows]
    return {
        path: _table(("placement", *STEP_COLUMNS), placed),
        folder / SCALABILITY: _table(("num_nodes", "num_replicas", *STEP_COLUMNS), means),
    }


def _table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    return "".join(f"{','.join(map(str, row))}\n" for row in (columns, *rows))


def _described(path: Path, application: str, num_epochs: int, about: Mapping[str, str]) -> str:
    """Return the description of the folder, with an application unless somebody has described it already."""
    said: dict[str, Any] = {key: about[key] for key in FOLDER} | {"applications": {}}
    if path.exists():
        text = path.read_text(encoding="utf-8")
        if application in read_described(path):
            return text
        said = yaml.safe_load(text)
    words = {key: about[key] for key in ABOUT}
    said["applications"][application] = {"card": application, **words, "num_epochs": num_epochs}
    return str(yaml.safe_dump(said, sort_keys=False, allow_unicode=True))
