"""`polluxsim log extract`: the extract shows the fault of the log, and no name of the log is in it."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.extracts import anonymous as anonymous_module
from polluxsim.logs.extracts.anonymous import Anonymous, Holds
from polluxsim.logs.extracts.invented import InventedNames
from polluxsim.logs.extracts.known_words import VALUE_WORDS
from polluxsim.logs.extracts.pieces import as_text, lines_of, objects_of
from polluxsim.logs.formats.base import BadRowError
from polluxsim.logs.importing import import_trace

USER = "vanderberg4711234"
ACCOUNT = "kompetenz_KI-weber"
JOB = "Förster/skywalker-v2"
PARTITION = "smithcluster"
HOSTS = "millennium[01-04].example.campusnet"
PATH = "/home/vanderberg4711234/secretproject/run.sh"
SECRETS = ("vanderberg", "4711234", "kompetenz", "weber", "förster", "rster", "skywalker", "smithcluster", "millennium",
           "campusnet", "home", "secretproject", "880417", "10.77.3.9")  # fmt: skip
"""Parts of the names that the test puts into the logs."""

Damage = Callable[[str], str]


def as_is(text: str) -> str:
    return text


def replaced(old: str, new: str) -> Damage:
    def damage(text: str) -> str:
        assert re.search(old, text, re.MULTILINE), f"the log has no {old}"
        return re.sub(old, new, text, count=1, flags=re.MULTILINE)

    return damage


def cut(characters: int) -> Damage:
    return lambda text: text.rstrip()[:-characters]


def sacct(text: str) -> str:
    """Return an output of sacct with names, hosts and paths in it."""
    mark = "\t" if "\t" in text else "|"
    text = text.replace(f"{mark}u1{mark}a1{mark}gpu{mark}", mark + mark.join((USER, ACCOUNT, PARTITION)) + mark)
    bar = re.escape(mark)
    text = re.sub(rf"^(\d+){bar}[abc]{bar}", lambda match: f"{match[1]}{mark}{JOB}{mark}", text, flags=re.MULTILINE)
    lines = []
    for line in text.splitlines():
        more = ("NodeList", "WorkDir") if line.startswith("JobID") else (HOSTS, PATH)
        lines.append(mark.join((line, *more)))
    return "\n".join(lines) + "\n"


def kubernetes(text: str) -> str:
    """Return a list of Kubernetes with names, labels and a host in it."""
    text = re.sub(r'"namespace":"\w+"', f'"namespace":"{ACCOUNT}"', text)
    text = re.sub(r'"(queueName|queue|clusterQueue)":"\w+"', rf'"\1":"{PARTITION}"', text)
    labels = f'"labels":{{"example.campusnet/{USER}":"F\\\\u00f6rster","job-name":"skywalker"}}'
    text = text.replace('"metadata":{', f'"metadata":{{{labels},"annotations":{{"smithcluster":"{PATH}"}},')
    return text.replace('"spec":{', f'"spec":{{"nodeName":"{HOSTS}","hostIP":"10.77.3.9",', 1)


def squeue(text: str) -> str:
    return text.replace('"u1"', f'"{USER}"').replace('"a1"', f'"{ACCOUNT}"').replace('"gpu",', f'"{PARTITION}",')


def sacct_json(text: str) -> str:
    more = f'"user":"{USER}","account":"{ACCOUNT}","name":"{JOB}","nodes":"{HOSTS}","user_id":880417,'
    return text.replace('"user":"u1",', more)


def pbs(text: str) -> str:
    text = text.replace("21.host", "21.millennium.example.campusnet").replace("user=u1 group=g1 queue=q1", "")
    return text.replace(";  ", f'; user={USER} group={ACCOUNT} queue={PARTITION} jobname="{JOB}" ')


def table(text: str) -> str:
    """Return a table with a column of users and one of an unknown name."""
    mark = ";" if ";" in text else ","
    header, *rows = text.splitlines()
    lines = [mark.join((header, "user", "remark"))]
    for row in rows:
        lines.append(mark.join((row, "880417", f"{USER} on {PARTITION} x@example.campusnet")))
    return "\n".join(lines) + "\n"


def gavel(text: str) -> str:
    return text.replace("python3 main.py", f"python3 {PATH} --host 10.77.3.9 --user {USER}")


def swf(text: str) -> str:
    text = text.replace("; Version", f"; Computer: {PARTITION}\n; Contact: {USER}\n; Version")
    return re.sub(r" (5|6|7) 2 -1", " 880417 2 -1", text)


@dataclass(frozen=True)
class Case:
    """A log with names in it, damaged or as it is, and how it is read."""

    log: str
    format: str
    names: Callable[[str], str]
    damage: Damage = as_is
    columns: str = ""


CASES = {
    "a bar in a job's name": Case("sacct-bar-in-name.txt", "slurm", sacct, replaced("WorkDir$", "WorkFolder")),
    "bytes of Latin-1": Case("sacct-latin1.txt", "slurm", sacct),
    "a wrong month": Case("sacct-latin1.txt", "slurm", sacct, replaced("2026-03-02T08:10", "2026-13-02T08:10")),
    "no header": Case("sacct-no-header.txt", "slurm", sacct),
    "fixed width": Case("sacct-fixed-width.txt", "slurm", lambda text: text + f"{USER}  {HOSTS} {PATH}\n"),
    "overlapping outputs": Case("sacct-overlap.txt", "slurm", sacct),
    "shares of a GPU": Case("sacct-shared-gpu.txt", "slurm", sacct),
    "a wrong hour behind tabs": Case("sacct-tab.txt", "slurm", sacct, replaced("T08:10:00", "T28:10:00")),
    "compressed, with an unknown state": Case("sacct.txt.gz", "slurm", sacct, replaced("COMPLETED", "COMPLETE_ISH")),
    "a line that is cut off": Case("sacct-offsets.txt", "slurm", sacct, cut(120)),
    "a missing column": Case("sacct-clock-change.txt", "slurm", sacct, replaced("State", "Stato")),
    "a time limit in words": Case("whatif-unexplained.txt", "slurm", sacct, replaced(r"\|120\|", "|two hours|")),
    "a job's number in words": Case("whatif-unexplained.txt", "slurm", sacct, replaced(r"^3\|", "three|")),
    "JSON that is cut off": Case("sacct-json-two-days.json", "slurm", sacct_json, cut(90)),
    "JSON without a comma": Case("sacct-json-two-days.json", "slurm", sacct_json, replaced('"account"', ' "account"')),
    "JSON with a wrong time": Case("sacct-json-two-days.json", "slurm", sacct_json, replaced("1771119060", '"noon"')),
    "jobs of scontrol": Case(
        "sacct-tab.txt", "slurm",
        lambda text: f"JobId=1 JobName={JOB}\n   UserId={USER}(880417) Account={ACCOUNT}\n   NodeList={HOSTS}\n",
    ),
    "a greeting before the header": Case(
        "whatif-unexplained.txt", "slurm", lambda text: f"Last login: from {HOSTS}\n" + sacct(text)
    ),
    "the queue": Case("squeue.json", "slurm", squeue),
    "a pod with a wrong time": Case("pods.json", "pods", kubernetes, replaced("2026-01-05T10:06:00Z", "10:06")),
    "Kueue 0.15": Case("kueue-0.15.json", "kueue", kubernetes),
    "other accelerators": Case("kueue-accelerators.json", "kueue", kubernetes),
    "a PodGroup of KAI": Case("kai.json", "volcano", kubernetes),
    "an unknown unit": Case("volcano-elastic.json", "volcano", kubernetes, replaced('gpu":"8"', 'gpu":"8Qx"')),
    "a broken record of PBS": Case("pbs.txt", "pbs", pbs, replaced("List.ngpus=4", "List.ngpus=four")),
    "a wrong number of steps": Case("gavel-7-columns.trace", "gavel", gavel, replaced("79561", "many")),
    "a column in milliseconds": Case("muri-milliseconds.csv", "tiresias", table, replaced("^1,1,", "1,one,")),
    "a missing number": Case("small.swf", "swf", swf, replaced(r" -1 -1$", " -1")),
    "numbers of states": Case("table-status-numbers.csv", "table", table),
    "resources without an entry": Case(
        "table-tres-memory.csv", "table", table, replaced("gres/gpu=4", "gres/gpu=four"), "gpus=AllocTRES:gres/gpu"
    ),
    "an unknown word for no limit": Case("table-no-limit-words.csv", "table", table, replaced("UNLIMITED", "ENDLESS")),
    "a GPU type without figures": Case(
        "table-clock-durations.csv", "table",
        lambda text: table(text.replace("duration\n", "duration,gpu_type\n").replace(":00\n", ":00,A1O0\n")),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def logs() -> Path:
    folder = Path(__file__).parents[3] / "shared" / "data" / "logs"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return folder


def log_of(case: Case, logs: Path, folder: Path) -> Path:
    """Write the log of a case, and return its path."""
    raw = (logs / case.log).read_bytes()
    if case.log.endswith(".gz"):
        raw = gzip.decompress(raw)
    text = case.damage(case.names(raw.decode("utf-8", "surrogateescape")))
    raw = text.encode("utf-8", "surrogateescape")
    if case.log.endswith(".gz"):
        raw = gzip.compress(raw)
    path = folder / case.log
    path.write_bytes(raw)
    return path


def outcome(log: Path, case: Case, folder: Path) -> object:
    """Return what an import says about a log, without the places and values of rows."""
    try:
        report = import_trace(case.format, log, folder / "log.parquet", columns=case.columns)
    except BadRowError as error:
        return type(error), error.reason
    except InvalidInputError as error:
        text = str(error).replace(str(log), "")
        return type(error), re.sub(r"\d+|found .*|it has .*", "", text)
    tallies = (*report.dropped, *report.suspicious)
    has_unknown_type = any(item.unknown for item in report.gpu_types)
    return {tally.reason for tally in tallies}, has_unknown_type


def extracted(case: Case, log: Path, folder: Path) -> str:
    """Return the text of the extract of a log; the command must succeed."""
    written = folder / "extract.txt"
    options = [f"--columns={case.columns}"] if case.columns else []
    assert main(["log", "extract", str(log), "-o", str(written), *options]) == 0
    return written.read_bytes().decode("utf-8", "surrogateescape")


def secrets_in(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text.lower()]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_extract_has_the_fault_and_no_name_of_its_log(case: Case, logs: Path, tmp_path: Path) -> None:
    log = log_of(case, logs, tmp_path)
    text = extracted(case, log, tmp_path)
    raw = log.read_bytes()
    if case.log.endswith(".gz"):
        raw = gzip.decompress(raw)
    assert secrets_in(raw.decode("utf-8", "replace")), "the log has no name"
    assert secrets_in(text) == []
    assert outcome(tmp_path / "extract.txt", case, tmp_path) == outcome(log, case, tmp_path)


def test_the_comparison_sees_a_name_that_is_missed(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["bytes of Latin-1"]
    log = log_of(case, logs, tmp_path)
    monkeypatch.setattr(anonymous_module.known_words, "VALUE_WORDS", VALUE_WORDS | {"skywalker"})
    assert secrets_in(extracted(case, log, tmp_path)) == []  # in a column of names, known words are replaced too
    invent = InventedNames._word
    monkeypatch.setattr(InventedNames, "_word", lambda self, word: word if word == "skywalker" else invent(self, word))
    assert secrets_in(extracted(case, log, tmp_path)) == ["skywalker"]


def test_an_extract_with_another_fault_is_not_written(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_of(CASES["overlapping outputs"], logs, tmp_path)
    monkeypatch.setattr(anonymous_module.known_words, "VALUE_WORDS", frozenset())  # so that states are replaced
    assert main(["log", "extract", str(log), "-o", str(tmp_path / "extract.txt")]) == 1
    assert not (tmp_path / "extract.txt").exists()
    printed = capsys.readouterr().out
    assert "the log:     imported; dropped: a repeat of a run" in printed
    assert "the extract: refused: line 2: column 'State'" in printed
    assert "The extract has another fault than the log." in printed


def sacct_rows(number: int) -> str:
    """Return an output of sacct with jobs that are submitted an hour after each other."""
    lines = ["JobID|JobName|User|State|Submit|Start|End|ElapsedRaw|AllocTRES"]
    for job in range(number):
        hour = f"2026-03-{1 + job // 24:02d}T{job % 24:02d}"
        lines.append(f"{job}|run{job % 7}|ann{job % 5}|COMPLETED|{hour}:00:00|{hour}:00:00|{hour}:10:00|600|gres/gpu=4")
    return "\n".join(lines) + "\n"


def test_an_extract_has_the_rows_of_the_fault_and_some_others(tmp_path: Path) -> None:
    lines = sacct_rows(500).splitlines(keepends=True)
    lines[300] = lines[300].replace("|600|", "|ten minutes|")
    lines[400] = lines[400].replace("gres/gpu=4", "cpu=4")
    log = tmp_path / "sacct.txt"
    log.write_text("".join(lines))
    # Without a job, the import would have another fault, so one good row is needed.
    for rows, jobs in (("0", ["299", "398", "399"]), ("2", ["0", "1", "299", "398", "399"])):
        assert main(["log", "extract", str(log), "-o", str(tmp_path / "extract.txt"), "--rows", rows]) == 0
        written = (tmp_path / "extract.txt").read_text().splitlines()
        assert [line.split("|")[0] for line in written[1:]] == jobs


def test_an_extract_has_as_many_rows_as_a_fault_needs(tmp_path: Path) -> None:
    """A burst has ten submissions in the same second."""
    lines = sacct_rows(300).splitlines(keepends=True)
    burst = [
        re.sub(r"T(\d\d):00:00", r"T\1:05:00", lines[150]).replace("149|", f"{9000 + job}|", 1) for job in range(12)
    ]
    log = tmp_path / "sacct.txt"
    log.write_text("".join([*lines[:150], *burst, *lines[150:]]))
    assert main(["log", "extract", str(log), "-o", str(tmp_path / "extract.txt"), "--rows", "0"]) == 0
    assert len((tmp_path / "extract.txt").read_text().splitlines()) == 1 + 10


@pytest.mark.parametrize("form", ["{0}", "{0}\r\n", "\ufeff{0}", "[{0}]", "{{a {0} b", "{0},,{1}]"])
def test_pieces_are_the_text(form: str) -> None:
    text = form.format('{"jobs": [{"a": 1},\n {"b": [{}]} , {"c": 2}], "d": 1}\n', '{"jobs": [{"e": "]"')
    for pieces in (objects_of(text), lines_of(text, has_header=True), lines_of(text, has_header=False)):
        every = {number for number, piece in enumerate(pieces) if piece.is_row}
        assert as_text(pieces, every) == text


def test_rows_of_json_are_left_out_with_their_commas() -> None:
    pieces = objects_of('{"jobs": [{"a": 1}, {"b": [{}]},\n {"c": 2}], "d": 1}')
    rows = [number for number, piece in enumerate(pieces) if piece.is_row]
    assert [pieces[number].text for number in rows] == ['{"a": 1}', '{"b": [{}]}', '{"c": 2}']
    assert [pieces[number].line for number in rows] == [1, 1, 2]
    assert as_text(pieces, {rows[0], rows[2]}) == '{"jobs": [{"a": 1}, {"c": 2}], "d": 1}'
    assert as_text(pieces, {rows[1]}) == '{"jobs": [{"b": [{}]}], "d": 1}'
    assert as_text(pieces, set()) == '{"jobs": [], "d": 1}'


def test_equal_names_stay_equal_and_keep_their_form() -> None:
    names = InventedNames("ann-Lee_v2/ANN node[01-04] 训练 Müller baba")
    first = names.name("ann-Lee_v2/ANN")
    word, rest = first.split("-", 1)
    assert re.fullmatch(rf"{word}-[A-Z][a-z]+_[a-z]+2/{word.upper()}", first), rest
    assert re.fullmatch(r"[a-z]+\[01-04\]", names.name("node[01-04]"))
    assert names.name("ann") == word
    assert "baba" not in first
    assert names.name("训练").endswith("字")
    assert names.name("Müller").endswith("é")
    assert names.name(" None ") == " None "
    assert names.name("n17") != names.name("n18")
    assert "4711234" not in names.name("s4711234")
    assert names.name("1001", with_numbers=True) not in ("1001", names.name("1002", with_numbers=True))
    assert names.name("ip-10-77-3-9") != names.name("ip-10-77-3-8")


@pytest.mark.parametrize(
    "text",
    ["2026-03-02T08:00:00+01:00", "CANCELLED", "cpu=8,gres/gpu:a100=4,mem=64G,node=1", "1-02:03:04", "UNLIMITED",
     "NVIDIA-A100-SXM4-80GB", "0.5", "1e3", "nvidia.com/gpu", "T4|V100M32", "Europe/Berlin", "500m", "256Gi", "-1"],
)  # fmt: skip
def test_known_values_stay(text: str) -> None:
    assert Anonymous(text).value(text) == text


def test_a_number_of_a_job_stays_and_its_name_does_not() -> None:
    anonymous = Anonymous("")
    for job in ("1234_[5-8%2]", "9001.batch", "12+1"):
        assert anonymous.held(job, Holds.JOBS) == job
    assert "train" not in anonymous.held("train-3", Holds.JOBS)
    assert anonymous.value("CANCELLED by 4711").startswith("CANCELLED by ")
    assert "4711" not in anonymous.value("CANCELLED by 4711")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nowhere.txt -o x.txt", "nowhere.txt: no such file; check the path"),
        (". -o x.txt", ".: is a folder, must be a file; give the file of the folder that does not import"),
        ("sacct.txt -o sacct.txt", "sacct.txt: the extract cannot replace the log; give another name for the extract"),
        ("sacct.txt -o .", ".: is a folder, must be a file; give the name of a file for the extract"),
        (
            "words.txt -o x.txt",
            "words.txt: the format is unknown from the first lines; name it with --format, like --format",
        ),
        ("log.parquet -o x.txt --format slurm", "log.parquet: this is a Parquet file, which has no extract; give the"),
        ("sacct.txt -o x.txt --format slum", "the format is 'slum', must be one of"),
        ("sacct.txt -o x.txt --time-zone Europa", "--time-zone is 'Europa', must be a name like Europe/Berlin or UTC"),
        ("sacct.txt", "--output is missing; give it as --output PATH"),
    ],
)
def test_an_error_says_what_to_do(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sacct.txt").write_text(sacct_rows(3))
    Path("words.txt").write_text("some words\nand more\n")
    Path("log.parquet").write_bytes(b"PAR1 and more")
    assert main(["log", "extract", *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not Path("x.txt").exists()
