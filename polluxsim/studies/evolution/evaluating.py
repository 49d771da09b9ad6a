"""What OpenEvolve and SkyDiscover call: each stage as metrics and texts.

An error in a stage becomes a result with the score 0, and the limits of the task end a stage that takes too long.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polluxsim.studies.evolution.feedback import artifacts_of, shortened
from polluxsim.studies.evolution.scoring import ERROR, Score, failed, read_program, score
from polluxsim.studies.evolution.task import FULL, SHORT, read_task

RESULT_MODULES = ("openevolve.evaluation_result", "skydiscover.evaluation.evaluation_result")
"""Modules with the class `EvaluationResult` of each package. In their cascades, a plain dictionary loses its texts."""


@dataclass
class EvaluationResult:
    """Metrics and texts, where none of the packages is loaded."""

    metrics: dict[str, float]
    artifacts: dict[str, str] = field(default_factory=dict)


def evaluated(folder: Path, program_path: str, stage: str) -> Any:
    """Return the result of a program in a stage of the task in a folder, as the package that is loaded wants it."""
    reached = _score(folder, program_path, stage)
    return _result(reached.metrics, artifacts_of(reached))


def evaluated_in_both(folder: Path, program_path: str) -> Any:
    """Return the result of the full stage, or of the short stage if the program is refused, faulty or late there."""
    short = _score(folder, program_path, SHORT)
    if short.faults:
        return _result(short.metrics, artifacts_of(short))
    return evaluated(folder, program_path, FULL)


def _score(folder: Path, program_path: str, stage: str) -> Score:
    """Return the score of a program in a stage; a score of 0 with the error if one is raised."""
    try:
        source = read_program(Path(program_path))
        return score(source, read_task(folder), stage)
    # If the full stage raised an error, both packages would keep the score of the short stage.
    except Exception as error:  # noqa: BLE001
        return failed(ERROR, stage, [shortened(f"{type(error).__name__}: {error}")])


def _result(metrics: Mapping[str, float], artifacts: Mapping[str, str]) -> Any:
    """Return metrics and texts in the class of the loaded package; with both in a class of both, with none in ours."""
    modules = [sys.modules[name] for name in RESULT_MODULES if name in sys.modules]
    classes: list[Any] = [module.EvaluationResult for module in modules]
    if not classes:
        classes = [EvaluationResult]
    result_class = classes[0]
    if len(classes) > 1:
        # Which of the loaded packages asks is unknown, and each wants its own class.
        result_class = type("EvaluationResult", tuple(classes), {})
    return result_class(metrics=dict(metrics), artifacts=dict(artifacts))
