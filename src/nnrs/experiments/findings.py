"""What results say, in words: contrasts named in advance, how sure they are, what so few seeds could show at all."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nnrs.experiments.groups import Group, grouped
from nnrs.experiments.store import Result
from nnrs.metrics.contrasts import Contrast, contrast, corrected, fewest_seeds, smallest_p
from nnrs.metrics.score import Score
from nnrs.run_directory import Json

# METHOD, "What to expect": ours and theirs, on test perplexity, at exponential 0 -> 0.2.
NAMED_IN_ADVANCE = (
    ("nnrs", "mle"),
    ("ss", "mle"),
    ("ss-nnrs", "ss"),
    ("nnrs", "unigram"),
    ("nnrs", "shuffled"),
    ("nnrs", "tprs"),
)
AS_NAMED = {"shape": "exponential", "start": 0.0, "end": 0.2}
BASELINE = "mle"
# Of all other metrics those that sum one up; the last step of the exposure curve stands for it.
HEADLINES = ("bleu4", "self-bleu4", "wmd", "self-wmd", "excess-nats", "ppl-decile10")
PERPLEXITY = "ppl|test"


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Sentences, and the contrasts that they speak of."""

    sentences: list[str] = field(default_factory=list)
    contrasts: list[Contrast] = field(default_factory=list)  # of test perplexity: one family
    others: list[Contrast] = field(default_factory=list)  # of other metrics: another one

    def as_dict(self) -> Json:
        """All of it as plain values, for JSON."""
        return {
            "sentences": self.sentences,
            "contrasts": [described(item) for item in self.contrasts],
            "others": [described(item) for item in self.others],
        }


@dataclass(frozen=True, eq=False)
class Setting:
    """Groups that differ in their method only: one text, one model, one way of training."""

    groups: tuple[Group, ...]
    name: str  # empty where there is one setting

    def pairs(self) -> list[tuple[Group, Group]]:
        """Whom to compare with whom: the pairs named in advance, and methods in none of them with the baseline."""
        chosen = {method: self._stands_for(method) for method in dict.fromkeys(g.method for g in self.groups)}
        pairs = [(ours, theirs) for ours, theirs in NAMED_IN_ADVANCE if {ours, theirs} <= chosen.keys()]
        baseline = BASELINE if BASELINE in chosen else next(iter(chosen))
        compared = {method for pair in pairs for method in pair} | {baseline}
        pairs += [(method, baseline) for method in chosen if method not in compared]
        return [(chosen[ours], chosen[theirs]) for ours, theirs in pairs]

    def called(self, group: Group) -> str:
        """The method, with what tells its groups apart, and the setting where there are several."""
        return f"{self._own_name(group)} on {self.name}" if self.name else self._own_name(group)

    def choices(self) -> list[str]:
        """How the one group was chosen that stands for a method with several."""
        sentences = []
        where = f" on {self.name}" if self.name else ""
        for method in dict.fromkeys(group.method for group in self.groups):
            several, one = self._of(method), self._stands_for(method)
            if len(several) > 1:
                how = "as named in advance" if _as_named(one) else "the best on validation"
                sentences.append(
                    f"{method} was trained in {len(several)} ways{where}; compared is {self._own_name(one)}, {how}."
                )
        return sentences

    def _of(self, method: str) -> list[Group]:
        return [group for group in self.groups if group.method == method]

    def _own_name(self, group: Group) -> str:
        if len(self._of(group.method)) == 1:
            return group.method
        told = [text for name, text in group.labels.items() if name not in ("method", "corpus", "model")]
        return " ".join(told) or f"{group.method} ({group.results[0].group})"

    def _stands_for(self, method: str) -> Group:
        groups = self._of(method)
        named = [group for group in groups if _as_named(group)]
        return named[0] if len(named) == 1 else min(groups, key=lambda group: group.perplexity("valid").mean)


def findings(results: Iterable[Result]) -> Findings:
    """What is better than what, by how much and how sure, from results alone."""
    settings = settings_of_groups(grouped(results))
    pairs = [(setting, ours, theirs) for setting in settings for ours, theirs in setting.pairs()]
    pairs = [pair for pair in pairs if set(pair[1].seeds) & set(pair[2].seeds)]
    contrasts = corrected(
        [
            contrast(
                setting.called(ours),
                setting.called(theirs),
                PERPLEXITY,
                (ours.nats("test"), theirs.nats("test")),
            )
            for setting, ours, theirs in pairs
        ]
    )
    others = corrected([made for pair in pairs for made in _on_other_metrics(*pair)])
    groups = [(ours, theirs) for _, ours, theirs in pairs]
    sentences = [choice for setting in settings for choice in setting.choices()]
    sentences += [_sentence(item, *pair) for item, pair in zip(contrasts, groups, strict=True)]
    sentences += _reach(contrasts) + _of_others(others)
    return Findings(sentences=sentences or [NOTHING], contrasts=contrasts, others=others)


NOTHING = "There is nothing to compare: name at least two methods, with seeds in common."


def settings_of_groups(groups: Sequence[Group]) -> list[Setting]:
    """The groups, those together that can be compared; each setting named by what tells it from the others."""
    members: dict[str, list[Group]] = {}
    for group in groups:
        members.setdefault(json.dumps(_surroundings(group), sort_keys=True), []).append(group)
    flats = [_flat(_surroundings(some[0])) for some in members.values()]
    varying = [name for name in flats[0] if len({flat.get(name) for flat in flats}) > 1] if flats else []
    return [
        Setting(tuple(some), _name(flat, varying)) for some, flat in zip(members.values(), flats, strict=True)
    ]


def described(item: Contrast) -> Json:
    """A contrast as plain values, for JSON."""
    return {
        "ours": item.ours,
        "theirs": item.theirs,
        "metric": item.metric,
        "seeds": list(item.seeds),
        "mean": item.mean,
        "interval": item.interval,
        "percent": item.percent,
        "p": item.p,
        "holm_p": item.holm_p,
        "family": item.family,
        "verdict": item.verdict,
    }


def shown_difference(item: Contrast) -> str:
    """The mean difference as a person says it.

    >>> shown_difference(contrast("a", "b", "ppl|test", ({1: -0.02}, {1: 0.0})))
    '1.98 % lower'
    """
    return _amount(item, item.mean)


def shown_interval(item: Contrast) -> str:
    """The interval of the difference, likewise; empty where there is none."""
    if item.interval is None:
        return ""
    low, high = item.interval
    ends = (low, high) if item.mean >= 0 else (high, low)  # the end nearer to no difference first
    return " to ".join(_amount(item, end) for end in ends)


def _amount(item: Contrast, difference: float) -> str:
    side = "lower" if difference < 0 else "higher"
    if item.in_nats:
        return f"{abs(100.0 * math.expm1(difference)):.2f} % {side}"
    digits = Score(item.metric.split("|")[0], 0.0, "").family.digits
    return f"{abs(difference):.{digits}f} {side}"


def shown_p(p: float) -> str:
    """A p value with as many digits as mean something.

    >>> shown_p(0.0625), shown_p(1.0), shown_p(2e-05)
    ('0.062', '1', '2e-05')
    """
    return f"{p:.2g}" if p < 0.001 or p == 1 else f"{p:.3f}"


def _sentence(item: Contrast, ours: Group, theirs: Group) -> str:
    values = (
        f"test perplexity {ours.perplexity('test').mean:.2f} against {theirs.perplexity('test').mean:.2f}"
    )
    how_sure = (
        f"{_seeds(len(item.seeds))}, p = {shown_p(item.holm_p)} after Holm over {_contrasts(item.family)}"
    )
    interval = f"95 % interval {shown_interval(item)}; " if item.interval else ""
    measured = f"{values}, {shown_difference(item)} ({interval}{how_sure})"
    if item.verdict == "no difference found":
        return f"No difference found between {item.ours} and {item.theirs}: {measured}."
    return f"{item.ours} is {item.verdict} than {item.theirs}: {measured}."


def _reach(contrasts: Sequence[Contrast]) -> list[str]:
    """What these seeds could have shown at best, where that is not enough."""
    if not contrasts:
        return []
    seeds, family = max(len(item.seeds) for item in contrasts), len(contrasts)
    if seeds == 1:
        return ["One seed decides nothing: seeds of one method differ, too. Use several (--seeds 1-5)."]
    if smallest_p(seeds) * family < 0.05:
        return []
    return [
        f"With {_seeds(seeds)} the exact test cannot give a p below {shown_p(smallest_p(seeds))}, so none of "
        f"{_contrasts(family)} could pass; from {fewest_seeds(family)} seeds on one could."
    ]


def _of_others(others: Sequence[Contrast]) -> list[str]:
    if not others:
        return []
    told = [item for item in others if item.verdict != "no difference found"]
    metrics = dict.fromkeys(item.metric.replace("|", " ") for item in others)
    head = f"On other metrics ({', '.join(metrics)}; {_contrasts(len(others))} corrected together)"
    if not told:
        return [f"{head} no difference was found."]
    parts = [
        f"{item.ours} is {item.verdict} than {item.theirs} in {item.metric.split('|')[0]} "
        f"({shown_difference(item)}, 95 % interval {shown_interval(item)}, p = {shown_p(item.holm_p)})"
        for item in told
    ]
    return [f"{head}: {'; '.join(parts)}."]


def _on_other_metrics(setting: Setting, ours: Group, theirs: Group) -> list[Contrast]:
    made = []
    for key in _headlines(ours):
        values = ours.scores[key], theirs.scores.get(key, {})
        if values[0].keys() & values[1].keys():
            better = Score(key.split("|")[0], 0.0, "").family.better
            if key.startswith("ppl"):
                values = _logs(values[0]), _logs(values[1])
            made.append(contrast(setting.called(ours), setting.called(theirs), key, values, better))
    return made


def _headlines(group: Group) -> list[str]:
    """The scores on the test split that stand for the others."""
    found: dict[tuple[str, ...], str] = {}
    for key in group.scores:
        metric, split, *decode = key.split("|")
        family = "excess-nats" if metric.startswith("excess-nats") else metric
        if split == "test" and family in HEADLINES:
            before = found.setdefault((family, *decode), key)
            if _step(key) > _step(before):
                found[family, *decode] = key
    return sorted(found.values(), key=lambda key: HEADLINES.index(key.split("|")[0].split("-h")[0]))


def _step(key: str) -> int:
    """The step of the exposure curve that a score is at; 0 of any other."""
    last = key.split("|")[0].rpartition("-h")[2]
    return int(last) if last.isdecimal() else 0


def _logs(values: dict[int, float]) -> dict[int, float]:
    return {seed: math.log(value) for seed, value in values.items()}


def _as_named(group: Group) -> bool:
    """Whether its rates are those of the contrasts named in advance."""
    policy = group.results[0].record["config"]["policy"]
    return all(policy[name] in (None, AS_NAMED) for name in ("prediction_rate", "neighbor_rate"))


def _surroundings(group: Group) -> Json:
    """All that a run depends on but its method and its seed."""
    record = group.results[0].record
    parts = {name: record["config"][name] for name in ("data", "model", "optimizer", "training")}
    parts["data"] = {**parts["data"], "source": record["names"]["corpus"]}
    return parts


def _flat(values: Json) -> dict[str, str]:
    return {
        f"{section}.{name}": str(value) for section, part in values.items() for name, value in part.items()
    }


def _name(flat: dict[str, str], varying: Sequence[str]) -> str:
    bare = ("data.source", "model.kind")  # which need no name beside the value
    return ", ".join(flat[name] if name in bare else f"{name} {flat[name]}" for name in varying)


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count > 1 else ''}"


def _contrasts(count: int) -> str:
    return f"{count} contrast{'s' if count > 1 else ''}"
