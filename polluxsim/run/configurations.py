"""Configuration files and overrides in the form in which users write them; this module does not import Hydra."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import yaml

from polluxsim.common.errors import InvalidConfigError, listed
from polluxsim.common.shipped import shipped
from polluxsim.records.storage import flat

_user_folders: ContextVar[tuple[Path, ...]] = ContextVar("user_folders", default=())

CONFIG_NAME = "run"  # of the file with the defaults of all settings

MOST_NAMED = 3  # largest number of files that a message names

EXPLAINED = re.compile(r"^(\w+): .*?# (.+)$", re.MULTILINE)
"""A setting of a configuration file with its comment."""


def user_folders() -> tuple[Path, ...]:
    """Return the user's folders of configurations, in the order in which they are searched."""
    return _user_folders.get()


def config_files(pattern: str) -> dict[str, Path]:
    """Return the configuration files that match a pattern, by their path in their folder.

    If several folders have a file of the same path, the first folder counts.
    """
    files: dict[str, Path] = {}
    for folder in (*user_folders(), shipped("configs")):
        for path in sorted(folder.glob(pattern)):
            files.setdefault(path.relative_to(folder).as_posix(), path)
    return files


def entries(group: str) -> list[str]:
    """Return the names of the entries of a configuration group.

    >>> entries("engine")
    ['exact', 'log', 'osdi21']
    """
    return sorted(path.stem for path in config_files(f"{group}/*.yaml").values())


def default_entry(group: str) -> str | None:
    """Return the name of the default entry; None if the user's run.yaml has none.

    >>> default_entry("policy")
    'pollux'
    """
    defaults = yaml.safe_load(config_files("run.yaml")["run.yaml"].read_text(encoding="utf-8")).get("defaults", ())
    return next((entry[group] for entry in defaults if isinstance(entry, dict) and group in entry), None)


def known_settings() -> list[str]:
    """Return the names that an override may set, sorted: groups, and the settings of all shipped entries.

    Settings have dotted names. `seed` and some settings of Hydra are included.
    """
    names = {"seed", "hydra.run.dir", "hydra.sweep.dir", "hydra.sweeper.workers", "hydra.sweeper.cache"}
    for path in shipped("configs").glob("*/**/*.yaml"):
        group = path.parent.relative_to(shipped("configs")).as_posix()
        entry = yaml.safe_load(path.read_text(encoding="utf-8"))
        entry.pop("defaults", None)  # an instruction to Hydra, not a setting
        dotted = group.replace("/", ".")
        names.add(group)
        names.update(f"{dotted}.{name}" for name in entry)
        names.update(flat({dotted: entry}))
    return sorted(names)


def comments(group: str, target: str = "") -> dict[str, str]:
    """Return the comments of the settings of a group, from its files that contain `target`, the name of a class.

    The comment of `seed` comes from run.yaml.
    """
    pattern = "run.yaml" if group == "seed" else f"{group}/*.yaml"
    return dict(_comments(pattern, target))


def in_brackets(setting: str, target: str = "") -> str:
    """Return the comment of a setting like `cluster.spot.rate` for the end of an error; "" if its files disagree.

    The files are those of its group that contain `target`.
    """
    group, _, name = setting.rpartition(".")
    pattern = f"{group.replace('.', '/')}/*.yaml" if group else "run.yaml"
    meanings = {meaning for key, meaning in _comments(pattern, target) if key == name}
    # Settings of one name in several classes may mean different things.
    if len(meanings) != 1:
        return ""
    return f" ({meanings.pop()})"


def _comments(pattern: str, target: str) -> list[tuple[str, str]]:
    """Return settings with their comments, from the files that match a pattern and contain `target`."""
    explained: list[tuple[str, str]] = []
    for path in config_files(pattern).values():
        text = path.read_text(encoding="utf-8", errors="replace")
        if target in text:
            explained += EXPLAINED.findall(text)
    return explained


def import_from_here() -> None:
    """Let Python import modules from the current folder, after all other places."""
    # At the end, so that a file of the user, like `queue.py`, does not replace a module of a library.
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


@contextmanager
def searched_first(folders: Sequence[Path]) -> Iterator[None]:
    """Search the user's folders before the shipped folder in the block; raise InvalidConfigError if one is missing."""
    for folder in folders:
        if not folder.is_dir():
            raise InvalidConfigError(f"{folder}: no such folder of configurations; make it, or leave it out")
    token = _user_folders.set((*folders, *user_folders()))
    try:
        yield
    finally:
        _user_folders.reset(token)


def report_replaced(folders: Sequence[Path]) -> None:
    """Print on standard error which files of the user's folders take the place of shipped ones."""
    for folder in folders:
        names = sorted(path.relative_to(shipped("configs")) for path in shipped("configs").rglob("*.yaml"))
        replacing = [str(folder / name) for name in names if (folder / name).is_file()]
        if not replacing:
            continue
        replaced = "take the place of polluxsim's own entries"
        if len(replacing) == 1:
            replaced = "takes the place of polluxsim's own entry"
        print(f"polluxsim: {listed(replacing, MOST_NAMED)} {replaced} of the same name", file=sys.stderr)


SETTING = re.compile(r"(?P<key>[A-Za-z_][\w./@-]*)=(?P<value>.*)", re.DOTALL)
"""An override that changes a setting, without adding or deleting one."""

WITH_SETTINGS = re.compile(r"(?P<name>[^()]+)\((?P<settings>.*)\)", re.DOTALL)
"""A policy with settings: NAME(SETTING=VALUE, SETTING=VALUE)."""

EMPTY = re.compile(r"^(\w+): *\{\}", re.MULTILINE)  # a setting of a configuration file whose value is an empty mapping

OPENING = "([{"
CLOSING = ")]}"
QUOTES = "'\""

RELATIVE = re.compile(r"\+[\d.].*")
"""A number relative to another one, like +2. Hydra and YAML would read it as 2."""

NUM_NODES = "cluster.num_nodes"

NULL = "null"  # Hydra's word for no value

QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
"""Text in quotes."""

DIGITS = re.compile(r"\d+")
"""A name of digits, which Hydra reads as the number of this name, or as text."""

READ_AS_OTHER = re.compile(r"|\s.*|.*\s|true|false|null|[+-]?(nan|inf|[\d.][\d_.]*(e[+-]?[\d_]+)?)", re.IGNORECASE)
"""Text that Hydra does not read as this text without quotes."""

POLICY_GROUP = "policy"  # the group whose entries may have settings in brackets

FUNCTIONS = {
    "bool", "choice", "extend_list", "float", "glob", "int", "interval", "json_str", "range", "shuffle", "sort", "str",
    "tag",
}  # fmt: skip
"""Functions of Hydra. Their brackets contain arguments instead of settings."""


class PolicyText(NamedTuple):
    """A policy in the form in which a command line names it."""

    name: str  # of an entry, or FILE.py:CLASS
    settings: tuple[str, ...] = ()  # each as SETTING=VALUE

    @property
    def overrides(self) -> list[str]:
        """Return the overrides that choose this entry and its settings."""
        return [f"{POLICY_GROUP}={self.name}", *(f"{POLICY_GROUP}.{setting}" for setting in self.settings)]


def split_list(text: str) -> list[str]:
    """Return the parts of a list with commas. Commas inside brackets or quotes do not separate.

    >>> split_list("easy, quotas(gpus={vision: 4, speech: 2})")
    ['easy', 'quotas(gpus={vision: 4, speech: 2})']
    """
    parts = [""]
    depth = 0  # of brackets
    quote = ""  # the quote that the present text is in
    for letter in text:
        if quote:
            if letter == quote:
                quote = ""
        elif letter in QUOTES:
            quote = letter
        elif letter in OPENING:
            depth += 1
        elif letter in CLOSING:
            depth -= 1
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def policy_text(text: str) -> PolicyText:
    """Return the name and the settings of a policy; raise InvalidConfigError if the text has another form.

    >>> policy_text("quotas(gpus={vision: 4}, borrowing=false)").overrides
    ['policy=quotas', 'policy.gpus={vision: 4}', 'policy.borrowing=false']
    """
    match = WITH_SETTINGS.fullmatch(text)
    if match is None:
        if "(" in text or ")" in text:
            raise InvalidConfigError(f"{text}: a bracket is missing; write NAME(SETTING=VALUE, SETTING=VALUE)")
        return PolicyText(text)
    settings = tuple(filter(None, split_list(match["settings"])))
    for setting in settings:
        if SETTING.fullmatch(setting) is None:
            raise InvalidConfigError(f"{text}: {setting!r} is no setting; write NAME(SETTING=VALUE, SETTING=VALUE)")
    return PolicyText(match["name"].strip(), settings)


def as_hydra_takes(words: Iterable[str]) -> list[str]:
    """Return the words of a command line with the pluses, quotes and further overrides that Hydra needs.

    Raise InvalidConfigError for a relative number, or a policy with settings in another form than NAME(SETTING=VALUE).

    >>> as_hydra_takes(["policy=quotas(gpus={vision: 4})", "seed=1"])
    ['policy=quotas', '+policy.gpus={vision: 4}', 'seed=1']
    >>> as_hydra_takes(["policy=easy,quotas(gpus={vision: 4})"])
    ["policy=easy,'quotas(gpus={vision: 4})'"]
    >>> as_hydra_takes(["cluster/failures=null", "policy.gpus={'1001': 4}"])
    ['~cluster/failures', '+policy.gpus={1001: 4}']
    """
    overrides: list[str] = []
    for word in map(without_quoted_keys, words):
        match = SETTING.fullmatch(word)
        if match is None:
            overrides.append(word)
        else:
            overrides += _overrides_of(word, match["key"], match["value"])
    return overrides


def _overrides_of(word: str, key: str, value: str) -> list[str]:
    """Return what Hydra needs in place of the word KEY=VALUE."""
    values = split_list(value)
    if any(map(RELATIVE.fullmatch, values)):
        raise _no_relative_number(word, key, value.replace("+", ""))
    if value.lower() == NULL and is_group(key):
        return [f"~{key}"]  # Hydra refuses GROUP=null
    if key == POLICY_GROUP and any(map(has_settings, values)):
        if len(values) == 1:
            return as_hydra_takes(policy_text(values[0]).overrides)
        # Quoted, so that Hydra takes each as one value of a sweep. `combinations` removes the quotes again.
        choices = [quoted(text) if has_settings(text) else text for text in values]
        return [f"{POLICY_GROUP}={','.join(choices)}"]
    # Without a plus, Hydra refuses names that a mapping of the configuration does not have yet.
    if value.startswith("{") and "." in key:
        return [f"+{word}"]
    # Two pluses also replace a name that the mapping has.
    if is_in_mapping(key):
        return [f"++{word}"]
    return [word]


def _no_relative_number(word: str, key: str, number: str) -> InvalidConfigError:
    """Return the error about a number like +2 for a new run."""
    problem = f"{word}: a number with a + is relative, and a new run has nothing that it could be relative to"
    advice = f"write {key}={number}"
    if key == NUM_NODES:
        advice += f"; 'polluxsim whatif RUN --at TIME {word}' adds nodes to a finished run"
    return InvalidConfigError(f"{problem}; {advice}")


def is_group(key: str) -> bool:
    """Return whether a key chooses an entry of a configuration group of polluxsim, and is not a setting.

    A key with a slash counts as a group, even if there is none of this name. Keys of Hydra do not count.

    >>> [is_group(key) for key in ("agent", "cluster/failures", "seed", "engine.horizon")]
    [True, True, False, False]
    """
    if not key or key.startswith("hydra") or "@" in key:
        return False
    return "/" in key or ("." not in key and bool(config_files(f"{key}/*.yaml")))


def without_quoted_keys(word: str) -> str:
    """Return an override in which the keys of mappings have no quotes, which Hydra does not allow.

    Raise InvalidConfigError if Hydra would read a key without its quotes as another name.

    >>> without_quoted_keys("policy.gpus={'1001': 4, 'a b': 2}")
    'policy.gpus={1001: 4, a b: 2}'
    """
    setting, _, value = word.partition("=")
    if "{" not in value:
        return word

    def unquoted(text: re.Match[str]) -> str:
        if not re.match(r"\s*:", text.string[text.end() :]):
            return text[0]  # a value
        name = text[0][1:-1]
        if READ_AS_OTHER.fullmatch(name) and not DIGITS.fullmatch(name):
            raise InvalidConfigError(
                f"{setting}: the command line cannot state the name {name!r} as a key; write the mapping in a YAML "
                "file of your own, with the name in quotes, and add --config-dir FOLDER"
            )
        return re.sub(r"([\\()\[\]{}:=,])", r"\\\1", name)

    return f"{setting}={QUOTED.sub(unquoted, value)}"


def has_settings(text: str) -> bool:
    """Return whether an unquoted text is a policy with settings, and not a call of one of Hydra's functions."""
    name, bracket, _ = text.partition("(")
    return bool(bracket) and name not in FUNCTIONS and text[0] not in QUOTES


def is_in_mapping(key: str) -> bool:
    """Return whether a setting is in `metrics`, or inside a mapping that is empty in some configuration file.

    >>> [is_in_mapping(key) for key in ("policy.gpus.vision", "policy.inner.backfill", "metrics.energy")]
    [True, False, True]
    """
    group, *path = key.split(".")
    if group == "metrics":  # a mapping that no configuration file has
        return bool(path)
    if len(path) < 2:
        return False
    files = config_files(f"{group}/**/*.yaml").values()
    return any(not _empty_mappings(file, file.stat().st_mtime_ns).isdisjoint(path[:-1]) for file in files)


# A plan of a sweep asks for each of its runs. `changed` is the time of the file, so that a changed file is read again.
@lru_cache(maxsize=1024)
def _empty_mappings(file: Path, changed: int) -> frozenset[str]:
    """Return the settings of a file whose value is an empty mapping."""
    return frozenset(EMPTY.findall(file.read_text(encoding="utf-8", errors="replace")))


def quoted(text: str) -> str:
    r"""Return a text in quotes of Hydra's grammar.

    >>> print(quoted("it's"))
    'it\'s'
    """
    # Hydra's grammar reads a backslash as an escape only before a quote, so only these backslashes are doubled.
    escaped = re.sub(r"(\\+)('|$)", r"\1\1\2", text).replace("'", r"\'")
    return f"'{escaped}'"
