"""The regret of the decisions of a run in tables and sentences: by time, by kind of difference, by job, by round.

All regrets are shown as seconds of mean JCT: the change of the total JCT over the number of jobs. Rounds that cannot be
compared have no regret, and are only counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from rich.table import Table

from polluxsim.common.errors import listed
from polluxsim.look.tables import boxed
from polluxsim.look.why.sentences import sentence
from polluxsim.metrics.outcomes import number_of
from polluxsim.records.regret import KINDS, WHOLE_CLUSTER, Difference, RegretPath, Regrets, RoundRegret, StatedReason
from polluxsim.statistics.estimates import Estimate, mean
from polluxsim.statistics.number_texts import number_text, with_interval

Clock = Callable[[float], str]
"""Returns a time of the run [s] as text."""

MOST_ROUNDS = 10  # costliest rounds, largest steps, and jobs in a table
MOST_JOBS = 3  # jobs of a round that a sentence names
NUM_STRETCHES = 8  # stretches of time in a table

HINDSIGHT = (
    "A regret is hindsight: both futures have the arrivals and node failures of the run. Positive: the other decision "
    "is better. Regrets of several rounds do not add up; 'polluxsim regret --path' gives steps that do."
)


def estimate(regret: RoundRegret, num_jobs: int) -> Estimate | None:
    """Return the regret of a round, with its 95 % interval if there are enough repetitions for one [s of mean JCT].

    None if the round is not comparable.
    """
    if not regret.values:
        return None
    # A regret has no lower limit.
    return mean([value / num_jobs for value in regret.values], -float("inf"))


def summary_of(regrets: Regrets) -> str:
    """Return how many rounds were compared, and how many of them differ, in a sentence."""
    rounds = regrets.rounds
    without_value = sum(bool(regret.not_comparable) for regret in rounds)
    differing = sum(bool(regret.differences) and not regret.not_comparable for regret in rounds)
    text = (
        f"{regrets.own_policy} decided in {number_of(regrets.num_rounds, 'round')}. {len(rounds):,} of its decisions "
        f"were compared with those of {regrets.other_policy}: {differing:,} different, "
        f"{len(rounds) - differing - without_value:,} equal"
    )
    if without_value:
        text += f", {without_value:,} not comparable"
    return f"{text}."


def on_chance(regrets: Regrets) -> str:
    """Return a sentence if the futures differ also by chance, and no repetitions show it; "" otherwise."""
    has_repetitions = any(len(regret.values) > 1 for regret in regrets.rounds)
    if not regrets.is_drawn or has_repetitions:
        return ""
    return (
        "The policy of the run draws random numbers, or jobs fail at random, so that the futures differ also by "
        "chance; --seeds N repeats them, and gives intervals."
    )


def not_comparable(regrets: Regrets) -> Iterator[str]:
    """Yield the most frequent reasons why rounds cannot be compared, each with the number of its rounds."""
    reasons = Counter(regret.not_comparable for regret in regrets.rounds if regret.not_comparable)
    for reason, count in reasons.most_common(MOST_ROUNDS):
        yield f"not comparable ({number_of(count, 'round')}): {reason}"


def by_time(regrets: Regrets, clock: Clock) -> Table | None:
    """Return the regrets by stretches of time; None without rounds that can be compared."""
    comparable = [regret for regret in regrets.rounds if regret.values]
    if not comparable:
        return None
    first = comparable[0].time
    length = (comparable[-1].time - first) / NUM_STRETCHES
    lines = [["from", "rounds", "differ", "mean regret [s]", "largest [s]", "least [s]"]]
    for number, stretch in sorted(_stretches(comparable, first, length).items()):
        lines.append([clock(first + number * length), *_cells(stretch, regrets.num_jobs)])
    return boxed(lines, "regret by time, in seconds of mean JCT")


def _stretches(rounds: Sequence[RoundRegret], first: float, length: float) -> dict[int, list[RoundRegret]]:
    """Return rounds by the number of their stretch of time. `length` is that of a stretch [s]."""
    stretches = defaultdict[int, list[RoundRegret]](list)
    for regret in rounds:
        stretches[_stretch_at(regret.time, first, length)].append(regret)
    return stretches


def _stretch_at(time: float, first: float, length: float) -> int:
    """Return the number of the stretch that has a time. The first begins at `first`, and each has the length [s]."""
    # A single round, or rounds at one time, have a stretch without length.
    if not length:
        return 0
    # The last round is at the very end of the last stretch.
    return min(int((time - first) / length), NUM_STRETCHES - 1)


def _cells(rounds: Sequence[RoundRegret], num_jobs: int) -> list[str]:
    """Return the number of rounds, the number that differ, and the mean, largest and least regret of all of them."""
    values = [regret.regret / num_jobs for regret in rounds if regret.regret is not None]
    differing = sum(bool(regret.differences) for regret in rounds)
    return [f"{len(rounds):,}", f"{differing:,}", *map(seconds, (fmean(values), max(values), min(values)))]


def seconds(value: float) -> str:
    """Return a number of seconds, with the typographic minus if it is negative.

    >>> seconds(1266.5), seconds(-3.25), seconds(0)
    ('1,266', '−3.250', '0')
    """
    if not value:
        return "0"
    return number_text(value).replace("-", "−")


def by_kind(regrets: Regrets) -> Table | None:
    """Return the regrets by kind of difference; None without rounds that differ and can be compared.

    A round with several kinds counts for each of them.
    """
    lines = [["difference", "rounds", "jobs", "mean regret [s]", "largest [s]", "least [s]"]]
    for kind in KINDS:
        rounds = [regret for regret in regrets.rounds if regret.values and kind in regret.kinds]
        if rounds:
            count, _, *values = _cells(rounds, regrets.num_jobs)
            jobs = sum(difference.kind == kind for regret in rounds for difference in regret.differences)
            lines.append([kind, count, f"{jobs:,}", *values])
    if len(lines) == 1:
        return None
    return boxed(lines, "regret by kind of difference; a round with several kinds counts for each")


def by_job(regrets: Regrets) -> Table | None:
    """Return the jobs whose own JCT changes most over the forks; None if no JCT changes.

    A job that a fork leaves alone counts with the change 0, so the mean is over all rounds that can be compared.
    """
    totals = job_totals(regrets)
    jobs = sorted(totals, key=lambda job: (-abs(totals[job][1]), job))[:MOST_ROUNDS]
    if not jobs:
        return None
    compared = sum(bool(regret.values) for regret in regrets.rounds)
    lines = [["job", "rounds in which it differs", "JCT earlier by, mean of all rounds [s]"]]
    for job in jobs:
        rounds, change = totals[job]
        lines.append([job, f"{rounds:,}", seconds(change / compared)])
    return boxed(lines, f"jobs whose JCT changes most under single decisions of {regrets.other_policy}")


def job_totals(regrets: Regrets) -> dict[str, tuple[int, float]]:
    """Return by job in how many rounds the policies treat it differently, and the sum of the changes of its JCT [s].

    Rounds that are not comparable, and jobs whose JCT never changes, are left out.
    """
    rounds = Counter[str]()
    changes = Counter[str]()
    for regret in regrets.rounds:
        if regret.values:
            rounds.update({difference.job for difference in regret.differences})
            changes.update(regret.jct_changes)
    return {job: (rounds[job], change) for job, change in changes.items()}


def costliest_rounds(regrets: Regrets, clock: Clock) -> list[list[str]]:
    """Return the costliest rounds, each as a list of sentences: the regret and the differences, then reasons."""
    rounds = []
    for regret in regrets.costliest(MOST_ROUNDS):
        value = estimate(regret, regrets.num_jobs)
        assert value is not None
        cost = with_interval(value.value, value.low, value.high, seconds, " s")
        head = f"{clock(regret.time)}: {cost} of mean JCT. {differences_in_words(regret, regrets)}"
        rounds.append([head, *reasons_in_words(regret, regrets)])
    return rounds


def differences_in_words(regret: RoundRegret, regrets: Regrets) -> str:
    """Return how the other policy decides otherwise in a round, in a sentence. Equal differences share a part."""
    phrases: dict[str, list[str]] = {}
    for difference in regret.differences:
        phrases.setdefault(_phrase(difference, regrets), []).append(difference.job)
    parts = []
    for phrase, jobs in phrases.items():
        parts.append(phrase.format(jobs=listed(jobs, MOST_JOBS)))
    return f"{'; '.join(parts)}."


def _phrase(difference: Difference, regrets: Regrets) -> str:
    """Return what the policies do with a job, with `{jobs}` in place of its name."""
    own = _literal(regrets.own_policy)
    other = _literal(regrets.other_policy)
    if difference.job == WHOLE_CLUSTER:
        return f"{other} asks for {difference.other} nodes instead of {difference.own}"
    if difference.kind == "preempt":
        return f"{own if difference.other else other} preempts {{jobs}}"
    if difference.kind == "resize" and difference.own == difference.other:
        return f"{other} gives {{jobs}} another batch size, CPUs or restart delay"
    if difference.kind == "resize":
        return f"{other} gives {{jobs}} {difference.other} GPUs instead of {difference.own}"
    return {
        "start": f"{other} starts {{jobs}}",
        "wait": f"{other} lets {{jobs}} wait",
        "move": f"{other} places {{jobs}} on other GPUs",
    }[difference.kind]


def _literal(name: str) -> str:
    """Return a name in which `str.format` finds nothing to replace."""
    return name.replace("{", "{{").replace("}", "}}")


def reasons_in_words(regret: RoundRegret, regrets: Regrets) -> Iterator[str]:
    """Yield the reasons of both policies for the jobs that gain and lose most in a round."""
    own, other = regret.reasons
    for name, reasons in ((regrets.own_policy, own), (regrets.other_policy, other)):
        for reason in reasons:
            yield f"{name} on {reason[0].job}: {_sentence(reason)}"


def _sentence(reason: StatedReason) -> str:
    """Return a reason as a sentence."""
    record, text = reason
    return sentence(record, {record.kind: text})


def path_table(path: RegretPath, clock: Clock) -> Table | None:
    """Return the gains of the steps of a path by stretches of time, which add up; None without a step."""
    steps = path.steps
    if not steps:
        return None
    first = steps[0].time
    length = (steps[-1].time - first) / NUM_STRETCHES
    stretches = defaultdict[int, list[float]](list)
    for step in steps:
        stretches[_stretch_at(step.time, first, length)].append(step.gain / path.num_jobs)
    lines = [["from", "steps", "gain [s]", "largest [s]", "least [s]"]]
    for number, gains in sorted(stretches.items()):
        texts = map(seconds, (sum(gains), max(gains), min(gains)))
        lines.append([clock(first + number * length), f"{len(gains):,}", *texts])
    return boxed(lines, f"gain by the decisions of {path.other_policy}, in seconds of mean JCT")


def largest_steps(path: RegretPath, clock: Clock) -> Iterator[str]:
    """Yield the steps with the largest gains above 0, the largest first."""
    # At equal gains, the earlier step comes first.
    steps = sorted(path.steps, key=lambda step: (-step.gain, step.number))
    for step in steps[:MOST_ROUNDS]:
        if step.gain > 0:
            yield f"{clock(step.time)} to {clock(step.until)}: {seconds(step.gain / path.num_jobs)} s of mean JCT"


def sum_of_path(path: RegretPath) -> str:
    """Return the sum of the steps of a path, and the mean JCT of both runs, in a sentence.

    If the run of the other policy cannot be compared, the sentence says why.
    """
    last = path.takeovers[-1].total_jct
    if last is None:
        return f"The run of {path.other_policy} cannot be compared: {path.takeovers[-1].not_comparable}."
    own = path.total_jct / path.num_jobs
    other = last / path.num_jobs
    total = sum(step.gain for step in path.steps) / path.num_jobs
    return (
        f"The {len(path.steps):,} steps add up to {seconds(total)} s: the mean JCT is {seconds(own)} s under "
        f"{path.own_policy}, and {seconds(other)} s under {path.other_policy}."
    )
