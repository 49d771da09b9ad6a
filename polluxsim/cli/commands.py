"""The commands of polluxsim: their names, groups and exit statuses, and the parser of each."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from polluxsim.cli.options import add_option, as_setting, as_workload
from polluxsim.common.errors import InvalidConfigError, did_you_mean

NO = 1  # exit status if the answer of a command is no, or if a part of its work failed. Success is 0, and wrong input 2


class Command(NamedTuple):
    """A command of the command line."""

    summary: str
    module: str  # in polluxsim.cli; its function `add_NAME` declares the command's options
    overrides: bool = False  # whether it takes settings as KEY=VALUE
    configs: bool = False  # whether it reads configuration files of the user
    no: str = ""  # when its exit status is `NO`
    names: bool = False  # whether names stand among the settings

    def takes(self, word: str) -> bool:
        """Return whether a word may stand among the settings: KEY=VALUE, or ~KEY to delete a setting.

        If the command takes `names` too, any word may be one.
        """
        return self.names or "=" in word or word.startswith("~")


class Group(NamedTuple):
    """Commands on one subject. Their names begin with the same word."""

    summary: str
    commands: tuple[str, ...]


COMMANDS: Mapping[str, Command] = {
    "run": Command("simulate a workload under a policy; with -m, run a sweep", "run",
                   no="if no job of a run ever got a GPU"),
    "check": Command("test a policy in 1,000 random clusters and workloads", "studies", configs=True,
                     no="if a fault was found"),
    "arena": Command("compare policies on named scenarios and rank them", "studies", overrides=True, configs=True,
                     no="if a policy failed"),
    "size": Command("find the smallest cluster for a target", "studies", overrides=True, configs=True,
                    no="if no size or load meets the target"),
    "evolve init": Command("write a task: an initial program, an evaluator and worlds", "evolve"),
    "evolve score": Command("score a program in a task", "evolve", no="if the program is refused or faulty"),
    "evolve search": Command("search for a program without a language model", "evolve"),
    "table": Command("print a table of the metrics of runs", "tables"),
    "compare": Command("compare settings with a baseline, over pairs of runs", "tables"),
    "bound": Command("print how far runs are from the best possible schedule", "bound",
                     no="if a run is better than its bound"),
    "regret": Command("print what single decisions of a run cost", "regret",
                      configs=True),
    "plot": Command("draw a figure", "figures"),
    "report": Command("write runs to an interactive HTML file", "figures"),
    "timeline": Command("write a run to a timeline for Perfetto", "figures"),
    "whatif": Command("change a run from a time on, and compare", "whatif", overrides=True, configs=True),
    "when": Command("forecast when jobs start and complete, with intervals", "when", overrides=True, configs=True,
                    names=True),
    "why": Command("explain why a job waited, started, moved or changed size", "why"),
    "log import": Command("check a cluster's log and write a Parquet file", "log"),
    "log extract": Command("write a small anonymous extract of a log that does not import", "log_extract",
                           no="if the extract would have another fault, so that it is not written"),
    "log nodes": Command("read a site's nodes and write a cluster configuration", "site"),
    "log calibrate": Command("find the policy and cluster behind a log's waits", "log", overrides=True, configs=True),
    "log whatif": Command("replay a log with other nodes, loads and policies", "log", overrides=True, configs=True),
    "log judge": Command("forecast the second part of a log, and compare", "log", overrides=True, configs=True),
    "log decisions": Command("compare a policy with each recorded start of a cluster", "log_decisions", overrides=True,
                             configs=True, no="if fewer decisions agree than --at-least"),
    "workload": Command("write the jobs of a workload, drawn or from a log", "workload", overrides=True, configs=True),
    "twin config": Command("read slurm.conf, and write a cluster and a policy", "twin"),
    "twin collect": Command("save the state of a running Slurm in files", "twin"),
    "twin eta": Command("estimate when the jobs of a running Slurm start and end", "twin", configs=True),
    "twin try": Command("estimate when a job would start if it were submitted", "twin", configs=True),
    "twin whatif": Command("estimate what a change would do to the waiting jobs", "twin", configs=True),
    "profile fit": Command("fit profile cards to measurements", "profile"),
    "profile card": Command("compute a profile card of a transformer", "profile"),
    "paper reproduce": Command("reproduce tables and figures of papers", "paper", overrides=True,
                               no="if a table or figure could not be made, or with --check, if a number is not met",
                               names=True),
    "paper conformance": Command("compare with published numbers of other simulators", "paper",
                                 no="if a published number is not met or a comparison could not be made"),
}  # fmt: skip

GROUPS: Mapping[str, Group] = {
    group: Group(summary, tuple(name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{group} ")))
    for group, summary in {
        "evolve": "let programs write policies, and score them",
        "log": "import a cluster's log, replay it, or judge forecasts",
        "twin": "estimate when its jobs start",
        "profile": "fit profile cards, or compute one",
        "paper": "compare with published numbers",
    }.items()
}

PURPOSES = {
    "run and judge policies": ("run", "check", "arena", "size", "evolve"),
    "look at finished runs": (
        "table",
        "compare",
        "bound",
        "regret",
        "plot",
        "report",
        "timeline",
        "whatif",
        "when",
        "why",
    ),
    "ask a running Slurm": ("twin",),
    "prepare data and compare with papers": ("log", "workload", "profile", "paper"),
}
"""Commands and groups by purpose."""


def overview() -> str:
    """Return the help of polluxsim: a line for each command or group, by purpose.

    The help text fits on a screen of 24 lines. A purpose with a single command therefore stands on the command's line.
    """
    lines = ["usage: polluxsim COMMAND [OPTION ...]; 'polluxsim COMMAND --help' prints options"]
    for purpose, names in PURPOSES.items():
        summaries = {name: (GROUPS.get(name) or COMMANDS[name]).summary for name in names}
        if len(names) == 1:
            lines.append(f"{purpose}: {names[0]} - {summaries[names[0]]}")
            continue
        lines.append(f"{purpose}:")
        for name, summary in summaries.items():
            lines.append(_line(name, summary))
    return "\n".join(lines)


def of_group(group: str) -> str:
    """Return the help of a group of commands."""
    lines = [_line(name, COMMANDS[f"{group} {name}"].summary) for name in GROUPS[group].commands]
    first = [f"usage: polluxsim {group} COMMAND [--help | OPTION ...]", "", "commands:"]
    last = ["", f"'polluxsim {group} COMMAND --help' prints the options of a command."]
    return "\n".join([*first, *lines, *last])


def _line(name: str, summary: str) -> str:
    return f"    {name:<13}{summary}"


def parser_of(name: str) -> Parser:
    """Return the parser of a command other than `run`."""
    command = COMMANDS[name]
    parser = Parser(prog=f"polluxsim {name}")
    # Only the module of this command, so that --help does not wait for the imports of other commands.
    module = import_module(f"polluxsim.cli.{command.module}")
    declare_options = getattr(module, f"add_{name.replace(' ', '_')}")
    declare_options(parser)
    if command.configs:
        add_option(parser, "config-dir")
    # After the options, because a command may set its epilog with them.
    parser.state(statuses(command))
    return parser


def statuses(command: Command) -> str:
    """Return the exit statuses of a command in a sentence."""
    failure = f" {NO} {command.no}," if command.no else ""
    return f"Exit status: 0 after success,{failure} 2 for wrong input."


class _Help(argparse.HelpFormatter):
    """Formatter of help texts that keeps the lines of a text with several lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = []
        for line in text.split("\n"):
            # A command that the user copies must stay in one line.
            is_command = line.startswith(("  ", "Example: "))
            lines.append(line if is_command else super()._fill_text(line, width, indent))
        return "\n".join(lines)


class Parser(argparse.ArgumentParser):
    """Parser of a command. It raises InvalidConfigError about a mistake, in place of a SystemExit.

    An error message has one line; it repeats the user's words and states what to do.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _Help, "add_help": True, **options})
        self._needed: list[argparse.Action] = []

    def state(self, statuses: str) -> None:
        """State the exit statuses in the help text, and in those of subcommands, before the example."""
        # A subcommand, like a kind of figure, has a help text of its own.
        parsers: list[argparse.ArgumentParser] = [self]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
        for parser in parsers:
            before, example, after = (parser.epilog or "").partition("Example: ")
            parser.epilog = f"{before}{statuses}\n\n{example}{after}"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options and the unknown arguments. A required output may be missing until `check` is called.

        An argument that takes several words has the words before and after the options; argparse takes only the first
        row of words.
        """
        # A mistake in a word is reported before a missing output, which argparse would report first.
        self._needed = [action for action in self._actions if action.required and action.dest == "output"]
        for action in self._needed:
            action.required = False
        try:
            options, unknown_words = super().parse_known_args(args, namespace)
        finally:
            for action in self._needed:
                action.required = True
        for action in self._actions:
            if action.nargs in ("*", "+"):
                values = [*getattr(options, action.dest), *self._more_values(action, unknown_words)]
                setattr(options, action.dest, values)
                unknown_words = [word for word in unknown_words if word.startswith("-")]
        return options, unknown_words

    def _more_values(self, action: argparse.Action, words: Sequence[str]) -> list[Any]:
        """Return the values of an argument for the words that are no options.

        Raise InvalidConfigError if one of the words has no value.
        """
        try:
            return [self._get_value(action, word) for word in words if not word.startswith("-")]
        except argparse.ArgumentError as error:
            self.error(str(error))

    def format_help(self) -> str:
        """Return the help text, which shows the required arguments of the command."""
        # --help asks for the text while `parse_known_args` lets the output be missing.
        for action in self._needed:
            action.required = True
        return super().format_help()

    def check(self, options: argparse.Namespace) -> None:
        """Raise InvalidConfigError if the command needs an output and none is given."""
        missing = [action for action in self._needed if getattr(options, action.dest) is None]
        if missing:
            name = missing[0].option_strings[-1]
            self.error(f"{name} is missing; give it as {name} {missing[0].metavar}")

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Raise InvalidConfigError about arguments that are unknown to the command."""
        word = words[0].partition("=")[0]
        takes_settings = COMMANDS[self.prog.partition(" ")[2]].overrides
        if not word.startswith("-"):
            advice = as_workload(words[0]) if takes_settings else ""
            self.error(f"there is no place for the argument {words[0]!r}; {advice or 'leave it out'}")
        hint = as_setting(word) if takes_settings else ""
        # The search in all other commands is slow, so it is the last.
        hint = hint or similar_option(word, self._actions) or _elsewhere(word, self.prog)
        self.error(f"there is no option {word}{hint}")

    def error(self, message: str) -> NoReturn:
        """Raise InvalidConfigError with a message of argparse in plain words."""
        command = self.prog.partition(" ")[2]
        raise InvalidConfigError(f"{command}: {in_words(message)} ('{self.prog} --help' says more)")


MESSAGES = (
    (r"^argument (\S+): (is .*)$", r"\1 \2"),  # a type of `polluxsim.cli.options`
    (r"^argument (\S+): invalid choice: (.*) \(choose from (.*)\)$", r"\1 is \2, must be one of \3"),
    (r"^argument (\S+): expected one argument$", r"\1 has no value; give one after it"),
    (r"^argument (\S+): not allowed with argument (\S+)$", r"\1 cannot be used with \2; leave one out"),
    (r"^argument (\S+): ignored explicit argument (.*)$", r"\1 takes no value, but \2 is given; leave it out"),
    (r"^the following arguments are required: (.*)$", r"missing: \1; add it to the command"),
    (r"^one of the arguments (.*) is required$", r"one of \1 is missing; give one of them"),
    (r"^ambiguous option: (\S+) could match (.*)$", r"\1 may mean \2; write the whole name"),
)
"""Messages of argparse, and the messages that replace them."""


def in_words(message: str) -> str:
    """Return a message of argparse in plain words with a remedy, and with the known choice that is most similar."""
    for pattern, words in MESSAGES:
        message = re.sub(pattern, words, message)
    # Only for a choice, argparse states what is allowed.
    match = re.search(r"(.*) is '(.*?)', must be one of (.*)", message)
    if match is None:
        return message
    option, value, choices_text = match.groups()
    choices = re.findall(r"[\w-]+", choices_text)
    return f"{option} is {value!r}, must be one of {', '.join(choices)}{did_you_mean(value, choices)}"


def similar_option(word: str, actions: Sequence[argparse.Action]) -> str:
    """Return the end of an error message that names the option most similar to a word, or "" if none is similar."""
    # Compared with their dashes, all options would be similar.
    plain_word = word.strip("-")
    if len(plain_word) == 1:  # a letter is similar to each short word
        return ""
    names = []
    for action in actions:
        names += [option.strip("-") for option in action.option_strings if option.startswith("--")]
    return did_you_mean(plain_word, names).replace("mean ", "mean --")


def _elsewhere(option: str, program: str) -> str:
    """Return the end of an error message about an option that only another command has; "" if no command has it."""
    if option in ("-o", "--output"):
        return f" in '{program}', which prints its result; write it to a file with > FILE"
    for name in COMMANDS:
        if name != "run" and any(option in action.option_strings for action in parser_of(name)._actions):
            return f" in '{program}'; 'polluxsim {name}' has it"
    return ""
