"""Rates that stand still although their schedule moves: told once, before anything is trained."""

from tests.cli.grids import write_grid

ONE_EPOCH = (
    "exponential 0:0.2 stays at 0.2: with --epochs 1 it cannot move. Use more epochs for a curriculum."
)
FLAT = "pulse 0.1:0.1 stays at 0.1: it goes from START to END and back. Use 0:0.1, or --schedule static."


def test_train_compare_and_grid_tell_of_them_before_they_begin(nnrs_each, text, tiny, tmp_path):
    on_text, out = ["--data", text, *tiny, "--device", "cpu"], tmp_path / "out"
    short, flat = ["--epochs", 1], ["--schedule", "pulse", "--neighbor-rate", 0.1]
    compared = ["compare", *on_text, "--methods", "mle,ss,nnrs,ss-nnrs", "--seeds", "1-2", "--dry-run"]
    one = write_grid(tmp_path / "one.toml", text, epochs=1)
    more = 'schedule = "pulse"\nneighbor_rate = "0.1"'
    pulse = write_grid(tmp_path / "pulse.toml", text, methods='"ss-nnrs"', more=more)
    done = nnrs_each(
        {
            "train": ["train", *on_text, *short, "--out", out / "1"],
            "seeds": [
                "train",
                *on_text,
                *short,
                *flat,
                *["--method", "nnrs", "--seeds", "1-2", "--out"],
                out / "2",
            ],
            "compare": [*compared, *short, "--out", out / "3"],
            "compare, flat": [
                *compared,
                *flat,
                *["--prediction-rate", "0:0.1", "--epochs", "3", "--out"],
                out / "4",
            ],
            "grid": ["grid", one, "--out", out / "5", "--dry-run"],
            "grid, flat": ["grid", pulse, "--out", out / "6", "--dry-run"],
        }
    )
    still = {
        "train": [ONE_EPOCH],
        "seeds": [FLAT],
        "compare": [ONE_EPOCH],
        "compare, flat": [FLAT],
        "grid": [ONE_EPOCH.replace("--epochs", "epochs")],
        "grid, flat": [
            "pulse 0:0.2 stays at 0: with epochs 2 it cannot move. Use more epochs for a curriculum.",
            FLAT.replace("--schedule", "schedule"),
        ],
    }
    for name, ended in done.items():
        assert ended.returncode == 0, ended.stderr
        assert [line for line in ended.stderr.splitlines() if " stays at " in line] == still[name], name
    for name in ("train", "seeds"):
        assert done[name].stderr.index(" stays at ") < done[name].stderr.index("epoch   0")


def test_nothing_is_told_of_runs_that_are_done_or_replace_nothing(nnrs_each, text, tiny, tmp_path):
    words = ["--epochs", 1, "--methods", "mle,ss", "--metrics", "perplexity", "--seeds", 1]
    compared = ["compare", "--data", text, *tiny, *words, "--out", tmp_path / "out"]
    assert " stays at " in nnrs_each({"": compared})[""].stderr
    plain = write_grid(tmp_path / "mle.toml", text, epochs=1, methods='"mle"')
    done = nnrs_each({"again": compared, "mle": ["grid", plain, "--out", tmp_path / "mle", "--dry-run"]})
    for ended in done.values():
        assert ended.returncode == 0, ended.stderr
        assert " stays at " not in ended.stderr
