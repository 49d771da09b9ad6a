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
    kinds = {kind: number for number, kind in enumerate(sorted({reason.kind for reason in reasons}))}
    job = np.array([index[reason.job] for reason in reasons], np.uint32)
    time = np.array([reason.time for reason in reasons], np.float64)
    kind = np.array([kinds[reason.kind] for reason in reasons], np.uint32)
    order = np.lexsort((time, job))
    columns: dict[str, NDArray[Any]] = {
        "reason_job": job[order],
        "reason_time": time[order],
        "reason_kind": kind[order],
    }
    return packed(columns, {"jobs": [], "sentences": [sentence(reasons[place]) for place in order.tolist()]})
