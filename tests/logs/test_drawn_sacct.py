"""Drawn outputs of sacct with every oddity that sites have: their traces and reports stay what they were."""

from __future__ import annotations

import hashlib
import random
import re
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.formats.base import BadRowError, parse_units
from polluxsim.logs.formats.log_rows import open_table, parsed, row_of
from polluxsim.logs.formats.slurm import SLURM
from polluxsim.logs.formats.slurm_plain import PlainRows
from polluxsim.logs.importing import import_trace

COLUMNS = (
    "JobID", "JobName", "User", "Account", "Partition", "QOS", "Priority", "State", "Submit", "Eligible", "Start",
    "End", "ElapsedRaw", "Elapsed", "TimelimitRaw", "Timelimit", "NNodes", "Restarts", "ReqTRES", "AllocTRES",
    "AllocGRES", "SubmitLine",
)  # fmt: skip
LEFT_OUT = (
    ("SubmitLine",),
    ("AllocGRES", "SubmitLine", "Restarts"),
    ("Eligible", "ElapsedRaw", "TimelimitRaw", "AllocGRES"),
    ("Start", "AllocTRES", "AllocGRES", "Priority", "SubmitLine"),
    ("Elapsed", "Timelimit", "AllocGRES", "SubmitLine", "NNodes"),
)
FIRST = datetime(2026, 10, 23)  # two days before clocks in Europe repeat an hour
ROWS = 1500

STATES = ("COMPLETED", "COMPLETED", "FAILED", "CANCELLED by 1000", "TIMEOUT", "RUNNING", "PENDING", "OUT_OF_MEMORY")
BLANK_CELLS = ("", "Unknown", "None", " ", "N/A")
ODD_CELLS = {
    "JobID": ("12.batch", "7.extern", "7.0", "33_4", "33_[5-9%2]", "40+0", "40+1", "x1", "", "12 "),
    "JobName": ("a|b", "|", "naïve", "", "None", "a  b", "\u2028", "50_[1%3]"),
    "User": ("", "None", "(null)", "u|v"),
    "Account": ("", "Unknown"),
    "Partition": ("", "gpu,long", "n/a"),
    "QOS": ("", "None"),
    "Priority": ("", "0", "4294967296", "4294967297", "-1", "many", "1_0", "1e3", "17.0"),
    "State": ("REQUEUED", "PREEMPTED", "NODE_FAIL", "RESIZING", "Running", "", " COMPLETED", "CANCELLED+", "BOOT_FAIL"),
    "Submit": ("", "Unknown", "2026-13-01T00:00:00", "1792900000", "2026-10-25T02:30:00+01:00", "2026-10-25", "soon"),
    "Eligible": ("", "Unknown", "2026-10-25T02:30:00", "2026-10-25 02:59:59", "1792900000"),
    "Start": ("", "Unknown", "None", "2026-10-25T02:10:00", "2026-10-25T02:10:00.5", "yesterday"),
    "End": ("", "Unknown", "2026-10-25T02:50:00", "2026-10-25T02:50", "1792900000.0"),
    "ElapsedRaw": ("", "0", "-5", "1e30", "60.0", "1:00", "٣"),
    "Elapsed": ("", "00:00:00", "1-02:03:04", "90", "INVALID", "00:01.500"),
    "TimelimitRaw": ("", "UNLIMITED", "Partition_Limit", "4294967295", "0", "-1", "sixty"),
    "Timelimit": ("", "UNLIMITED", "INVALID", "7-00:00:00", "60"),
    "NNodes": ("", "0", "3", "2.0", "two"),
    "Restarts": ("", "0", "3", "-1", "0.5"),
    "ReqTRES": ("", "cpu=4", "cpu=4,gres/gpu:h100=2", "gres/gpu=x", "gres/shard=2", "billing=1,gres/gpu=3,node=2", "8"),
    "AllocTRES": ("", "cpu=4", "gres/gpu:a100=2,gres/gpu:v100=2", "gres/gpu=99999999", "gres/mps=50", "gres/gpu=7"),
    "AllocGRES": ("", "gpu:2", "gres:gpu:a100:4", "gpu:k80:1(S:0)", "gpu:many", "craynetwork:1"),
    "SubmitLine": (
        "",
        "sbatch --gpus-per-task=2 x",
        "srun --gpus-per-task a100:4 | tee log",
        "sbatch --gpus-per-task=3",
    ),
}


def drawn_cells(generator, number):
    """Return the cells of a job by column."""
    gpus = generator.choice((0, 1, 1, 2, 4, 8, 12))
    nodes = max(1, gpus // 4)
    submit = FIRST + timedelta(seconds=generator.randrange(4 * 86_400))
    start = submit + timedelta(seconds=generator.choice((0, 5, 600, 20_000)))
    seconds = int(generator.expovariate(1 / 5_000))
    resources = f"cpu={8 * nodes},mem={64 * nodes}G,node={nodes}" + (f",gres/gpu={gpus}" if gpus else "")
    kind = generator.choice(("a100", "h100"))
    user = generator.randrange(9)
    minutes = generator.choice((60, 600, 1440))
    return {
        "JobID": str(100 + number),
        "JobName": f"train-{number % 70}",
        "User": f"user{user}",
        "Account": f"lab{user % 3}",
        "Partition": generator.choice(("gpu", "long")),
        "QOS": "normal",
        "Priority": str(generator.randrange(10_000)),
        "State": generator.choice(STATES),
        "Submit": submit.isoformat(),
        "Eligible": submit.isoformat(),
        "Start": start.isoformat(),
        "End": (start + timedelta(seconds=seconds)).isoformat(),
        "ElapsedRaw": str(seconds),
        "Elapsed": f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}",
        "TimelimitRaw": str(minutes),
        "Timelimit": f"{minutes // 60:02d}:00:00",
        "NNodes": str(nodes),
        "Restarts": "0",
        "ReqTRES": resources,
        "AllocTRES": f"{resources},gres/gpu:{kind}={gpus}" if gpus else resources,
        "AllocGRES": f"gpu:{kind}:{gpus}" if gpus else "",
        "SubmitLine": "sbatch train.sh",
    }


@cache
def drawn_output(seed, odd_share):
    """Return the bytes of an output of sacct, of whose rows a share has one or two odd cells."""
    generator = random.Random(seed)
    left_out = generator.choice(LEFT_OUT)
    columns = [name for name in COLUMNS if name not in left_out]
    header = "|".join(columns)
    lines = [header]
    for number in range(ROWS):
        cells = drawn_cells(generator, number)
        if generator.random() < odd_share:
            for name in generator.sample(columns, generator.choice((1, 1, 2))):
                cells[name] = generator.choice((*ODD_CELLS[name], *BLANK_CELLS))
        lines.append("|".join(cells[name] for name in columns))
        oddity = generator.random() / max(odd_share, 1e-9)
        if oddity < 0.02:
            lines.append(header)
        elif oddity < 0.04:
            lines += ["", "   "]
        elif oddity < 0.06:
            lines.append("slurmdb: lost connection")
        elif oddity < 0.10:
            # The same run again, as the next of two overlapping outputs has it, perhaps longer or ended.
            cells |= {"State": generator.choice(("RUNNING", cells["State"])), "ElapsedRaw": "77"}
            lines.append("|".join(cells[name] for name in columns))
        elif oddity < 0.14:
            for part in range(generator.choice((2, 3))):
                cells["JobID"] = f"{5000 + number}+{part}"
                lines.append("|".join(cells[name] for name in columns))
        elif oddity < 0.18:
            requeued = (FIRST + timedelta(seconds=400_000 + number)).isoformat()
            lines.append("|".join({**cells, "Submit": requeued, "Eligible": requeued}[name] for name in columns))
        elif oddity < 0.20:
            # A job that was cancelled before it held its GPUs.
            cells |= {"ElapsedRaw": "0", "Elapsed": "00:00:00", "End": cells["Start"]}
            cells |= {"AllocTRES": generator.choice(("", cells["AllocTRES"]))}
            lines.append("|".join(cells[name] for name in columns))
    text = generator.choice(("\n", "\r\n")).join(lines) + generator.choice(("", "\n"))
    # The name of a job in another encoding, and a NUL.
    data = text.encode().replace(b"train-13|", b"tr\xe4in-13|").replace(b"train-14|", b"tr\x00in-14|")
    return generator.choice((b"", b"\xef\xbb\xbf")) + (data if odd_share else text.encode())


def outcome_of(folder, source, **options):
    """Return the digest of all that an import tells: the trace with its metadata, and the tallies or the error."""
    trace = folder / "trace.parquet"
    trace.unlink(missing_ok=True)
    try:
        report = import_trace("slurm", source, trace, **options)
    except InvalidInputError as error:
        told = str(error).replace(str(folder), "")
        return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    table = pq.read_table(trace)
    metadata = sorted((table.schema.metadata or {}).items())
    columns = [(field.name, str(field.type), field.nullable) for field in table.schema]
    tallies = [
        (str(tally.reason), tally.count, [tuple(place) for place in tally.places])
        for tally in (*report.dropped, *report.bad, *report.suspicious)
    ]
    told = repr((metadata, columns, table.to_pydict(), report.rows_read, tallies))
    return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:16]


# The outcomes of the reader that read every row alone, before `PlainRows`. After a change of a text or a column they
# are other ones; `outcome_of` says which.
OUTCOMES = {
    "without oddities": (1, 0.0, {}, "8eb6012cacf90cb3"),
    "few oddities": (2, 0.02, {}, "4eaca379bbaec3b7"),
    "some oddities": (3, 0.1, {}, "c38e1b671d91ce8c"),
    "many oddities": (4, 0.3, {"cluster_gpus": 8}, "ec855cd9930aa7e7"),
    "only oddities": (5, 1.0, {}, "5671c5497d226685"),
    "shares of GPUs": (6, 0.2, {"unit": "gpus,gres/shard*0.25"}, "b487543e2c8570c7"),
    "CPUs": (7, 0.2, {"unit": "cpus"}, "664f3f2fdec7840b"),
    "a clock that is not changed": (8, 0.1, {"time_zone": "UTC"}, "806256cb31a57aeb"),
    "the first bad row ends it": (10, 0.05, {"skip_bad": False}, "3f6f800600037f5e"),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_a_drawn_output_gives_the_same_trace_and_report(case, tmp_path):
    seed, odd_share, options, outcome = OUTCOMES[case]
    log = tmp_path / "sacct.txt"
    log.write_bytes(drawn_output(seed, odd_share))
    options = {"time_zone": "Europe/Berlin", "skip_bad": True, **options}
    assert outcome_of(tmp_path, log, **options) == outcome


def test_times_with_offsets_give_the_same_trace_and_report(tmp_path):
    log = tmp_path / "sacct.txt"
    log.write_bytes(re.sub(rb"(2026-[0-9-]+T[0-9:]{8})", rb"\1+01:00", drawn_output(12, 0.05)))
    assert outcome_of(tmp_path, log, skip_bad=True) == "8abf331e096afd72"


def test_overlapping_outputs_give_the_same_trace_and_report(tmp_path):
    folder = tmp_path / "dumps"
    folder.mkdir()
    whole = drawn_output(13, 0.1).splitlines(keepends=True)
    (folder / "a.txt").write_bytes(b"".join(whole[:1000]))
    (folder / "b.txt").write_bytes(b"".join(whole[:1] + whole[600:]))
    assert outcome_of(tmp_path, folder, time_zone="Europe/Berlin", skip_bad=True) == "65c16200991e284a"


@pytest.mark.parametrize("unit", ["gpus", "gpus,gres/shard*0.25", "cpus"])
def test_a_plain_row_is_the_job_that_the_reader_of_single_rows_makes(unit, tmp_path):
    log = tmp_path / "sacct.txt"
    zone = ZoneInfo("Europe/Berlin")
    sacct = SLURM.counting(parse_units(unit))
    for odd_share, least_plain in ((0.0, 0.8), (0.05, 0.7), (1.0, 0.05)):
        for seed in range(20, 24):
            log.write_bytes(drawn_output(seed, odd_share))
            table = open_table(log, sacct.layout)
            plain_rows = PlainRows(log, table, zone, sacct.units)
            number_of_rows = 0
            number_plain = 0
            for line, text in table.lines:
                assert not isinstance(text, BadRowError)
                number_of_rows += 1
                entry = plain_rows.entry(line, text)
                if entry is None:
                    continue
                number_plain += 1
                row = row_of(log, line, text, table.layout, table.header, zone)
                assert entry == parsed(row, sacct.job_of_row)
            may_be_plain = {"Start", "State", "Submit"} <= set(table.header)
            assert number_plain >= (least_plain * number_of_rows if may_be_plain else 0)
