"""Statistics of the Philly trace beside those of generated traces, and the figures that the generator is made of.

python benchmarks/philly_statistics.py [--data ../shared/data] [--seeds 20]
python benchmarks/philly_statistics.py --figures        the tables of polluxsim/workloads/philly_figures.py
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from polluxsim.logs.formats.philly import PHILLY_GPUS
from polluxsim.workloads import philly_figures as figures
from polluxsim.workloads.philly_figures import BURST_GAP, BURST_KINDS, DURATION_SHARES, GAP_SHARES
from polluxsim.workloads.philly_replay import ReplayLike

if TYPE_CHECKING:
    from collections.abc import Mapping

HOUR, DAY = 3600, 86400
# The days on which the whole cluster was logged.
FIRST_DAY, LAST_DAY = "2017-09-24", "2017-12-12"
CLASS_LIMITS = {"S": 1 * HOUR, "M": 10 * HOUR, "L": 100 * HOUR, "XL": 1000 * HOUR}

SIZES = (1, 2, 3, 5, 10, 20, 50, 70, 100, 150, 200, 300, 500, 700, 1000)


def read_philly(path: Path) -> pd.DataFrame:
    """Return the jobs by submission [s since 1970 UTC], those of the logged days only."""
    rows = pd.read_csv(path, dtype={"cluster": str})
    times = pd.to_datetime(rows["timestamp"])
    rows = rows[(times >= FIRST_DAY) & (times < pd.Timestamp(LAST_DAY) + pd.Timedelta(days=1))]
    frame = pd.DataFrame(
        {
            "time": pd.to_datetime(rows["timestamp"]).astype("datetime64[s]").astype("int64"),
            "duration": rows["duration"],
            "num_gpus": rows["num_gpus"].astype(int),
            "tenant": rows["cluster"],
        }
    )
    return frame.sort_values("time", kind="stable").reset_index(drop=True)


def generated(source: ReplayLike) -> pd.DataFrame:
    """Return a generated trace in the same form; its first Monday is one of 2017's."""
    jobs = source.draw()
    monday = int(pd.Timestamp("2017-09-25").timestamp())
    return pd.DataFrame(
        {
            "time": jobs.times + monday,
            "duration": jobs.durations,
            "num_gpus": jobs.gpus,
            "tenant": jobs.tenants.astype(str),
        }
    )


def is_heartbeat(frame: pd.DataFrame) -> pd.Series:
    """Return which jobs beat: one GPU, under 100 s, another such job of the tenant 600 ± 6 s before or after.

    Only those of the tenant that has most of them: others have pairs by chance.
    """
    short = frame[(frame["num_gpus"] == 1) & (frame["duration"] < 100)]
    beats = pd.Series(data=False, index=frame.index)
    best = np.array([], dtype=np.int64)
    for _, jobs in short.groupby("tenant"):
        times = jobs["time"].to_numpy()
        near = [
            np.searchsorted(times, times + off + 6, "right") > np.searchsorted(times, times + off - 6)
            for off in (600, -600)
        ]
        found = jobs.index[near[0] | near[1]].to_numpy()
        best = found if len(found) > len(best) else best
    beats[best] = True
    return beats


def with_bursts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the jobs that do not beat, tenant by tenant, each with its burst, its size and the gap before it."""
    jobs = frame[~is_heartbeat(frame)].sort_values(["tenant", "time"], kind="stable").reset_index(drop=True)
    gaps = jobs["time"].diff()
    starts = (jobs["tenant"] != jobs["tenant"].shift()) | (gaps > BURST_GAP)
    jobs["burst"] = starts.cumsum()
    jobs["size"] = jobs.groupby("burst")["time"].transform("size")
    jobs["gap"] = gaps.where(~starts)
    return jobs


def statistics(frame: pd.DataFrame) -> dict[str, float]:
    """Return the statistics of one trace, by name; each says over which jobs it is."""
    hours = (frame["time"].max() - frame["time"].min()) / HOUR
    load = (frame["duration"] * frame["num_gpus"]).sum() / HOUR / hours / PHILLY_GPUS
    found = {"offered load of the GPUs": load} | _arrivals(frame) | _bursts(frame)
    usable = frame[(frame["duration"] >= 60) & (frame["duration"] * frame["num_gpus"] < 1000 * HOUR)]
    return found | _marginals(usable)


def _arrivals(frame: pd.DataFrame) -> dict[str, float]:
    gaps = np.diff(frame["time"])
    days = frame["time"] // DAY
    per_day = days.value_counts().reindex(range(days.min(), days.max() + 1), fill_value=0)
    weekend = (per_day.index + 3) % 7 >= 5  # 1970-01-01 was a Thursday
    found = {
        "inter-arrival mean [s]": gaps.mean(),
        "inter-arrival CV": gaps.std() / gaps.mean(),
        "inter-arrival p50 [s]": float(np.median(gaps)),
        "inter-arrival sd of ln": np.log(gaps[gaps > 0]).std(),
        "jobs a weekday": per_day[~weekend].mean(),
        "jobs a day at the weekend": per_day[weekend].mean(),
        "heartbeat [%]": 100 * is_heartbeat(frame).mean(),
    }
    hours = (frame["time"] % DAY // HOUR).value_counts().reindex(range(24), fill_value=0)
    return found | {f"jobs at {hour:02d} h [mean = 1]": 24 * hours[hour] / len(frame) for hour in range(24)}


def _bursts(frame: pd.DataFrame) -> dict[str, float]:
    jobs = with_bursts(frame)
    bursts = jobs.groupby("burst").agg(start=("time", "min"), size=("time", "size"), kinds=("num_gpus", "nunique"))
    sizes = bursts["size"].to_numpy()
    hours = (frame["time"].max() - frame["time"].min()) / HOUR
    logs = np.log(np.maximum(jobs["duration"], 1))
    means = logs.groupby(jobs["burst"]).transform("mean")
    within, total = ((logs - means) ** 2).sum(), ((logs - logs.mean()) ** 2).sum()
    typical = (len(jobs) - (sizes.astype(float) ** 2).sum() / len(jobs)) / (len(sizes) - 1)
    mean_within = within / (len(jobs) - len(sizes))
    mean_between = (total - within) / (len(sizes) - 1)
    starts = np.sort(bursts["start"])
    large = sizes[sizes >= 10]
    return {
        "bursts an hour": len(bursts) / hours,
        "CV of times between bursts": np.diff(starts).std() / np.diff(starts).mean(),
        "bursts of 1 job [%]": 100 * (sizes == 1).mean(),
        "bursts of >= 10 jobs [%]": 100 * (sizes >= 10).mean(),
        "bursts of >= 100 jobs [%]": 100 * (sizes >= 100).mean(),
        "tail exponent (Hill, >= 10 jobs)": 1 / np.log(large / 9.5).mean(),
        "gap in a burst p50 [s]": jobs["gap"].median(),
        "gap in a burst p90 [s]": jobs["gap"].quantile(0.9),
        "jobs in bursts of one GPU count [%]": 100 * sizes[bursts["kinds"] == 1].sum() / len(jobs),
        "ln duration: between bursts / all squares": 1 - within / total,
        "ln duration: ICC(1)": (mean_between - mean_within) / (mean_between + (typical - 1) * mean_within),
    }


def _marginals(usable: pd.DataFrame) -> dict[str, float]:
    gpus, durations = usable["num_gpus"], usable["duration"]
    gpu_time = gpus * durations
    names = np.array([*CLASS_LIMITS])[np.searchsorted([*CLASS_LIMITS.values()], gpu_time, side="right")]
    found = {f"jobs with {count} GPUs [%]": 100 * (gpus == count).mean() for count in (1, 2, 4, 8, 16, 32)}
    found |= {f"duration p{round(100 * share)} [s]": durations.quantile(share) for share in (0.1, 0.5, 0.9, 0.99)}
    found |= {"mean of ln duration": np.log(durations).mean(), "sd of ln duration": np.log(durations).std()}
    for name in CLASS_LIMITS:
        found[f"{name}: jobs [%]"] = 100 * (names == name).mean()
        found[f"{name}: GPU-time [%]"] = 100 * gpu_time[names == name].sum() / gpu_time.sum()
        for count in (1, 2, 4, 8):
            found[f"{name}: {count} GPUs [%]"] = 100 * (gpus[names == name] == count).mean()
    return found


def print_figures(frame: pd.DataFrame) -> None:
    """Print what the generator is made of, as Python."""
    jobs = with_bursts(frame)
    days = (frame["time"].max() - frame["time"].min()) / DAY
    names = [*BURST_KINDS]
    bounds = [*BURST_KINDS.values()]
    jobs["class"] = np.array(names)[np.searchsorted(bounds, jobs["size"], side="right") - 1]
    bursts = jobs.groupby("burst").agg(
        start=("time", "min"), size=("time", "size"), kind=("class", "first"), tenant=("tenant", "first"),
        mixed=("num_gpus", lambda gpus: gpus.nunique() > 1), usual=("num_gpus", lambda gpus: gpus.mode().iloc[0]),
        others=("num_gpus", lambda gpus: (gpus != gpus.mode().iloc[0]).sum()),
    )  # fmt: skip
    print("BURSTS_PER_HOUR =", round(len(bursts) / days / 24, 3))
    print(
        "SIZE_TAIL =", {size: round(float((bursts["size"] >= size).mean()), 4) for size in SIZES}, bursts["size"].max()
    )
    hours = bursts["start"] % DAY // HOUR
    for name in ("small", "large"):
        chosen = (bursts["kind"] == names[-1]) == (name == "large")
        print(f"HOURS {name} =", hours[chosen].value_counts().reindex(range(24), fill_value=0).tolist())
        weekend = (bursts["start"][chosen] // DAY + 3) % 7 >= 5
        logged = pd.Series(np.arange(frame["time"].min() // DAY, frame["time"].max() // DAY + 1))
        weekend_days = ((logged + 3) % 7 >= 5).sum()
        ratio = (weekend.sum() / weekend_days) / ((~weekend).sum() / (len(logged) - weekend_days))
        print(f"WEEKEND {name} =", round(ratio, 3))
    tenants = jobs["tenant"].value_counts().index
    for name in names:
        of_class, of_bursts = jobs[jobs["class"] == name], bursts[bursts["kind"] == name]
        shares = of_bursts["tenant"].value_counts(normalize=True).reindex(tenants, fill_value=0)
        print(f"TENANTS {name} =", (100 * shares).round(1).tolist())
        usual = of_bursts.groupby("usual")["size"].sum() / of_bursts["size"].sum()
        print(f"GPUS {name} =", (100 * usual[usual > 0.0005]).sort_index().round(2).to_dict())
        mixed = of_bursts[of_bursts["mixed"]]
        if len(mixed):
            print(
                f"MIXED {name} =",
                round(len(mixed) / len(of_bursts), 3),
                round(mixed["others"].sum() / mixed["size"].sum(), 3),
            )
            quantiles = of_class["gap"].quantile(list(GAP_SHARES))
            print(f"GAPS {name} =", quantiles.round(1).tolist())
        _print_durations(f"{name}, 1 GPU", of_class[of_class["num_gpus"] == 1])
    for count in (2, 4, 8):
        _print_durations(f"{count} GPUs", jobs[jobs["num_gpus"] == count])
    _print_durations("> 8 GPUs", jobs[jobs["num_gpus"] > 8])
    for count in (2, 4, 8):
        for name in names:
            _print_durations(f"{name} {count} GPUs", jobs[(jobs["num_gpus"] == count) & (jobs["class"] == name)])
    beats = frame[is_heartbeat(frame)]
    print("HEARTBEAT", len(beats) / days / 144, beats["duration"].mean(), beats["duration"].std())


def fit_large_hours(frame: pd.DataFrame, seeds: int) -> list[int]:
    """Return weights of the hours at which large bursts begin under which all jobs come at the trace's hours.

    The trace's own 244 large bursts say little of it, 10 for each hour; how many jobs came in which hour says more.
    """
    aim = _by_hour(frame)
    weights = np.array(figures.LARGE_STARTS_BY_HOUR, dtype=float)
    for _ in range(30):
        figures.LARGE_STARTS_BY_HOUR = tuple(weights)
        found = np.mean([_by_hour(generated(ReplayLike(seed=1000 + seed))) for seed in range(seeds)], axis=0)
        # About 0.6 of the jobs are of large bursts, and these go on into the next hours.
        weights = np.maximum(weights * (1 + (aim - found) / found), 0.02 * weights.mean())
        print(f"largest difference in an hour {np.abs(found - aim).max():.3f} of the mean", file=sys.stderr)
    return [round(1000 * weight / weights.sum()) for weight in weights]


def _by_hour(frame: pd.DataFrame) -> np.ndarray:
    hours = (frame["time"] % DAY // HOUR).value_counts().reindex(range(24), fill_value=0)
    return 24 * hours.to_numpy() / len(frame)


def _print_durations(name: str, jobs: pd.DataFrame) -> None:
    print(
        f"DURATIONS {name} =", len(jobs), jobs["duration"].quantile(list(DURATION_SHARES)).round(0).astype(int).tolist()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA", "../shared/data"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--figures", action="store_true", help="print the generator's tables instead")
    parser.add_argument("--fit-hours", action="store_true", help="print the hours at which large bursts begin instead")
    options = parser.parse_args()
    frame = read_philly(Path(options.data) / "osdi21" / "traces" / "philly.csv")
    if options.fit_hours:
        print("LARGE_STARTS_BY_HOUR =", fit_large_hours(frame, options.seeds))
        return
    if options.figures:
        print_figures(frame)
        return
    drawn = pd.DataFrame(
        [statistics(generated(ReplayLike(hours=1920, start=0, seed=seed))) for seed in range(options.seeds)]
    )
    _print(statistics(frame), drawn)


def _print(trace: Mapping[str, float], drawn: pd.DataFrame) -> None:
    table = Table(title=f"Philly's 80 days, and {len(drawn)} generated ones")
    for column in ("statistic", "trace", "generated, mean", "sd of one", "deviation in sd"):
        table.add_column(column, justify="left" if column == "statistic" else "right")
    for name, value in trace.items():
        mean, spread = drawn[name].mean(), drawn[name].std()
        table.add_row(escape(name), f"{value:.4g}", f"{mean:.4g}", f"{spread:.3g}", f"{(mean - value) / spread:+.1f}")
    Console(width=120, highlight=False).print(table)


if __name__ == "__main__":
    main()
