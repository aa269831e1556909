"""What does the curriculum cost inside a Hugging Face model, and what does a table of its subwords?

GPU. A model of GPT-2 small's size with random weights, rows of 1,024 tokens, bfloat16 autocast, fused AdamW. The
variants (plain, NNRS and scheduled sampling at rate 0.2) take turns on one model, five steps at a time between which
nobody waits for the GPU, as in a training loop, and are compared by the median of these times; then the same under
torch.compile, with a count of recompilations while both rates rise. Peak memory is that of one variant's step alone.
The table is made for 150,000 tokens of two widths, then read back from the cache.
"""

import contextlib
import os
import random
import statistics
import tempfile
import time

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import nnrs
from nnrs.integrations.curriculum import Curriculum
from nnrs.integrations.settings import Settings
from nnrs.neighbors.subword import table_from_vectors

BATCH, TIME, RATE, K = 8, 1024, 0.2, 16
WARM, REPEATS, COMPILED_STEPS = 2, 12, 50
STEPS = 5  # in a row
TOKENS, WIDTHS = 150_000, (768, 4096)


def invented_tokenizer(count):
    """Of invented subwords in the shares of a real vocabulary: half begin a word, few are large or Cyrillic."""
    chance = random.Random(0)
    entries = {"<s>": 0}
    while len(entries) < count:
        letters = "абвгдежзиклмнопрст" if chance.random() < 0.1 else "abcdefghijklmnopqrstuvwxyz"
        word = "".join(chance.choice(letters) for _ in range(chance.randint(2, 9)))
        word = word.capitalize() if chance.random() < 0.2 else word
        entries.setdefault(("▁" if chance.random() < 0.5 else "") + word, len(entries))
    words = Tokenizer(WordLevel(entries, unk_token="<s>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>")


class Step:
    """One training step of the model, under a curriculum or none."""

    def __init__(self, model, optimizer, curriculum=None):
        self.optimizer, self.curriculum = optimizer, curriculum
        self.ids = torch.randint(model.config.vocab_size, (BATCH, TIME), device="cuda")

    def __call__(self, call, step=0, steps=1):
        if self.curriculum:
            self.curriculum.begin_step(step, steps)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = call(input_ids=self.ids, labels=self.ids).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @contextlib.contextmanager
    def attached(self):
        if self.curriculum is None:
            yield
            return
        self.curriculum.attach()
        try:
            yield
        finally:
            self.curriculum.detach()


def seconds(work, times=1):
    """Of one, where so many follow one another."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times


def variants(model, optimizer):
    """The steps by name. They share the model and the optimizer; each has its hook."""
    table = nnrs.NeighborTable.from_vectors(model.get_input_embeddings().weight, k=K)
    settings = {
        "plain": None,
        "nnrs": Settings(neighbor_rate=RATE),
        "ss": Settings(prediction_rate=RATE),
        "ss-nnrs": Settings(neighbor_rate=RATE, prediction_rate=RATE),
    }
    return {
        name: Step(
            model, optimizer, chosen and Curriculum(model, table if chosen.neighbor_rate else None, chosen)
        )
        for name, chosen in settings.items()
    }


def print_times(title, steps, call):
    times = {name: [] for name in steps}
    for turn in range(WARM + REPEATS):
        for name, step in steps.items():
            with step.attached():
                taken = seconds(lambda step=step: step(call), STEPS)
            if turn >= WARM:
                times[name].append(taken)
    plain = statistics.median(times["plain"])
    print(f"\n{title}: milliseconds a step, relative to plain (limits: nnrs 1.02, ss 1.5)")
    for name, taken in times.items():
        low, median, high = statistics.quantiles(taken, n=4)
        print(f"  {name:8} {1e3 * median:8.2f} ({1e3 * low:.2f} to {1e3 * high:.2f})  {median / plain:.3f}")


def print_memory(steps, call):
    print("\npeak memory, relative to plain (limit 1.05)")
    peaks = {}
    for name, step in steps.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with step.attached():
            step(call)
        peaks[name] = torch.cuda.max_memory_allocated()
        print(f"  {name:8} {peaks[name] / 2**20:10,.0f} MiB  {peaks[name] / peaks['plain']:.3f}")


def print_recompilations(model, optimizer):
    """Both rates rise from 0. The second step, where they leave it, compiles the second pass; later steps nothing."""
    table = nnrs.NeighborTable.from_vectors(model.get_input_embeddings().weight, k=K)
    rising = nnrs.Schedule("linear", 0.0, RATE)
    compiled = torch.compile(model)
    curriculum = Curriculum(compiled, table, Settings(neighbor_rate=rising, prediction_rate=rising))
    step = Step(model, optimizer, curriculum)
    graphs = []
    with step.attached():
        for index in range(COMPILED_STEPS):
            step(compiled, index, COMPILED_STEPS)
            graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    found = graphs[-1] - graphs[1]
    print(
        f"\nrecompilations over {COMPILED_STEPS} steps under torch.compile (limit 0): {found} "
        f"({graphs[0]} graphs at first, {graphs[1]} with the second pass)"
    )
    return compiled


def print_table_times():
    print(f"\na table for {TOKENS:,} tokens, k = {K}: seconds (limit 10)")
    tokenizer = invented_tokenizer(TOKENS)
    for width in WIDTHS:
        vectors = torch.randn(TOKENS, width, device="cuda", dtype=torch.bfloat16)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["NNRS_CACHE"] = folder
            taken = seconds(lambda vectors=vectors: table_from_vectors(vectors, tokenizer, K))
            again = seconds(lambda vectors=vectors: table_from_vectors(vectors, tokenizer, K))
        print(f"  width {width:5}: made in {taken:.2f}, read from the cache in {again:.2f}")


def make_model() -> nn.Module:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).cuda().train()
    model.loss_type = "ForCausalLM"  # unsaid, it is logged, and a log line cannot be compiled
    return model


def main():
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure.")
        return
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    print_table_times()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    steps = variants(model, optimizer)
    print_times("eager", steps, model)
    print_memory(steps, model)
    compiled = print_recompilations(model, optimizer)
    print_times("compiled", variants(compiled, optimizer), compiled)


if __name__ == "__main__":
    main()
