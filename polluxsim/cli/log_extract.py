"""The command `log extract`: a small anonymous extract of a log that does not import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.cli.commands import NO
from polluxsim.cli.options import add_option, add_output, path
from polluxsim.common.errors import InvalidConfigError, invalid_setting, listed

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

GOOD_ROWS = 3  # rows beside those that show the fault, by default


def add_log_extract(parser: ArgumentParser) -> None:
    """Declare the options of `log extract`."""
    parser.description = (
        "Make a small anonymous extract of a log that 'polluxsim log import' refuses or reads wrongly, to send it to "
        "the developers. The extract has the rows that show the fault and a few other rows. Names of jobs, users, "
        "accounts, queues, hosts and paths are replaced by invented words, the same name by the same word. Numbers, "
        "times, known states, GPU types and units, and names of columns and keys stay. The command imports the "
        "extract, and writes it only if it has the same fault. Look at the extract before you publish it."
    )
    parser.epilog = "Example: polluxsim log extract sacct.txt -o extract.txt"
    parser.add_argument("log", type=path, metavar="LOG", help="file that does not import")
    add_output(parser, "file for the extract", required=True)
    add_option(parser, "format", note="by default, the first lines of the log tell it")
    add_option(parser, "rows", default=GOOD_ROWS)
    add_option(parser, "time-zone")
    add_option(parser, "columns", default=[])
    add_option(parser, "unit", default="gpus")
    parser.set_defaults(action=_extract)


def _extract(options: Namespace) -> int:
    """Write an extract of a log, print what it contains, and return the exit status."""
    from polluxsim.cli.log import with_option
    from polluxsim.common.dates import zone_named
    from polluxsim.logs.extracts.extracting import check_paths, extract
    from polluxsim.logs.extracts.faults import Reading
    from polluxsim.logs.extracts.guessing import guessed_format
    from polluxsim.logs.formats import find_format

    check_paths(options.log, options.output)
    columns = ",".join(options.columns)
    name = options.format
    if name is None:
        name = "table" if columns else guessed_format(options.log)
    find_format(name)
    # An import looks at the time zone only after the first rows, which may have the fault.
    if options.time_zone is not None and zone_named(options.time_zone) is None:
        raise invalid_setting("--time-zone", options.time_zone, "a name like Europe/Berlin or UTC")
    reading = Reading(name, options.time_zone, columns, options.unit)
    try:
        extracted = extract(options.log, options.output, reading, options.rows)
    except InvalidConfigError as error:
        raise with_option(error) from None
    print(f"format:      {name}")
    print(f"the log:     {extracted.log}")
    print(f"the extract: {extracted.extract}")
    # Such an extract would not help, and the user would publish names for nothing.
    if not extracted.is_written:
        print(f"The extract has another fault than the log. {options.output} is not written.")
        return NO
    if extracted.log.is_none:
        print("The import of the log states no fault, so the extract has its first rows.")
    print(f"wrote {extracted.rows:,} of {extracted.rows_of_log:,} rows to {options.output}")
    print(f"replaced {extracted.num_replaced:,} different words and numbers of names")
    if extracted.kept_names:
        names = listed(extracted.kept_names)
        print(f"These words are names too, and stay as known words and as columns and keys: {names}")
    print("Numbers, times, known states, GPU types and units, and names of columns and keys are those of the log.")
    print("Look at the extract before you publish it.")
    return 0
