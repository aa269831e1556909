"""Seeds are named as numbers and ranges, and share all other settings."""

from dataclasses import replace

import pytest

from nnrs.errors import ConfigError
from nnrs.experiments.options import configure_seeds, parse_seeds


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("1-8", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("1,3,7", [1, 3, 7]),
        ("1-3,7", [1, 2, 3, 7]),
        ("7, 1-2", [7, 1, 2]),
        ("5", [5]),
        ("0", [0]),
        (f"{2**63 - 1}", [2**63 - 1]),
        ("1-1000", list(range(1, 1001))),
    ],
)
def test_seeds_are_numbers_and_ranges(named, expected):
    assert parse_seeds(named) == expected


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("", "takes numbers and ranges such as 1-8 or 1,3,7; got ''"),
        ("1,,2", "takes numbers and ranges"),
        ("-1", "takes numbers and ranges"),
        ("1-2-3", "takes numbers and ranges"),
        ("one", "takes numbers and ranges"),
        ("1.5", "takes numbers and ranges"),
        ("٣", "takes numbers and ranges"),  # a digit elsewhere
        ("9" * 5000, "takes numbers and ranges"),
        ("8-1", "the range 8-1 runs backwards. Write 1-8."),
        ("1-3,2", "names seed 2 more than once"),
        ("4,04", "names seed 4 more than once"),
        (f"{2**63}", "every seed must be in [0, 2^63), got 9223372036854775808"),
        ("1-1001", "names 1,001 seeds; at most 1,000"),
        (f"0-{2**63 - 1}", "at most 1,000"),  # and does not count them one by one
    ],
)
def test_what_names_no_seeds_is_refused(named, message):
    with pytest.raises(ConfigError) as caught:
        parse_seeds(named)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_seeds_share_all_other_settings_and_one_seed_beside_them_is_refused():
    given = {"method": "nnrs", "epochs": 7, "seeds": "3,5"}
    configs = configure_seeds(given)
    assert [made.seed for made in configs] == [3, 5]
    assert configs[1] == replace(configs[0], seed=5)
    assert (configs[0].policy.method, configs[0].training.epochs) == ("nnrs", 7)
    with pytest.raises(ConfigError, match="--seed and --seeds"):
        configure_seeds({**given, "seed": 3})
