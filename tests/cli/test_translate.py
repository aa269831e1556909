"""Translation from the command line: train, continue, score, translate; and what does not apply is refused."""

import json

import pytest
from tests.digits import translated, write_digits

SIZE = (
    "--preset tiny --layers 1 --dropout 0 --batch-size 20 --learning-rate 0.01 --method ss-nnrs --epochs 14"
)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("parallel") / "digits")


@pytest.fixture(scope="module")
def run(nnrs, digits, tmp_path_factory):
    out = tmp_path_factory.mktemp("translated") / "run"
    options = f"--task translate --data {digits} --from num {SIZE} --schedule pulse --seed 3 --out {out}"
    done = nnrs("train", *options.split())
    assert done.returncode == 0, done.stderr
    assert "train 600, valid 40, test 40 pairs, vocabularies of 12 and 12 words" in done.stderr
    assert "|task:translate|from:num|to:en|model:lstm-1x64|" in done.stdout
    return out


def test_a_trained_translator_is_scored_and_translates(run, nnrs_each):
    done = nnrs_each(
        {
            "scores": ["evaluate", run, "--metrics", "perplexity,bleu", "--json"],
            "said": ["generate", run, "--prompt", "3 1 4"],
            "resumed": ["train", "--out", run, "--resume", "--from", "num"],
            "continued": ["train", "--out", run, "--resume", "--json"],
        }
    )
    perplexity, bleu = json.loads(done["scores"].stdout)
    assert bleu["value"] > 95.0
    assert bleu["signature"].startswith("bleu|n:40|decode:greedy|tok:none|smooth:exp|sacrebleu:2.")
    assert done["said"].stdout.split() == translated(["3", "1", "4"])
    assert json.loads(done["continued"].stdout)["test_perplexity"] == pytest.approx(perplexity["value"])
    assert done["resumed"].returncode == 2
    assert done["resumed"].stderr.endswith(f"{run}: leave --from out.\n")


def test_what_does_not_apply_is_refused_in_one_line(run, digits, nnrs_each, tmp_path):
    train = ["train", "--task", "translate", "--out", tmp_path / "run"]
    refused = {
        "--bptt": [*train, "--data", digits, "--bptt", 10],
        "--from and --to": [*train, "--data", digits],
        "--data": train,
        "no exposure": ["evaluate", run, "--metrics", "exposure"],
        "--decode is about bleu: leave it out": ["evaluate", run, "--decode", "beam2"],
        "no --length": ["generate", run, "--prompt", "3", "--length", 4],
        "--prompt": ["generate", run],
        "--count": ["generate", run, "--prompt", "3", "--count", 2],
    }
    for reason, done in nnrs_each(refused).items():
        assert done.returncode == 2, reason
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert reason in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "run").exists()
