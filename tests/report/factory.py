"""Results as a grid would have stored them, made up: seeded, of any number, alike in every key."""

import json
import math
import random
import re
from html import unescape
from pathlib import Path
from typing import Any

from nnrs.experiments.config import RunConfig
from nnrs.experiments.explorer import FORMAT, table_settings

METHODS = ("mle", "ss", "nnrs", "ss-nnrs")
BETTER = {"mle": 0.0, "ss": -0.01, "nnrs": -0.02, "ss-nnrs": -0.025}  # nats per token, beside noise of 0.008
EVIL = "<script>alert(1)</script>"
WORDS = f"the a {EVIL} of people house must we our nation and work peace world in for year".split()
RUN = (
    "data:{corpus}|model:lstm-2x200|dropout:0.2|policy:{method}|opt:sgd-20-plateau|epochs:{epochs}|config:{group}"
    "|seed:{seed}|v:0.1.0"
)
TEXT = "n:1000|len:35|decode:sample|prefix:10|smooth:1|text-seed:0|split:test"


def make_results(
    groups: int = 4, seeds: int = 3, epochs: int = 12, corpora: tuple[str, ...] = ("ptb",)
) -> list[dict[str, Any]]:
    """So many settings with so many seeds each; methods and corpora take turns."""
    made = []
    for group in range(groups):
        method, corpus = METHODS[group % 4], corpora[group // 4 % len(corpora)]
        labels = {"method": method, "corpus": corpus} if len(corpora) > 1 else {"method": method}
        if groups > 4 * len(corpora):
            labels["k"] = str(group // (4 * len(corpora)))
        made += [make_result(method, corpus, labels, group, seed, epochs) for seed in range(1, seeds + 1)]
    return made


def make_result(
    method: str, corpus: str, labels: dict[str, str], group: int, seed: int, epochs: int
) -> dict[str, Any]:
    """One finished run."""
    draws = random.Random(1000 * group + seed)
    lines = [_epoch(method, epoch, epochs, draws) for epoch in range(epochs)]
    best = min(range(epochs), key=lambda epoch: lines[epoch]["valid_perplexity"])
    valid = lines[best]["valid_perplexity"]
    test = valid * math.exp(-0.04 + draws.gauss(0, 0.002))
    fingerprint = f"{group:08x}"
    run = RUN.format(corpus=corpus, method=method, epochs=epochs, group=fingerprint, seed=seed)
    name = "_".join([*labels.values(), f"seed-{seed}"])
    return {
        "format": 2,
        "name": name,
        "labels": labels,
        "seed": seed,
        "config": _config(method, corpus, seed, epochs),
        "names": {"corpus": corpus, "vectors": None if method in ("mle", "ss") else "corpus"},
        "group": fingerprint,
        "signature": f"ppl|split:test|streams:1|{run}",
        "valid_perplexity": valid,
        "test_perplexity": test,
        "valid_nats": math.log(valid),
        "test_nats": math.log(test),
        "best_epoch": best,
        "parameters": 2_650_000,
        "dose": _means(lines, {"prediction": "prediction_rate", "neighbor": "neighbor_rate"}),
        "effective": _means(
            lines,
            {
                "prediction": "effective_prediction_rate",
                "neighbor": "effective_neighbor_rate",
                "all": "effective_rate",
            },
        ),
        "epochs": lines,
        "request": {
            "metrics": ["all"],
            "splits": ["test"],
            "decodings": ["sample"],
            "sentences": 1000,
            "prefix": 10,
            "length": 35,
            "seed": 0,
            "data": None,
            "vectors": None,
        },
        "scores": _scores(method, test, run, draws),
        "samples": [_sample(number, draws) for number in range(3)],
        "trajectory": _trajectory(method, draws),
        "timing": {"train_seconds": 100.0 + seed, "environment": {"device": "cpu"}},
        "command": f"nnrs train --data {corpus} --method {method} --epochs {epochs} --seed {seed} "
        f"--out {method}_seed-{seed}",
    }


def make_explorer(words: int = 40, k: int = 5) -> dict[str, Any]:
    """Neighbors of made-up words, the script among them, and two sentences with their draws."""
    draws = random.Random(7)
    names = [*WORDS, *(f"word{index}" for index in range(words - len(WORDS)))]
    neighbors = [draws.sample([other for other in range(words) if other != word], k) for word in range(words)]
    similarities = [
        sorted((round(draws.uniform(0.1, 0.9), 6) for _ in range(k)), reverse=True) for _ in names
    ]
    sentences = []
    for _ in range(2):
        rows = draws.sample(range(len(WORDS)), 12)
        sentence = {
            name: [round(draws.random(), 6) for _ in rows]
            for name in ("prediction_draws", "neighbor_draws", "coins", "picks")
        }
        sentences.append(
            {
                "words": [names[row] for row in rows],
                "rows": [None if place == 3 else row for place, row in enumerate(rows)],
                "predictions": [draws.choice(names) for _ in rows],
                **sentence,
            }
        )
    return {
        "format": FORMAT,
        "method": "ss-nnrs",
        "corpus": "ptb",
        "table": table_settings(_config("ss-nnrs", "ptb", 1, 3), {"corpus": "ptb", "vectors": "corpus"}),
        "words": names,
        "counts": [10 * (words - i) for i in range(words)],
        "neighbors": neighbors,
        "column": "cosine",
        "similarities": similarities,
        "sentences": sentences,
    }


def write_results(path: Path, results: list[dict[str, Any]]) -> Path:
    """The results as a JSON-lines file, which `collect` reads."""
    path.write_text("".join(json.dumps(result) + "\n" for result in results), encoding="utf-8")
    return path


def _config(method: str, corpus: str, seed: int, epochs: int) -> dict[str, Any]:
    values = {
        "data": {"source": corpus},
        "policy": {"method": method},
        "training": {"epochs": epochs},
        "seed": seed,
    }
    return RunConfig.from_dict(values).as_dict()


def _epoch(method: str, epoch: int, epochs: int, draws: random.Random) -> dict[str, Any]:
    z = epoch / max(1, epochs - 1)
    predicted, near = 0.25 * z * (method in ("ss", "ss-nnrs")), 0.25 * z * (method in ("nnrs", "ss-nnrs"))
    real = (predicted * (1 - near / 2), 0.8 * near * (1 - predicted / 2))
    valid = math.exp(4.6 + 1.4 * math.exp(-3.5 * z) + BETTER[method] + draws.gauss(0, 0.008))
    return {
        "epoch": epoch,
        "train_perplexity": valid * (1.05 - 0.3 * z),
        "valid_perplexity": valid,
        "prediction_rate": predicted,
        "neighbor_rate": near,
        "effective_rate": sum(real),
        "effective_prediction_rate": real[0],
        "effective_neighbor_rate": real[1],
        "temperature": 0.5 + 0.4 * z,
        "effective_neighbors": 3.0 + 4.0 * z if method in ("nnrs", "ss-nnrs") else None,
        "learning_rate": 20.0,
        "passes": 2.0 if predicted else 1.0,
    }


def _means(lines: list[dict[str, Any]], names: dict[str, str]) -> dict[str, float]:
    return {short: sum(line[name] for line in lines) / len(lines) for short, name in names.items()}


def _scores(method: str, test: float, run: str, draws: random.Random) -> list[dict[str, Any]]:
    def score(metric: str, value: float, how: str, better: str, **more: Any) -> dict[str, Any]:
        interval = [value * 0.97, value * 1.03]
        return {
            "metric": metric,
            "value": value,
            "signature": f"{metric}|{how}|{run}",
            "better": better,
            "interval": interval,
            **more,
        }

    plain, shift = "split:test|streams:1", BETTER[method]
    yielded = [score("ppl", test, plain, "lower")]
    yielded += [
        score(
            f"ppl-decile{tenth}",
            2.5 * 2.1**tenth * math.exp(shift * tenth + draws.gauss(0, 0.02)),
            plain,
            "lower",
        )
        for tenth in range(1, 11)
    ]
    yielded += [score("ppl-noise0", test, plain, "lower")]
    yielded += [
        score(f"ppl-{kind}-noise{rate}", test * math.exp(0.02 * rate * (1 + 10 * shift)), plain, "lower")
        for kind in ("neighbor", "unigram", "own")
        for rate in (10, 20, 30, 40, 50)
    ]
    quality = draws.gauss(8.0 - 40 * shift, 0.2)
    yielded += [
        score("bleu4", quality, TEXT, "higher"),
        score("corpus-bleu4", quality / 2, TEXT, "higher"),
        score("self-bleu4", draws.gauss(7.0 - 20 * shift, 0.2), TEXT, "lower"),
        score("wmd-scaled", draws.gauss(0.71, 0.003), TEXT, "higher"),
        score("self-wmd", draws.gauss(0.6, 0.003), TEXT, "higher"),
    ]
    excess = [(0.9 + 10 * shift) * (1 - math.exp(-h / 8)) + draws.gauss(0, 0.01) for h in range(35)]
    curve = {
        "own_nats": [4.4 + value for value in excess],
        "gold_nats": [4.4] * 35,
        "excess_nats": excess,
        "excess_low": [value - 0.03 for value in excess],
        "excess_high": [value + 0.03 for value in excess],
        "own_accuracy": [0.2] * 35,
        "gold_accuracy": [0.25] * 35,
    }
    how = f"{TEXT}|recovery:5"
    yielded += [score(f"excess-nats-h{h}", excess[h - 1], how, "lower") for h in (1, 5, 10, 20)]
    yielded += [score("excess-nats-h30", excess[29], how, "lower", curve=curve)]
    yielded += [score(f"recovery-nats-{step}", excess[29 + step], how, "lower") for step in range(1, 6)]
    yielded += [
        score("own-accuracy", draws.gauss(0.2, 0.005), how, "higher"),
        score("rep-4", draws.gauss(0.02, 0.002), TEXT, "lower"),
        score("distinct-2", draws.gauss(0.6, 0.01), TEXT, "higher"),
    ]
    return yielded


def _sample(number: int, draws: random.Random) -> dict[str, Any]:
    shared = random.Random(number)  # the same prefixes for every run
    return {
        "prefix": shared.choices(WORDS, k=6),
        "gold": shared.choices(WORDS, k=12),
        "generated": draws.choices(WORDS, k=12),
        "decode": "sample",
    }


def _trajectory(method: str, draws: random.Random) -> dict[str, Any]:
    gold = random.Random(3).choices(WORDS, k=18)
    known = {"mle": ["gold"], "ss": ["gold", "prediction"], "nnrs": ["gold", "neighbor"]}
    choices = known.get(method, ["gold", "neighbor", "prediction"])
    sources = draws.choices(choices, k=18)
    inputs = [
        word if source == "gold" else draws.choice(WORDS) for word, source in zip(gold, sources, strict=True)
    ]
    others = {
        f"{name}s": [draws.choice(WORDS) if name in choices else None for _ in gold]
        for name in ("neighbor", "prediction")
    }
    return {"gold": gold, "inputs": inputs, "sources": sources, **others}


def sentences_of(page):
    """What a page says was found, with backticks around what stands as code."""
    lead = page.split('<ul class="lead">')[1].split("</ul>")[0]
    return [unescape(re.sub("</?code>", "`", item)) for item in re.findall("<li>(.*?)</li>", lead)]
