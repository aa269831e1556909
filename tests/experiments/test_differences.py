"""In which settings two runs differ, in words."""

import pytest

from nnrs.experiments.differences import differences, facts


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"b": {"a": "jürgen.vec"}}, {"b": {"a": None}}, 'b.a ("jürgen.vec" there, null here)'),
        ({"a": 1}, {"b": 2}, "a (1 there, nothing here), b (nothing there, 2 here)"),
        ({}, dict.fromkeys("abc", 1), ", ".join(f"{name} (nothing there, 1 here)" for name in "abc")),
        (
            {},
            dict.fromkeys("abcde", 1),
            ", ".join(f"{name} (nothing there, 1 here)" for name in "abc") + " and 2 more",
        ),
    ],
)
def test_differences_are_named_with_both_values_the_first_three(there, here, said):
    assert differences(facts(there), facts(here)) == said
