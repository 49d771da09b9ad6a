"""Run folders as an older version wrote them, whose run.json does not state the other files."""

from __future__ import annotations

import json
from pathlib import Path

from polluxsim.records.completeness import FILES


def forget_files(folder: Path) -> None:
    """Remove the sizes and digests of the tables from run.json, so that a test may change a table."""
    path = folder / "run.json"
    info = json.loads(path.read_text(encoding="utf-8"))
    info.pop(FILES, None)
    path.write_text(json.dumps(info), encoding="utf-8")
