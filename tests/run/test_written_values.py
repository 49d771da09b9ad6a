"""Values as users write them: durations with units, and names that consist of digits."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import pandas as pd
import pytest
import yaml
from omegaconf import OmegaConf

import polluxsim
from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.shipped import shipped
from polluxsim.common.written import UNIT_OF, as_declared, declared_by, duration_in, settings_as_declared
from polluxsim.engine.settings import EngineSettings
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.reserving.multifactor import Multifactor
from polluxsim.policies.tenants.fairness import DominantResourceFairness, FairQueues
from polluxsim.policies.tenants.quotas import Quotas
from polluxsim.run.building import build
from polluxsim.run.configurations import as_hydra_takes, without_quoted_keys
from polluxsim.run.identity import key_of
from polluxsim.run.suspicions import suspicious
from polluxsim.studies.plan import composer, entry_of
from polluxsim.workloads.workload import Job, Workload

SETTING = re.compile(r"^( *)(\w+): ?([^#]*)# (.*)$")
UNIT = re.compile(r"\[(s|h|GPU s|GPU h)\]")
WITHOUT_COMMENT = {("policy/min-makespan.yaml", "shares.longest"): "s"}  # the comment above it holds for both
NO_SETTING = {("cluster/failures/recorded.yaml", "path")}  # its unit is that of columns of a file


class Duration(NamedTuple):
    """A setting that is a duration, as the comments of the configuration files say."""

    file: str
    setting: str  # dotted name within its file
    unit: str

    @property
    def parts(self) -> list[str]:
        return self.setting.split(".")


def durations() -> list[Duration]:
    found = []
    for path in sorted(shipped("configs").rglob("*.yaml")):
        file, above = path.relative_to(shipped("configs")).as_posix(), ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.fullmatch(r"\w+:", line):
                above = f"{line}."
            setting = SETTING.match(line)
            if setting is None or (unit := UNIT.search(setting[4])) is None:
                continue
            name = f"{above.removesuffix(':.')}.{setting[2]}" if setting[1] else setting[2]
            found.append(Duration(file, name, unit[1]))
    found += [Duration(*place, unit) for place, unit in WITHOUT_COMMENT.items()]
    return found


DURATIONS = durations()
LENGTHS = {"s": 10800.0, "h": 3, "GPU s": 10800.0, "GPU h": 3.0}  # 3h in each unit
REQUIRED = {"rate": 1.0, "path": "x", "groups": [[1, 4]]}
SHAPES = {"queue_limits": lambda value: [value], "costs": lambda value: {"bert": value}}
BY_TYPE = {"restart_delays": lambda value: {"bert": value, "ncf": {"t4": value}}}


def content(duration: Duration, value: object) -> dict[str, Any]:
    """Return a configuration file with another value of a duration, and values of required settings."""
    settings: Any = OmegaConf.to_container(OmegaConf.load(shipped("configs") / duration.file), resolve=False)
    settings.pop("defaults", None)
    for name, given in settings.items():
        if given == "???":
            settings[name] = REQUIRED[name]
        if given == "${seed}":
            settings[name] = 0
    fifo = {"_target_": "polluxsim.policies.ordered.classic.Fifo"}
    if "Scaled" in settings["_target_"]:
        settings |= {"inner": fifo, "scale": {"_target_": "polluxsim.policies.elastic.cluster_size.PendingGpus"}}
    part = settings
    for name in duration.parts[:-1]:
        part = part[name]
    shape = (SHAPES | BY_TYPE).get(duration.parts[-1], lambda value: value)
    part[duration.parts[-1]] = shape(value)
    if duration.parts[-1] in ("cost", "costs"):
        settings["every"] = "epoch"  # a checkpoint must take less time than an interval
    return settings


def made(duration: Duration, settings: dict[str, Any]) -> object:
    """Return the object of a configuration file: as a run builds it, or of a part of a group, as Python builds it."""
    group, *inner = duration.file.split("/")
    if len(inner) == 1:
        return build({group: settings}, group)
    return resolve_name(settings["_target_"])(**{name: value for name, value in settings.items() if name != "_target_"})


def test_the_files_have_durations_of_all_units() -> None:
    assert len(DURATIONS) > 60
    assert {duration.unit for duration in DURATIONS} == set(LENGTHS)


@pytest.mark.parametrize("duration", DURATIONS, ids=lambda duration: f"{duration.file} {duration.setting}")
def test_each_duration_takes_a_unit(duration: Duration) -> None:
    """The key, the labels and the object are those of the number in the unit of the setting."""
    if (duration.file, duration.setting) in NO_SETTING:
        return
    group = duration.file.split("/")[0]
    written, number = content(duration, "3h"), content(duration, LENGTHS[duration.unit])
    plain = settings_as_declared(group, written)
    assert plain == number
    assert key_of({group: plain}) == key_of({group: number})
    assert repr(made(duration, written)) == repr(made(duration, number))
    wrong = content(duration, "3x")
    if duration.setting == "every":  # a word, which the class refuses
        assert settings_as_declared(group, wrong) == wrong
        return
    with pytest.raises(InvalidConfigError, match=re.escape(duration.parts[-1])):
        settings_as_declared(group, wrong)


def test_each_unit_of_a_comment_stands_alone() -> None:
    """A comment like [s of wall-clock time] would hide its setting from the test above."""
    for path in shipped("configs").rglob("*.yaml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            setting = SETTING.match(line)
            if setting is not None and re.search(r"\[(s|h|min|d|GPU)\b", setting[4]):
                assert UNIT.search(setting[4]) is not None, line


def test_each_declared_duration_has_a_comment_with_its_unit() -> None:
    """A duration that a class declares is in a file, so that the test above sees it."""
    named = {(duration.file, duration.setting) for duration in DURATIONS}
    for path in shipped("configs").rglob("*.yaml"):
        file = path.relative_to(shipped("configs")).as_posix()
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        for prefix, part in [("", settings), *((f"{name}.", part) for name, part in settings.items())]:
            if not isinstance(part, dict) or "_target_" not in part:
                continue
            declared = declared_by(part["_target_"]).annotations
            for name in part:
                is_word = part[name] in ("epoch", "young-daly")
                if duration_in(declared.get(name, "")) and not is_word:
                    assert (file, f"{prefix}{name}") in named


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1.5h", 5400.0), ("2 d", 172800.0), ("15min", 900.0), ("1e3s", 1000.0), ("0.1h", 360.0)],
)
def test_a_text_with_a_unit_is_exact(text: str, seconds: float) -> None:
    assert as_declared("x", text, "Seconds") == seconds
    assert as_declared("x", text, "Hours | None") == seconds / 3600


@pytest.mark.parametrize("text", ["3", "3x", "h", "-3h", "+3h", "1:30", "3hh", "1e999h", "nan h", "inf h", "3m", ""])
def test_other_texts_are_refused_with_the_unit(text: str) -> None:
    for kind in UNIT_OF:
        with pytest.raises(InvalidConfigError, match=r"^x is '.*', must be a"):
            as_declared("x", text, kind)


def test_hours_that_must_be_whole_stay_whole() -> None:
    assert repr(as_declared("workload.hours", "2d", "WholeHours")) == "48"
    with pytest.raises(InvalidConfigError, match=r"workload.hours is '90min', must be a whole number of hours"):
        as_declared("workload.hours", "90min", "WholeHours")


def test_a_class_takes_a_unit_in_python() -> None:
    assert EngineSettings(round_interval="1min", horizon="2d") == EngineSettings(60.0, horizon=172800.0)
    assert FairQueues(lookahead="1h").lookahead == 3600.0
    assert Cluster.elastic(4, 1, 4, "2min", 1.0) == Cluster.elastic(4, 1, 4, 120.0, 1.0)
    with pytest.raises(InvalidConfigError, match=r"engine.horizon is '3x'"):
        EngineSettings(horizon="3x")


BY_NAME = {
    "quotas": (Quotas(gpus={1001: 4}).gpus, {"1001": 4}),
    "quotas by type": (Quotas(gpus={1001: {1080: 4}}).gpus, {"1001": {"1080": 4}}),
    "limits": (Quotas(borrowing_limits={1001: 4}).borrowing_limits, {"1001": 4}),
    "weights": (FairQueues({1001: 2.0}).weights, {"1001": 2.0}),
    "drf": (DominantResourceFairness({1001: 2.0}).weights, {"1001": 2.0}),
    "users": (Multifactor(shares={7: 2.0}).shares, {"7": 2.0}),
}


@pytest.mark.parametrize("case", BY_NAME)
def test_a_whole_number_is_a_name(case: str) -> None:
    given, names = BY_NAME[case]
    assert given == names


TRACE = "polluxsim.workloads.trace.TraceReplay"


def test_names_of_logs_may_be_numbers() -> None:
    part = {"_target_": TRACE, "gpu_types": {1: 1080, "V": "v100"}, "priorities": {3: 2}}
    plain = settings_as_declared("workload", part)
    assert (plain["gpu_types"], plain["priorities"]) == ({"1": "1080", "V": "v100"}, {"3": 2})


@pytest.mark.parametrize("key", [True, None, 1.5])
def test_a_key_that_is_no_name_is_refused(key: object) -> None:
    with pytest.raises(InvalidConfigError, match=r"policy.weights has the key .*; put the name in quotes"):
        as_declared("policy.weights", {key: 2}, "Mapping[Name, float]")


def test_quoted_keys_reach_hydra_as_the_same_names() -> None:
    composing = composer()
    for text, name in {"'1001'": "1001", '"a b"': "a b", "'a:b'": "a:b", "'007'": "007", "1001": "1001"}.items():
        config = entry_of((), composing.compose(["policy=quotas", f"policy.gpus={{{text}: 4}}"]), Path("x")).config
        assert config["policy"]["gpus"] == {name: 4}
    assert as_hydra_takes(["policy=fifo,quotas(gpus={'1001': 4})"]) == ["policy=fifo,'quotas(gpus={1001: 4})'"]
    for word in ("true", "null", "1e3", "", " a"):
        with pytest.raises(InvalidConfigError, match="write the mapping in a YAML file of your own"):
            without_quoted_keys(f"policy.gpus={{'{word}': 4}}")


def test_later_values_of_a_merged_mapping_count() -> None:
    assert as_declared("policy.gpus", {"1001": 4, 1001: 2}, "Mapping[Name, float]") == {"1001": 2}


def test_numbers_in_tables_are_names() -> None:
    columns = {"name": [1, 2], "time": 0, "num_replicas": 4, "duration": 600, "queue": [1001, 1002], "after": [None, 1]}
    result = polluxsim.simulate(pd.DataFrame(columns), policy=Quotas(gpus={1001: 4}), cluster=(1, 8), progress=False)
    assert [job.queue for job in result.result.job_records] == ["1001", "1002"]


def entry(*overrides: str) -> Any:
    return entry_of(overrides, composer().compose(overrides), Path("x"))


@pytest.mark.parametrize("group", ["agent", "cluster/failures", "cluster/spot", "engine/sharing", "engine/checkpoints"])
def test_null_chooses_no_entry_of_a_group(group: str) -> None:
    assert entry("policy=fifo", f"{group}=null").key == entry("policy=fifo").key


@pytest.mark.parametrize(
    "words", [("engine.horizon=3h", "engine.horizon=10800"), ("policy=las(quantum=1h)", "policy=las")]
)
def test_equal_durations_are_one_run(words: tuple[str, str]) -> None:
    first, second = map(entry, words)
    assert first.key == second.key
    assert first.config == second.config


@pytest.mark.parametrize("word", ["cluster.num_nodes=+2", "seed=+1", "cluster.num_nodes=2,+4", "engine.horizon=+3h"])
def test_a_new_run_has_no_relative_values(word: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"relative.*; write "):
        as_hydra_takes([word])


SUSPICIOUS = [
    (
        "policy=tiresias(queue_threshold=16)",
        "policy.queue_threshold is 16 GPU s, less than a round (60 s); for 16 h, write 16h",
    ),
    ("policy=tiresias-l(queue_limits=[1,2])", "policy.queue_limits[0] is 1 GPU s"),
    ("policy=multifactor(half_life=7)", "for 7 d, write 7d"),
    ("policy=themis(lease=20)", "for 20 min, write 20min"),
    ("policy=priority(min_run_time=2)", "for 2 h, write 2h"),
    ("engine.restart_delay=30000", "for milliseconds, write 30s"),
    ("engine.round_interval=60000", "for milliseconds, write 60s"),
    ("engine.horizon=24", "for 24 h, write 24h"),
]


@pytest.mark.parametrize(("word", "sentence"), SUSPICIOUS)
def test_a_value_in_a_mistaken_unit_is_reported(word: str, sentence: str) -> None:
    sentences = suspicious(entry(word).config, Workload((Job.rigid("a", 0.0, 1, 600.0),)))
    assert len(sentences) >= 1
    assert sentence in sentences[0]


PLAUSIBLE = ("engine.restart_delay=0.5", "engine.round_interval=1", "engine.decision_limit=1", "engine=log", "seed=3")


@pytest.mark.parametrize("word", PLAUSIBLE)
def test_a_plausible_value_is_not_reported(word: str) -> None:
    assert suspicious(entry(word).config, Workload((Job.rigid("a", 0.0, 1, 600.0),))) == []


def test_no_default_is_suspicious() -> None:
    engine = OmegaConf.to_container(OmegaConf.load(shipped("configs") / "engine" / "exact.yaml"))
    for path in shipped("configs").glob("*/*.yaml"):
        part = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        assert suspicious({"engine": engine, path.parent.name: part}, Workload(())) == []


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        ((1.764e9, 1.764e9 + 60), "the first job is submitted 56 years after the start of the run"),
        ((0.0, 1.764e9), "between jobs 'job-0' and 'job-1' no job is submitted for 56 years"),
        ((0.0, 3e7), None),
    ],
)
def test_times_since_1970_are_reported(times: tuple[float, ...], sentence: str | None) -> None:
    jobs = tuple(Job.rigid(f"job-{number}", time, 1, 600.0) for number, time in enumerate(times))
    sentences = suspicious({}, Workload(jobs, source="folder/w.csv"))
    assert len(sentences) == (sentence is not None)
    if sentence is not None:
        assert sentences[0].startswith(f"w.csv: {sentence}")


def test_keys_of_a_users_class_are_of_one_kind() -> None:
    part = {"_target_": "mine.Policy", "weights": {1001: 2, "vision": 1}}
    assert settings_as_declared("policy", part)["weights"] == {"1001": 2, "vision": 1}
    assert settings_as_declared("workload", {"gpus": {1: 1}})["gpus"] == {1: 1}
