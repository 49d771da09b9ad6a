"""What decided about every job, in sentences a page looks up when it shows a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polluxsim.look.report.payload import packed
from polluxsim.look.why.words import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from polluxsim.records import ReasonRecord, Result


def packed_reasons(result: Result, reasons: Sequence[ReasonRecord]) -> str:
    """Return the reasons job by job, each with its time, its kind as a number, and its sentence."""
    index = {job.job: number for number, job in enumerate(result.job_records)}
    ordered = sorted(reasons, key=lambda reason: (index[reason.job], reason.time))
    kinds = sorted({reason.kind for reason in ordered})
    columns: dict[str, NDArray[Any]] = {
        "reason_job": np.array([index[reason.job] for reason in ordered], np.uint32),
        "reason_time": np.array([reason.time for reason in ordered], np.float64),
        "reason_kind": np.array([kinds.index(reason.kind) for reason in ordered], np.uint32),
    }
    return packed(columns, {"jobs": [], "sentences": [sentence(reason) for reason in ordered]})
