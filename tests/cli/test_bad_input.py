"""What a user can get wrong is refused with one line and exit code 2, and nothing is made or changed."""

import os
import shutil
import struct

import pytest
from tests.saved_runs import edit_config, reconfigure

# What is wrong -> the options that say so, after good ones, and what the one line must name.
BAD_TRAINING = {
    # texts
    "empty file": ("--data {files}/empty.txt", "empty.txt", "0 lines"),
    "missing split": ("--data {files}/unsplit", "unsplit", "valid.txt and test.txt missing"),
    "wrong encoding": ("--data {files}/latin1.txt", "latin1.txt, line 7", "not UTF-8 at byte 127"),
    "no such text": ("--data {files}/absent.txt", "absent.txt", "no such file"),
    "misspelt corpus": ("--data synthetik", "synthetik", "Did you mean 'synthetic'?"),
    "text of <unk>": ("--data {files}/unknown.txt", "unknown: the training text has no word but <unk>"),
    "less than a batch": ("--batch-size 4000", "cannot fill a batch of 4,000 rows"),
    # vectors
    "too narrow a row": (
        "--vectors {files}/narrow.vec",
        "narrow.vec, line 3",
        "a word and 4 numbers, found 3",
    ),
    "no such vectors": (
        "--vectors {files}/absent.vec",
        "No such file",
        "Or use corpus, for vectors from the text",
    ),
    "truncated binary": ("--vectors {files}/short.bin", "short.bin", "row 2", "truncated"),
    # numbers
    "k of the vocabulary": ("--k 152", "k=152", "only 150 words"),
    "usual k of two words": ("--data {files}/two.txt --method nnrs", "k=2, the usual for 4 words,", "only 2"),
    "too large a model": (
        "--units 10000000",
        "lstm-2x10000000 takes at least 12,800,",
        "Use a smaller --preset",
    ),
    "rate above 1": ("--neighbor-rate 0:1.5", "[0, 1]", "1.5"),
    # names (more of them, without a process each, in tests/experiments/test_config.py)
    "method": ("--method ss-nrs", "unknown method 'ss-nrs'", "Did you mean 'ss-nnrs'?"),
    "model": ("--model lstn", "unknown model 'lstn'", "Did you mean 'lstm'?"),
    "device": ("--device gpu", "unknown device 'gpu'", "Use auto, cpu, cuda or cuda:0."),
    "protected word": (
        "--protect Washington",
        "cannot protect 'Washington'",
        "not in the vocabulary",
        "Name words that it has",
    ),
    # contradictions
    "bf16 on the CPU": ("--precision bf16 --device cpu", "bf16 is for GPUs", "--precision fp32"),
    "exact and passes": ("--method ss --unroll exact --passes 3", "unroll=exact", "leave --passes out"),
    "seed and seeds": ("--seed 1 --seeds 1-3", "--seed and --seeds", "leave one of them out"),
    # seeds (more of them in tests/experiments/test_seeds.py)
    "seeds that are none": ("--seeds 1..8", "--seeds takes numbers and ranges such as 1-8", "'1..8'"),
    "seed named twice": ("--seeds 1-3,2", "names seed 2 more than once"),
    "seeds of a bad setting": ("--seeds 1-3 --precision bf16 --device cpu", "bf16 is for GPUs"),
    # configs
    "config key": ("--config {files}/key.toml", "setting training 'epoch'", "Did you mean 'epochs'?"),
    "config type": ("--config {files}/type.toml", "policy.method must be a text, got 3"),
    "config that is no TOML": ("--config {files}/broken.toml", "broken.toml", "line 2"),
    "config of a later version": (
        "--config {files}/later.json",
        "later.json has run format 99; this version of nnrs reads up to 1",
        "Update nnrs",
    ),
    "config with a key twice": (
        "--config {files}/twice.json",
        "twice.json has 'training' 2 times in one table",
        "Keep one of them",
    ),
    # places
    "below a file": ("--out {text}/run", "small.txt is a file, and a folder is expected"),
    "seeds below a file": ("--seeds 1-3 --out {text}/run", "small.txt is a file, and a folder"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory, text):
    """One of each kind of bad file."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "unsplit").mkdir()
    shutil.copy(text, folder / "unsplit" / "train.txt")
    (folder / "empty.txt").touch()
    (folder / "unknown.txt").write_text("<unk> <unk>\n" * 200)
    (folder / "two.txt").write_text("a b\n" * 200)
    lines = [b"nineteen bytes here"] * 30  # 20 with the line end, so that line 7 begins at byte 120
    lines[6] = b"coffee " + "é".encode("latin-1")
    (folder / "latin1.txt").write_bytes(b"\n".join(lines) + b"\n")
    row = "{} 0.1 0.2 0.3 0.4\n".format
    (folder / "narrow.vec").write_text(row("w000") + row("w001") + "w002 0.1 0.2 0.3\n")
    rows = b"".join(word + struct.pack("<4f", 1, 2, 3, 4) for word in (b"w000 ", b"w001 "))
    (folder / "short.bin").write_bytes(b"2 4\n" + rows[:-3])
    (folder / "key.toml").write_text("[training]\nepoch = 3\n")
    (folder / "type.toml").write_text("[policy]\nmethod = 3\n")
    (folder / "later.json").write_text('{"format": 99, "seed": 3}')
    (folder / "twice.json").write_text('{"training": {"epochs": 3}, "seed": 3, "training": {}}')
    (folder / "broken.toml").write_text("[training]\nepochs 3\n")
    return folder


def contents(folder):
    """Every file below a folder, byte for byte."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_refused(done, *named):
    """Exit code 2, nothing on standard output, and one line that names what is wrong."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("error: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    for part in named:
        assert part in done.stderr


# What the parser refuses -> the words, and what the one line must name.
BAD_WORDS = {
    "option": ("train --out x --epoch 3", "nnrs train: no such option --epoch. Did you mean --epochs?"),
    "option like no other": (
        "schedule --zzz",
        "nnrs schedule: no such option --zzz. See nnrs schedule --help.",
    ),
    "json of results": (
        "results x --json",
        "nnrs results: no such option --json. Use --format json. See nnrs results --help.",
    ),
    "last word of several options": (
        "train --out x --rate 0.2",
        "nnrs train: no such option --rate. "
        "Did you mean --prediction-rate or --neighbor-rate or --learning-rate? See ",
    ),
    "option with few letters of another": (  # --task has them and the dashes
        "train --out x --tau 3",
        "nnrs train: no such option --tau. See nnrs train --help.",
    ),
    "value of an option before a command": ("--version=3", "nnrs: option '--version' does not take a value."),
    "option before a command": ("--zzz train", "nnrs: no such option --zzz. See nnrs --help."),
    "option and --debug": (
        "train --epoch 3 --debug",
        "nnrs train: no such option --epoch.",
    ),  # and no traceback
    "missing option": ("train", "nnrs train: missing option '--out': The run directory to make"),
    "missing argument": ("generate", "nnrs generate: missing argument 'run': A run directory made by"),
    "option without its value": (
        "evaluate x --split",
        "nnrs evaluate: option '--split' requires an argument.",
    ),
    "value of a flag": ("schedule --json=1", "nnrs schedule: option '--json' does not take a value."),
    "no integer": ("demo --epochs three", "nnrs demo: --epochs must be a whole number, got 'three'. See "),
    "half a unit": (
        "train --out x --units=10.5",
        "nnrs train: --units must be a whole number, got '10.5'. See ",
    ),
    "no number": ("train --out x --clip hard", "nnrs train: --clip must be a number, got 'hard'. See "),
    "no integer of several": (
        "train --units 3 --out x --units=four",
        "nnrs train: --units must be a whole number, got 'four'. See ",
    ),
    "no integer before --": (  # behind which nothing is an option
        "train --out x --units four -- --units 3",
        "nnrs train: --units must be a whole number, got 'four'. See ",
    ),
    "option for an integer": (
        "train --out x --units --units 3",
        "nnrs train: --units must be a whole number, got '--units'. See ",
    ),
    "no integer behind its option as a value": (
        "train --units four --out --units 3",
        "nnrs train: --units must be a whole number, got 'four'. See ",
    ),
    "argument too many": (
        "train --out x y",
        "nnrs train: got unexpected extra argument",
        "(y): values stand",
    ),
    "command": ("trian --out x", "nnrs: no such command 'trian'. Did you mean 'train'? See nnrs --help."),
    "command like no other": ("plot x", "nnrs: no such command 'plot'. See nnrs --help."),
}


@pytest.fixture(scope="module")
def parsed(nnrs_each):
    return nnrs_each({case: words.split() for case, (words, *_) in BAD_WORDS.items()})


@pytest.mark.parametrize("case", BAD_WORDS)
def test_words_that_the_parser_refuses_are_told_in_one_line_that_says_where_to_read_on(case, parsed):
    _, begin, *named = BAD_WORDS[case]
    assert_refused(parsed[case], f"error: {begin}", *named)
    assert parsed[case].stderr.endswith(f" See {begin.partition(':')[0]} --help.\n")


def test_a_word_of_several_lines_is_refused_in_one(nnrs):
    assert_refused(nnrs("train", "--out", "x", "two\nlines"), "two", "lines")


def test_without_a_word_the_help_is_shown(nnrs):
    alone, asked = nnrs(), nnrs("--help")
    assert (alone.returncode, alone.stdout, alone.stderr) == (2, "", asked.stdout)
    assert asked.stdout.startswith("Usage: ")


@pytest.fixture(scope="module")
def trainings(nnrs_each, files, text, tiny, tmp_path_factory):
    """Every bad training tried, and the folder that each was to make."""
    folder = tmp_path_factory.mktemp("out")
    commands, outs = {}, {}
    for case, (options, *_) in BAD_TRAINING.items():
        outs[case] = folder / case.replace(" ", "-")
        good = ["train", *tiny, "--epochs", 2, "--data", text, "--out", outs[case]]
        commands[case] = [*good, *options.format(files=files, text=text).split()]
    done = nnrs_each(commands)
    return {case: (done[case], outs[case]) for case in BAD_TRAINING}


@pytest.mark.parametrize("case", BAD_TRAINING)
def test_bad_training_is_refused_and_leaves_nothing(case, trainings):
    done, out = trainings[case]
    assert_refused(done, *BAD_TRAINING[case][1:])
    assert not out.exists()


def newest_checkpoint(run):
    return max(run.glob("checkpoint-*.safetensors"))


def intact(run):
    """Nothing is done to this run."""


def truncated(run):
    path = newest_checkpoint(run)
    path.write_bytes(path.read_bytes()[:-100])


def flipped(run):
    """One bit of one weight."""
    path = newest_checkpoint(run)
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)


def altered(run):
    """The JSON beside the tensors, still well-formed."""
    path = newest_checkpoint(run).with_suffix(".json")
    path.write_text(path.read_text().replace('"best_epoch": 2', '"best_epoch": 1'))


def from_the_future(run):
    edit_config(run, None, format=99)


def longer(run):
    edit_config(run, "training", epochs=9)


def with_anothers_weights(run):
    reconfigure(run, lambda config: config["model"].update(units=32))


def without_text(run):
    edit_config(run, "data", source="/nowhere/text.txt")


def with_another_text(run):
    reconfigure(run, lambda config: config.update(text_sha256="0"))


def with_damaged_best(run):
    path = max(run.glob("best-*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1])


def without_config(run):
    (run / "config.json").unlink()


OFFER = ("checkpoint-000000082", "--resume --previous")  # the one before the newest: two epochs of 41 windows

# What was done to a finished run -> the command that meets it, and what its one line must name.
BAD_RUNS = {
    "run that exists": (intact, "train {tiny} --data {text} --out {run}", "exists already", "--resume"),
    "seeds where a run is": (
        intact,
        "train {tiny} --data {text} --seeds 1-2 --out {run}",
        "exists already",
        "--resume",
    ),
    "resume with seeds": (
        intact,
        "train --out {run} --resume --seeds 1-2",
        "leave --seeds out. A seed more is a run of its own: nnrs train --config",
        "resume-with-seeds/config.json --seed N --out NEW.",
    ),
    "resume with a seed": (intact, "train --out {run} --resume --seed 2", "leave --seed out. A seed more is"),
    "resume with options": (intact, "train --out {run} --resume --bptt 5", "leave --bptt out.\n"),
    "truncated": (truncated, "train --out {run} --resume", "000123.safetensors is damaged", *OFFER),
    "flipped": (flipped, "train --out {run} --resume", "000123.safetensors is damaged", *OFFER),
    "altered": (altered, "train --out {run} --resume", "000123.json is damaged", *OFFER),
    "newer format": (from_the_future, "train --out {run} --resume", "run format 99", "Update nnrs"),
    "edited config": (longer, "train --out {run} --resume", "config.json was edited since", "--out NEW"),
    "edited config, seen": (longer, "evaluate {run}", "config.json was edited since the run began"),
    "weights of another": (with_anothers_weights, "train --out {run} --resume", "do not fit the model"),
    "damaged best": (with_damaged_best, "generate {run}", "best-000000123.safetensors is damaged"),
    "beam and temperature": (
        intact,
        "generate {run} --beam 5 --temperature 1",
        "a beam search draws nothing",
    ),
    "beam and count": (
        intact,
        "generate {run} --beam 5 --count 2",
        "--count: the likeliest text is the same every time",
    ),
    "greedy and count": (
        intact,
        "generate {run} --temperature 0 --count 2",
        "--count: the likeliest text is the same every time",
    ),
    "no text": (intact, "generate {run} --length 0", "--length must be at least 1, got 0."),
    "no texts": (intact, "generate {run} --count 0", "--count must be at least 1, got 0."),
    "seed of the draws": (
        intact,
        f"generate {{run}} --seed {2**63}",
        f"seed must be in [0, 2^63), got {2**63}",
    ),
    "seed of a measure": (intact, "evaluate {run} --seed -1", "seed must be in [0, 2^63), got -1."),
    "all but greedy": (
        intact,
        "generate {run} --temperature 1e-39",
        "temperature must be in [0.0001, 10000], or 0 (greedy), got 1e-39.",
    ),
    "too cold": (
        intact,
        "neighbors --data {text} --temperature 1e-300",
        "temperature must be in [0.0001, 10000], got 1e-300.",
    ),
    "trained too cold": (
        intact,
        "train {tiny} --data {text} --method nnrs --temperature 1e-300 --out {run}-new",
        "temperature must be in [0.0001, 10000], got 1e-300.",
    ),
    "no neighbors": (intact, "neighbors --data {text} --k 0 w0001", "--k must be at least 1, got 0."),
    "rare words": (
        intact,
        "train {tiny} --data {text} --min-count 99999 --out {run}-new",
        "occurs 99,999 times: the commonest has ",
    ),
    "beam and top-p": (intact, "generate {run} --beam 5 --top-p 0.9", "leave --temperature and --top-p out"),
    "text that is gone": (
        without_text,
        "evaluate {run} --metrics bleu",
        "is not there any more: /nowhere/text.txt. Put it back, or name another with --data.",
    ),
    "resume without text": (
        without_text,
        "train --out {run} --resume",
        "is not there any more: /nowhere/text.txt. Put it back, or let data.source in config.json say where it is.",
    ),
    "text that has changed": (
        with_another_text,
        "evaluate {run} --metrics bleu",
        "has changed since",
        "Restore it, or name it with --data.",
    ),
    "no run": (without_config, "evaluate {run}", "not a run directory", "config.json"),
    "split": (intact, "evaluate {run} --split tets", "unknown split 'tets'", "Did you mean 'test'?"),
    "unknown words": (
        intact,
        "neighbors --data {text} Washington w0001",
        "not in the vocabulary of",
        "(152 words): 'Washington', 'w0001' (did you mean 'w0",
        "Name words of the vocabulary.\n",
    ),
    "run among words": (
        intact,
        "neighbors --data {text} {run} w001",
        "run-among-words is a run directory, and words are expected. For neighbors as it had them: --data /",
        "small.txt --vectors corpus\n",
    ),
    "words that were cut": (
        intact,
        "neighbors --data {text} --max-vocabulary 3 --min-count 2 w001",
        "not in the vocabulary of",
        "(3 words): 'w001'",
        "Name words of the vocabulary, or leave --min-count and --max-vocabulary out for all words of the text.",
    ),
    "schedule": (intact, "schedule --schedule liner", "unknown schedule shape 'liner'", "mean 'linear'?"),
    "schedule without epochs": (intact, "schedule --epochs 0", "epochs must be at least 1, got 0"),
}


@pytest.fixture(scope="module")
def encounters(nnrs_each, finished, text, tiny, tmp_path_factory):
    """Every command tried on its damaged run: the outcome, the run before and the run after."""
    folder = tmp_path_factory.mktemp("runs")
    commands, before = {}, {}
    for case, (damage, command, *_) in BAD_RUNS.items():
        run = folder / case.replace(" ", "-")
        shutil.copytree(finished, run)
        damage(run)
        before[case] = contents(run)
        commands[case] = command.format(run=run, text=text, tiny=" ".join(tiny)).split()
    done = nnrs_each(commands)
    return {case: (done[case], before[case], contents(folder / case.replace(" ", "-"))) for case in BAD_RUNS}


@pytest.mark.parametrize("case", BAD_RUNS)
def test_a_run_that_cannot_be_used_is_refused_and_not_touched(case, encounters):
    done, before, after = encounters[case]
    assert_refused(done, *BAD_RUNS[case][2:])
    assert after == before


def test_a_loss_that_explodes_stops_the_run_before_it_is_saved(nnrs, text, tiny, tmp_path):
    # One window an epoch, so that it is the validation that meets the ruined weights.
    options = f"--method mle --bptt 1000 --learning-rate 1e30 --data {text} --out {tmp_path / 'run'}"
    done = nnrs("train", *tiny, *options.split())
    assert done.returncode == 2
    assert "perplexity is no longer finite in epoch 0" in done.stderr.splitlines()[-1]
    assert done.stderr.endswith("Lower --learning-rate and start again with another --out.\n")
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.json", "vocabulary.json"]


def test_a_read_only_disk_is_named_and_can_still_be_read(nnrs_each, finished, text, tiny, disk):
    place = disk("size=4m")
    shutil.copytree(finished, place / "run")
    disk("ro")
    before = contents(place)
    commands = {
        "start": ["train", *tiny, "--data", text, "--out", place / "new"],
        "resume": ["train", "--out", place / "run", "--resume", "--previous"],
        "read": ["evaluate", place / "run"],
    }
    done = nnrs_each(commands)
    assert_refused(done["start"], f"{place / 'new'}: Read-only file system")
    assert_refused(done["resume"], f"{place / 'run'}: Read-only file system")
    assert done["read"].returncode == 0
    assert contents(place) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_without_permission_is_named(nnrs, text, tiny, tmp_path):
    tmp_path.chmod(0o500)
    done = nnrs("train", *tiny, "--data", text, "--out", tmp_path / "run")
    tmp_path.chmod(0o700)
    assert_refused(done, f"{tmp_path / 'run'}: Permission denied")
