"""Metrics whose package is not installed: said in one line before anything is trained, measured or written."""

import shutil

import pytest
from tests.digits import write_digits

NO_POT = "error: word mover's distance needs the package POT. Install it with: pip install 'nnrs[metrics]'\n"
NO_SACREBLEU = (
    "error: bleu of a translation needs the package sacrebleu. Install it with: pip install 'nnrs[metrics]'\n"
)
OPTIONS = (
    "--methods nnrs,ss-nnrs --seeds 1 --epochs 1 --metrics perplexity,wmd --device cpu"  # both have vectors
)
GRID = """
data = "{data}"
preset = "tiny"
epochs = 1
{more}
[evaluate]
metrics = [{metrics}]
"""
TRANSLATE = 'task = "translate"\nfrom_language = "num"\nto_language = "en"'


@pytest.fixture(scope="module")
def words(text, tiny):
    """A command that measures distances, without its folder."""
    return ["compare", "--data", text, *tiny, *OPTIONS.split()]


@pytest.fixture(scope="module")
def out(nnrs, words, tmp_path_factory):
    """The folder of its two runs. Not to be changed."""
    folder = tmp_path_factory.mktemp("packages") / "out"
    done = nnrs(*words, "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


def write_grid(path, data, metrics, more=""):
    path.write_text(GRID.format(data=data, metrics=metrics, more=more))
    return path


def last_line(done):
    return done.stderr.splitlines(keepends=True)[-1]


@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["run", "dry-run"])
@pytest.mark.parametrize("command", ["compare", "grid", "paper"])
def test_distances_are_refused_before_anything_is_trained(
    nnrs_without_metrics, words, text, command, more, tmp_path
):
    commands = {
        "compare": words,  # which tells what its seeds can show first
        "grid": ["grid", write_grid(tmp_path / "grid.toml", text, '"perplexity", "self-wmd"')],
        "paper": ["paper", "table2", "--pilot"],
    }
    done = nnrs_without_metrics(*commands[command], *more, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout, last_line(done)) == (2, "", NO_POT)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["run", "dry-run"])
def test_bleu_of_translations_is_refused_before_anything_is_trained(nnrs_without_metrics, more, tmp_path):
    file = write_grid(tmp_path / "grid.toml", write_digits(tmp_path / "digits"), '"bleu"', TRANSLATE)
    done = nnrs_without_metrics("grid", file, *more, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", NO_SACREBLEU)
    assert not (tmp_path / "out").exists()


def test_bleu_of_other_text_needs_no_package(nnrs_without_metrics, text, tmp_path):
    file = write_grid(tmp_path / "grid.toml", text, '"bleu", "exposure"')
    done = nnrs_without_metrics("grid", file, "--out", tmp_path / "out", "--dry-run")
    assert done.returncode == 0, done.stderr


def test_what_is_done_needs_no_package_and_what_is_not_measured_yet_does(
    nnrs_without_metrics, words, out, tmp_path
):
    folder = shutil.copytree(out, tmp_path / "out")
    done = nnrs_without_metrics(*words, "--out", folder)
    assert done.returncode == 0, done.stderr
    (folder / "runs" / "nnrs_seed-1" / "result.json").unlink()
    assert last_line(nnrs_without_metrics(*words, "--out", folder)) == NO_POT


def test_what_is_in_the_records_needs_no_package_and_what_is_not_does(
    nnrs, nnrs_without_metrics, words, out, tmp_path
):
    records, folder = tmp_path / "records.jsonl", tmp_path / "out"
    assert nnrs("results", out, "--format", "jsonl", "--out", records).returncode == 0
    command = [*words, "--records", records, "--out", folder]
    more = nnrs_without_metrics(*command, "--seeds", "1-2")
    assert (more.returncode, last_line(more)) == (2, NO_POT)
    listed = nnrs_without_metrics(*command, "--dry-run")
    assert listed.returncode == 0, listed.stderr
    assert not folder.exists()
    done = nnrs_without_metrics(*command)
    assert done.returncode == 0, done.stderr
    assert "taken from records.jsonl: 2 of 2 runs\n" in done.stderr


def test_with_ray_it_is_other_machines_that_measure(nnrs_without_metrics, text, tmp_path):
    file = write_grid(tmp_path / "grid.toml", text, '"wmd"')
    done = nnrs_without_metrics("grid", file, "--ray", "auto", "--out", tmp_path / "out", "--dry-run")
    assert done.returncode == 0, done.stderr


def test_runs_are_not_measured_in_part(nnrs_without_metrics, out):
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    done = nnrs_without_metrics("evaluate", out, "--metrics", "perplexity,bleu,wmd", "--length", 7)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", NO_POT)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_all_of_a_text_does_without_distances_and_says_so(nnrs_without_metrics, text):
    done = nnrs_without_metrics(
        "evaluate", "--text", text, "--metrics", "all", "--vectors", "none.vec", "--json"
    )
    assert "left out: bleu, wmd, self-wmd (" in done.stderr
    assert "the package POT)" in done.stderr
    assert "needs the package" not in done.stderr


def test_text_is_refused_before_vectors_are_read(nnrs_without_metrics, text):
    done = nnrs_without_metrics("evaluate", "--text", text, "--metrics", "self-wmd", "--vectors", "none.vec")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", NO_POT)


def test_all_is_what_there_are_packages_for(nnrs_without_metrics, out, tmp_path):
    run = shutil.copytree(out / "runs" / "nnrs_seed-1", tmp_path / "run")
    short = "--metrics all,wmd --sentences 10 --length 7 --prefix 3"
    done = nnrs_without_metrics("evaluate", run, *short.split())
    assert done.returncode == 0, done.stderr
    for metric in ("wmd", "self-wmd", "wmd by step"):
        assert f"{metric} left out, for the package POT is not installed (pip install" in done.stderr
