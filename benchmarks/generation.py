"""What does generation cost: 1,000 continuations of 35 tokens, beside one sentence at a time; and in memory?

The model is a small LSTM (2 x 200) with PTB's vocabulary, as it is before training: speed and memory do not depend on
what it has learned. Both sides read the same prefixes of 10 tokens of PTB's test split, carry the state and draw from
the softmax, in turn, in this one process. The loop is given fewer sentences, and its time is scaled up.

    python benchmarks/generation.py --data ROOT     a folder with ptb/
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from nnrs.evaluation.generate import DECODINGS, generate
from nnrs.experiments.config import RunConfig
from nnrs.experiments.generations import cut
from nnrs.experiments.run import Run, start
from nnrs.experiments.subject import Request
from nnrs.models.base import SequenceModel

SHARED = Path(os.environ.get("NNRS_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
SENTENCES, FEW, LENGTH, REPEATS, LIMIT = 1_000, 20, 35, 5, 5.0
COUNTS = (1_000, 4_000, 10_000)  # whose memory is measured
WATCHED = """
import sys
from pathlib import Path
from nnrs.cli.main import app
app(standalone_mode=False)
[peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(peak, file=sys.stderr)  # in kB
"""


@torch.no_grad()
def one_at_a_time(model: SequenceModel, prefixes: torch.Tensor) -> list[list[int]]:
    """The usual loop: a sentence, and in it a token, after the other."""
    made = []
    for prefix in prefixes:
        logits, state = model(prefix[None], None)
        tokens: list[int] = []
        while len(tokens) < LENGTH:
            token = torch.multinomial(torch.softmax(logits[0, -1], dim=-1), 1)
            tokens.append(int(token))
            logits, state = model(token[None], state)
        made.append(tokens)
    return made


def untrained(data: Path, out: Path) -> Run:
    """A run whose best model is that before training, on disk, where `nnrs evaluate` finds it."""
    config = {"data": {"source": str(data)}, "policy": {"method": "mle"}, "model": {"preset": "small"}}
    run = start(RunConfig.from_dict(config), out, torch.device("cpu"))
    run.saver.save_best(run.trainer.live)
    run.saver.wait()
    return run


def row(name: str, seconds: list[float]) -> str:
    return (
        f"{name:30s} best {min(seconds):7.2f} s   median {statistics.median(seconds):7.2f} s   "
        f"worst {max(seconds):7.2f} s"
    )


def speed(model: SequenceModel, prefixes: torch.Tensor) -> None:
    scale = SENTENCES / FEW
    seconds: dict[str, list[float]] = {"ours, sampled": [], "one sentence at a time": []}
    generate(model, prefixes[:FEW], length=LENGTH, decoding=DECODINGS["sample"])  # both warm up
    one_at_a_time(model, prefixes[:2])
    for _ in range(REPEATS):
        began = time.perf_counter()
        generate(model, prefixes, length=LENGTH, decoding=DECODINGS["sample"])
        seconds["ours, sampled"].append(time.perf_counter() - began)
        began = time.perf_counter()
        one_at_a_time(model, prefixes[:FEW])
        seconds["one sentence at a time"].append(scale * (time.perf_counter() - began))
    print(f"{len(prefixes):,} continuations of {LENGTH} tokens, {torch.get_num_threads()} threads")
    for name, values in seconds.items():
        print(row(name, values))
    ours, loop = seconds.values()
    print(f"(the loop's time is {scale:.0f} times that of {FEW} sentences)")
    best, median = (f(loop) / f(ours) for f in (min, statistics.median))
    print(f"ours is {best:.1f} times as fast, best of {REPEATS} ({median:.1f} by medians; limit {LIMIT:.0f})")


def peak_megabytes(run: Path, sentences: int) -> float:
    """The most memory that `nnrs evaluate` has at once, in a process of its own, which looks itself.

    (What the system tells a parent of its child's peak begins with the parent's own.)
    """
    command = ["evaluate", str(run), "--metrics", "bleu,self-bleu", "--split", "train", "--json"]
    command += ["--sentences", str(sentences), "--device", "cpu"]
    done = subprocess.run([sys.executable, "-c", WATCHED, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return float(done.stderr.split()[-2]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="a folder with ptb/")
    data = parser.parse_args().data / "ptb"
    if not data.is_dir():
        print(f"no PTB at {data}: give the folder that has ptb/ with --data.")
        return
    with tempfile.TemporaryDirectory() as folder:
        run = untrained(data, Path(folder) / "run")
        prefixes, _ = cut(run.parts.text.ids["test"], Request(sentences=SENTENCES, length=LENGTH))
        speed(run.parts.model, prefixes)
        peaks = {count: peak_megabytes(run.directory.path, count) for count in COUNTS}
        size = (run.directory.path / "generations.jsonl").stat().st_size / sum(COUNTS)
    print("nnrs evaluate --metrics bleu,self-bleu --split train --sentences N:")
    for count, peak in peaks.items():
        print(f"{count:6,} sentences: peak memory {peak:6.0f} MB")
    grown = (peaks[COUNTS[-1]] - peaks[COUNTS[0]]) / (COUNTS[-1] - COUNTS[0])
    print(f"{1024 * grown:.1f} kB a sentence more, whose line in generations.jsonl has {size / 1000:.1f} kB")


if __name__ == "__main__":
    main()
