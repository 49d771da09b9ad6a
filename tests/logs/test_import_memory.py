"""Memory of an import: a row takes what its cells need, and raw logs are read piece by piece."""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import tracemalloc
from datetime import UTC

import pytest

from polluxsim.logs.formats import FORMATS

MEASURE = """
import resource, sys
from pathlib import Path
import pyarrow as pa
from polluxsim.logs.importing import import_trace
report = import_trace("itp", Path(sys.argv[1]), Path(sys.argv[2]))
arrow = pa.default_memory_pool().max_memory() // 1024
print(report.jobs_written, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, arrow)
"""


def peak_of_import(folder, rows):
    """Import a log in random order in a process of its own; return its peak and that of Arrow alone [KiB]."""
    log, generator = folder / f"cluster{rows}.csv", random.Random(rows)
    with log.open("w") as file:
        file.write("job_id,submission_time,duration,num_gpu\n")
        for number in range(rows):
            time, duration = generator.randrange(10**7), generator.randrange(10**5)
            file.write(f"job-{number:032x},{time},{duration},{2 ** generator.randrange(7)}\n")
    arguments = [sys.executable, "-c", MEASURE, str(log), str(folder / f"{rows}.parquet")]
    # Arrow's own allocators keep freed memory back as they please, which is no property of the import.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    jobs, peak, arrow = map(int, done.stdout.split())
    assert jobs == rows
    return peak, arrow


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
def test_a_row_takes_little_memory(tmp_path):
    """As columns of Arrow, not as Python objects, of which a row would be some 1,500 bytes."""
    small, large = peak_of_import(tmp_path, 20_000), peak_of_import(tmp_path, 120_000)
    assert (large[0] - small[0]) * 1024 / 100_000 < 600


def test_raw_philly_log_is_read_piece_by_piece(tmp_path):
    peaks = []
    gc.collect()
    gc.freeze()  # so that objects of earlier tests, which the collector may free, are not counted
    for jobs in (300, 3000):
        attempt = {
            "start_time": "2017-10-02 08:00:00", "end_time": "2017-10-02 09:00:00",
            "detail": [{"ip": "m1", "gpus": [f"gpu{number}" for number in range(8)]}] * 4,
        }  # fmt: skip
        job = {
            "status": "Pass",
            "vc": "v",
            "user": "u",
            "submitted_time": "2017-10-02 07:00:00",
            "attempts": [attempt],
        }
        log = tmp_path / f"log{jobs}"
        log.write_text(json.dumps([{**job, "jobid": f"j{number}"} for number in range(jobs)], indent=1))
        tracemalloc.start()
        assert sum(1 for _ in FORMATS["philly-raw"].read(log, UTC)) == jobs
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert log.stat().st_size > 2_000_000
    assert peaks[1] < 1.2 * peaks[0] < 1_000_000
