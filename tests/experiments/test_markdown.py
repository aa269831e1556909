"""Results as a Markdown table."""

import math

from nnrs.experiments.markdown import as_markdown
from nnrs.experiments.store import Result


def result(method, seed, valid, test, corpus="toy", group="", **scores):
    tail = f"split:test|data:{corpus}|seed:{seed}|v:1"
    return Result(
        {
            "labels": {"method": method},
            "config": {"model": {"kind": "lstm"}},
            "seed": seed,
            "names": {"corpus": corpus, "vectors": None},
            "signature": f"ppl|{tail}",
            "group": group or f"{method} on {corpus}",
            "valid_perplexity": valid,
            "test_perplexity": test,
            "dose": {"prediction": 0.125, "neighbor": 0.0},
            "effective": {"prediction": 0.1, "neighbor": 0.0, "all": 0.1},
            "scores": [
                {"metric": name, "value": value, "signature": f"{name}|decode:sample|{tail}"}
                for name, value in {**scores, "ppl": test}.items()
            ],
        }
    )


def test_means_stand_beside_half_of_their_interval_and_what_is_missing_beside_a_dash():
    results = [
        result("mle", 1, 10.0, 20.0, bleu4=1.0),
        result("mle", 2, 12.0, 24.0, bleu4=3.0),
        result("ss", 1, 9.0, 18.0),
    ]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in as_markdown(results).splitlines()]
    table = {row[0]: row[1:] for row in rows}
    assert rows[0][1:] == ["better", "mle", "ss"]
    assert table["seeds"] == ["", "1, 2", "1"]
    assert table["ε asked for"] == ["", "0.125", "0.125"]
    assert table["replaced, up to the epoch scored"] == ["", "0.100", "0.100"]
    reach = 12.706204736432095  # t at 0.975 with one degree of freedom, of values whose standard error is 1
    assert table["perplexity, valid"] == ["lower", f"11.00 ± {reach:.2f}", "9.00"]
    assert table["perplexity, test"] == ["lower", f"22.00 ± {2 * reach:.2f}", "18.00"]
    assert table["bleu4 test sample"] == ["higher", f"2.00 ± {reach:.2f}", "-"]
    assert math.isclose(reach / math.tan(math.pi * 0.475), 1.0)  # Cauchy's quantile


def test_a_column_is_headed_by_its_settings_name_whatever_that_holds():
    results = [result("a|b", 1, 9.0, 8.0, group=group) for group in ("0a", "0b")]
    assert as_markdown([result("mle", 1, 9.0, 8.0), *results]).startswith(
        r"| mean ± half of the 95 % interval over seeds | better | mle | a\|b · 0a | a\|b · 0b |"
    )


def test_many_settings_of_which_little_was_measured_stand_below_each_other():
    results = [result(f"m{number}", 1, 9.0 + number, 20.0 + number) for number in range(9)]
    tables = [
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in as_markdown(some).splitlines()]
        for some in (results[:8], results)
    ]  # a line of names and seven of what is told of each
    assert tables[0][0][2:] == [f"m{number}" for number in range(8)]
    assert [line[0] for line in tables[1][3:]] == [f"m{number}" for number in range(9)]
    assert tables[1][0][1:] == [line[0] for line in tables[0][2:]]
    assert tables[1][1] == ["---"] * 8
    assert tables[1][2] == ["better", "", "", "", "", "lower", "lower", "lower"]
    assert tables[1][4] == ["m1", "1", "0.125", "0.000", "0.100", "10.00", "21.00", "21.00"]
