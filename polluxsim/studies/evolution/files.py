"""The files of a task beside its worlds: initial program, evaluator, and files for OpenEvolve and SkyDiscover."""

from __future__ import annotations

from pathlib import Path

import yaml

from polluxsim.common.files import atomic_write
from polluxsim.studies.evolution.programs import INITIAL_PROGRAM
from polluxsim.studies.evolution.task import HELD_OUT_FILE, SHORT, TASK_FILE, Task
from polluxsim.studies.evolution.worlds import INITIAL

PROGRAM_FILE = "initial_program.py"
EVALUATOR_FILE = "evaluator.py"
CONFIG_FILE = "config.yaml"
DOCKER_FILE = "Dockerfile"
SCRIPT_FILE = "evaluate.sh"

# A program that is a little worse in the few short worlds may be better in all worlds.
PART_OF_INITIAL = 0.95  # a program goes on to the full stage from this part of the short score of the initial program

SECONDS_MORE = 60  # time that the packages wait longer than both stages take [s]

EVALUATOR = '''"""Score programs that write policies, for OpenEvolve and SkyDiscover."""

from pathlib import Path

from polluxsim.studies.evolution.evaluating import evaluated, evaluated_in_both

TASK = Path(__file__).resolve().parent


def evaluate_stage1(program_path):
    """Return the result of the short stage."""
    return evaluated(TASK, program_path, "short")


def evaluate_stage2(program_path):
    """Return the result of the full stage."""
    return evaluated(TASK, program_path, "full")


def evaluate(program_path):
    """Return the result of both stages, one after the other."""
    return evaluated_in_both(TASK, program_path)
'''

SYSTEM_MESSAGE = """\
You write a scheduling policy of a GPU cluster, as a class Candidate with allocate(self, view, rng). Jobs request GPUs,
and their durations are unknown. The score is the geometric mean of bound / mean JCT over worlds, where no schedule can
beat the bound: make the mean JCT small. A program may import NumPy, standard modules without files, and
polluxsim.policies.tools. Files, network, processes and job.oracle are closed. A decision has 1 s and 1 GiB."""

DOCKER = f"""\
FROM python:3.12-slim
RUN pip install --no-cache-dir polluxsim
WORKDIR /benchmark
COPY {TASK_FILE} {HELD_OUT_FILE} {EVALUATOR_FILE} {SCRIPT_FILE} ./
RUN chmod +x {SCRIPT_FILE}
ENTRYPOINT ["./{SCRIPT_FILE}"]
"""

SCRIPT = """\
#!/usr/bin/env bash
# evaluate.sh PROGRAM train|test: score a program; test uses the held-out worlds. The two words may change places.
program="$1"
mode="${2:-train}"
case "$1" in
    train | val | test)
        mode="$1"
        program="$2"
        ;;
esac
stage=both
if [ "$mode" = test ]; then
    stage=held-out
fi
polluxsim evolve score "$program" --task "$(dirname "$0")" --stage "$stage"
status=$?
# A faulty program has a score, too; for SkyDiscover, 1 would mean that the evaluator failed.
if [ "$status" -eq 1 ]; then
    exit 0
fi
exit "$status"
"""


def write_files(folder: Path, task: Task) -> None:
    """Write the files of a task beside its worlds."""
    texts = {
        PROGRAM_FILE: INITIAL_PROGRAM,
        EVALUATOR_FILE: EVALUATOR,
        CONFIG_FILE: _config(task),
        DOCKER_FILE: DOCKER,
        SCRIPT_FILE: SCRIPT,
    }
    for name, text in texts.items():
        with atomic_write(folder / name) as path:
            path.write_text(text, encoding="utf-8")
    # The script is run as a program, also outside the container.
    (folder / SCRIPT_FILE).chmod(0o755)


def _config(task: Task) -> str:
    """Return the configuration for both packages. Its sections have only keys that both accept."""
    limits = task.stage_limits
    content = {
        "max_iterations": 100,
        "llm": {
            "api_base": "https://api.openai.com/v1",
            "models": [{"name": "gpt-5-mini", "weight": 1.0}],
            "temperature": 0.7,
            "max_tokens": 16000,
            "timeout": 300,
        },
        "prompt": {"system_message": SYSTEM_MESSAGE},
        "evaluator": {
            "timeout": int(limits.short + limits.full) + SECONDS_MORE,
            "cascade_evaluation": True,
            "cascade_thresholds": [round(PART_OF_INITIAL * task.score_of(INITIAL, SHORT), 6)],
        },
    }
    comment = "# For OpenEvolve and SkyDiscover. Choose the model and the address of its service.\n"
    return comment + yaml.safe_dump(content, sort_keys=False)
