"""Words that no training token is: told before anything is trained, with the names that fit the place."""

LACKS = "are words that the training text lacks"


def test_train_compare_and_grid_tell_of_them_before_they_begin(nnrs_each, tmp_path):
    source, out, grid = tmp_path / "source", tmp_path / "out", tmp_path / "grid.toml"
    source.mkdir()
    for split, line in {"train": "a b c d\n", "valid": "a b c e\n", "test": "d c b f\n"}.items():
        (source / f"{split}.txt").write_text(line * 60)
    size = {"preset": "tiny", "epochs": 2, "bptt": 5, "batch_size": 2}
    given = "\n".join(f"{name} = {value!r}" for name, value in size.items())
    grid.write_text(f"method = 'mle'\ndata = {str(source)!r}\n{given}\n")
    options = [word for name, value in size.items() for word in (f"--{name.replace('_', '-')}", value)]
    compared = ["--methods", "mle,ss", "--seeds", "1", "--metrics", "perplexity"]
    done = nnrs_each(
        {
            "train": ["train", "--data", source, *options, "--method", "mle", "--out", out / "1"],
            "compare": ["compare", "--data", source, *options, *compared, "--out", out / "2"],
            "grid": ["grid", grid, "--out", out / "3"],
        }
    )
    for name, ended in done.items():
        assert ended.returncode == 0, ended.stderr
        (said,) = [line for line in ended.stderr.splitlines() if LACKS in line]
        assert "20.0% of the valid tokens and 20.0% of the test tokens" in said
        assert said.endswith(
            f"{'min_count' if name == 'grid' else '--min-count'} 2 trains <unk> on words that occur once."
        )
        assert ended.stderr.index(LACKS) < ended.stderr.index("epoch")
