"""Templates of sentences: what they print, and what they refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.common.templates import TemplateError, Values, check_template, filled

VALUES = Values({"gpus": 4.0, "left": 1.0, "end": 5400.0, "share": 0.125, "zero": 0.0, "best 2 a100": 1.5}, ("b", "c"))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{gpus:GPU}, {left:GPU}, {gpus}", "4 GPUs, 1 GPU, 4"),
        ("{end:clock}, {end:hours} h, {share:%}, {share:.2f}, {share:per hour}", "1:30:00, 1.5 h, 12.5 %, 0.12, 450"),
        ("{best:label} is worth {best:.3g}", "2 a100 is worth 1.5"),
        ("{first} of {others}", "b of b and c"),
        ("[{missing}|{gpus}|{left}]", "4"),
        ("a[{missing}]b", "ab"),
        ("[zero=0?none|{zero:GPU}]", "none"),
        ("[gpus=0?none|{gpus:GPU}]", "4 GPUs"),
        ("[gpus>left?more][gpus<left?fewer][gpus>=4?enough][gpus<=3.5?little]", "moreenough"),
        ("[missing=0?a|missing?b|others?c|d]", "c"),
        ("[gpus?[left=1?one [zero?zero|{missing}]|many]]", "one zero"),
        ("[gpus>4?no|gpus=4.0000000001?equal but for rounding]", "equal but for rounding"),
    ],
)
def test_a_template_prints_its_values(template: str, text: str) -> None:
    assert filled(template, VALUES) == text


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("It has {gpus", "'{' at character 8 does not begin a value"),
        ("It has {gpus.real}", "'{' at character 8"),
        ("It has {gpus!r}", "'{' at character 8"),
        ("It has {}", "'{' at character 8"),
        ("It has {gpus:999999999f}", "the form '999999999f', must be clock, hours,"),
        ("It has {gpus:{left}}", "'{' at character 8"),
        ("It [has {gpus}", "'[' at character 4 has no ']'"),
        ("It] has", "']' at character 3 has no partner"),
        ("It | has", "'|' at character 4 has no partner"),
        ("It has }", "'}' at character 8 has no partner"),
        ("[gpus=4x?four]", "compares with '4x', must be a number or the name of one"),
        ("[" * 10 + "]" * 10, "is within 9 other brackets"),
        ("[" * 100_000, "is within 9 other brackets"),
    ],
)
def test_a_malformed_template_is_refused(template: str, words: str) -> None:
    with pytest.raises(TemplateError) as refused:
        check_template(template)
    assert words in str(refused.value)


def test_an_unknown_value_outside_choices_is_an_error() -> None:
    for template in ("{missing}", "{missing:label}"):
        with pytest.raises(KeyError):
            filled(template, VALUES)
    with pytest.raises(KeyError):
        filled("{others}", Values({}))


@given(st.text("[]|{}?=<>:. ga1", max_size=40))
def test_any_text_is_printed_or_refused(template: str) -> None:
    try:
        text = filled(template, Values({"g": 1.0, "a": 2.0}, ("g",)))
    except (TemplateError, KeyError):
        return
    if not set(template) & set("[]|{}"):
        assert text == template
