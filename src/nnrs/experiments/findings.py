"""What results say, in words: contrasts named in advance, how sure they are, what so few seeds could show at all."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from nnrs.experiments.groups import Group, grouped
from nnrs.experiments.settings import Setting, settings_of_groups
from nnrs.experiments.store import Result
from nnrs.metrics.contrasts import (
    ALPHA,
    NOTHING_FOUND,
    TOO_FEW,
    Contrast,
    contrast,
    corrected,
    fewest_seeds,
    smallest_p,
)
from nnrs.metrics.score import family_of
from nnrs.run_directory import Json
from nnrs.wording import counted

# Of all other metrics those that sum one up; the last step of the exposure curve stands for it.
HEADLINES = ("bleu", "bleu4", "self-bleu4", "wmd", "self-wmd", "excess-nats", "ppl-decile10")
PERPLEXITY = "ppl|test"
NOTHING = "There is nothing to compare: name at least two methods, with seeds in common."
ONE_SEED = "One seed decides nothing: seeds of one method differ, too."
NOTHING_YET = "There is nothing to compare yet among the runs that are finished."


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


def findings(results: Iterable[Result], missing: Sequence[str] = ()) -> Findings:
    """What is better than what, by how much and how sure, from results alone.

    Sentences about runs that are missing come first, and no advice that those would make needless.
    """
    settings = settings_of_groups(grouped(results))
    pairs = [(setting, ours, theirs) for setting in settings for ours, theirs in setting.pairs()]
    pairs = [pair for pair in pairs if set(pair[1].seeds) & set(pair[2].seeds)]
    warnings = _of_training(settings)
    if not pairs:
        return Findings(sentences=[*missing, *warnings, NOTHING_YET if missing else NOTHING])
    contrasts = corrected([_on_perplexity(*pair) for pair in pairs])
    others = corrected([made for pair in pairs for made in _on_other_metrics(*pair)])
    groups = [(ours, theirs) for _, ours, theirs in pairs]
    seeds = max(len(item.seeds) for item in contrasts)
    said = [ONE_SEED] if missing and seeds == 1 else reach(seeds, len(contrasts))
    sentences = [*missing, *said, *warnings]  # before what it is said of
    sentences += [f"{_on(setting.name)}{choice}" for setting in settings for choice in setting.choices()]
    sentences += [_sentence(item, *pair) for item, pair in zip(contrasts, groups, strict=True)]
    return Findings(sentences=sentences + _of_others(others), contrasts=contrasts, others=others)


def described(item: Contrast) -> Json:
    """A contrast as plain values, for JSON."""
    return {
        "setting": item.setting,
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
    """The mean difference as it stands in a table: of perplexities in percent.

    >>> shown_difference(contrast("a", "b", "ppl|test", ({1: -0.02}, {1: 0.0})))
    '-1.98 %'
    """
    return _signed(item, item.mean)


def shown_interval(item: Contrast) -> str:
    """The interval of the difference, likewise; empty where there is none. An end of -0.00 is below nothing."""
    return " to ".join(_signed(item, end, "") for end in item.interval or ())


def _signed(item: Contrast, difference: float, zero: str = "z") -> str:
    number, unit, digits = _scaled(item, difference)
    return f"{round(number, 6) or 0.0:+{zero}.{digits}f}{unit}"  # z: no minus before nothing


def _amount(item: Contrast, difference: float) -> str:
    """A difference as a person says it: 1.98 % lower."""
    number, unit, digits = _scaled(item, difference)
    return f"{abs(number):.{digits}f}{unit} {'lower' if difference < 0 else 'higher'}"


def _scaled(item: Contrast, difference: float) -> tuple[float, str, int]:
    if item.in_nats:
        return 100.0 * math.expm1(difference), " %", 2
    return difference, "", family_of(item.metric.split("|")[0]).digits


def shown_p(p: float) -> str:
    """A p value with as many digits as mean something.

    >>> shown_p(0.0625), shown_p(1.0), shown_p(2e-05)
    ('0.0625', '1', '2e-05')
    """
    return f"{p:.3g}"


def _sentence(item: Contrast, ours: Group, theirs: Group) -> str:
    # Means as tables have them. The percentage is that of the pairs, which two such means need not differ by.
    means = [fmean(math.exp(group.nats("test")[seed]) for seed in item.seeds) for group in (ours, theirs)]
    lacking = any(len(group.seeds) > len(item.seeds) for group in (ours, theirs))
    shared = " over the seeds of both" if lacking else ""
    measured = f"test perplexity {means[0]:.2f} against {means[1]:.2f}{shared}, "
    alone = len(item.seeds) == 1
    measured += _amount(item, item.mean) if alone else f"seed by seed {_measured(item)}"
    return f"{_on(item.setting)}{_judged(item)}: {measured}."


def _judged(item: Contrast) -> str:
    neither = {
        TOO_FEW: f"{'one seed' if len(item.seeds) == 1 else 'two seeds'} cannot tell {{}} from {{}}",
        NOTHING_FOUND: "no difference was found between {} and {}",
    }
    if item.verdict in neither:
        said = neither[item.verdict]
        said = said if item.setting else said.capitalize()  # where it begins the sentence
        return said.format(item.ours, item.theirs)
    return f"{item.ours} is {item.verdict} than {item.theirs}"


def _measured(item: Contrast) -> str:
    ends = " to ".join(_amount(item, end) for end in item.interval or ())
    interval = f"95 % interval {ends}; " if ends else ""
    seeds, family = counted(len(item.seeds), "seed"), counted(item.family, "contrast")
    sure = f"{seeds}, p = {shown_p(item.holm_p)} after Holm over {family}"
    return f"{_amount(item, item.mean)} ({interval}{sure})"


def reach(seeds: int, contrasts: int) -> list[str]:
    """What so many seeds can show at best, as a sentence; none where that is enough."""
    if seeds == 1:
        return [f"{ONE_SEED} Train several, as `nnrs compare --seeds 1-8` does."]
    if smallest_p(seeds) * contrasts < ALPHA:
        return []
    none, one = (
        (f"none of {contrasts} contrasts can", "one") if contrasts > 1 else ("the contrast cannot", "it")
    )
    return [
        f"With {counted(seeds, 'seed')} the exact test cannot give a p below {shown_p(smallest_p(seeds))}, so {none} "
        f"pass; from {fewest_seeds(contrasts)} seeds on {one} can."
    ]


def _of_others(others: Sequence[Contrast]) -> list[str]:
    """What else differs: so many contrasts that only the corrected test may name one."""
    if not others:
        return []
    metrics = ", ".join(dict.fromkeys(item.metric.replace("|", " ") for item in others))
    passed = [item for item in others if item.holm_p < ALPHA]
    hinted = sum(item.verdict.startswith("probably") for item in others)
    excludes = "excludes" if hinted == 1 else "exclude"
    by_chance = f"{ALPHA * len(others):.1f}"
    chance = f"{hinted} of their intervals {excludes} 0, where chance alone would have {by_chance} do so"
    family, seeds = counted(len(others), "contrast"), max(len(item.seeds) for item in others)
    hopeless = smallest_p(seeds) * len(others) >= ALPHA
    at_best = f" (with {counted(seeds, 'seed')} none can)" if hopeless else ""
    head = f"On other metrics ({metrics}) {len(passed)} of {family} passed the corrected test{at_best}"
    told = [
        f"{_on(item.setting)}{_judged(item)} in {item.metric.split('|')[0]}, {_measured(item)}."
        for item in passed
    ]
    return [f"{head}; {chance}." if hinted else f"{head}.", *told]


def _on_perplexity(setting: Setting, ours: Group, theirs: Group) -> Contrast:
    names = setting.called(ours), setting.called(theirs)
    return contrast(*names, PERPLEXITY, (ours.nats("test"), theirs.nats("test")), setting=setting.name)


def _on_other_metrics(setting: Setting, ours: Group, theirs: Group) -> list[Contrast]:
    made = []
    for key in _headlines(ours):
        values = ours.scores[key], theirs.scores.get(key, {})
        if values[0].keys() & values[1].keys():
            better = family_of(key.split("|")[0]).better
            if key.startswith("ppl"):
                values = _logs(values[0]), _logs(values[1])
            names = setting.called(ours), setting.called(theirs)
            made.append(contrast(*names, key, values, better, setting.name))
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


def training_warnings(results: Iterable[Result]) -> list[str]:
    """The runs of which training came apart, a sentence for each setting that has some."""
    return _of_training(settings_of_groups(grouped(results)))


def _of_training(settings: Sequence[Setting]) -> list[str]:
    sentences = []
    for setting in settings:
        apart = [
            f"{setting.called(group)} (seed{'s'[: len(seeds) - 1]} {', '.join(map(str, seeds))})"
            for group in setting.groups
            if (seeds := sorted(result.seed for result in group.results if result.came_apart))
        ]
        if apart:
            sentences.append(
                f"{_on(setting.name)}{', '.join(apart)} came apart in training: after the best epoch, which is "
                "scored, validation was worse than after the first. A lower learning rate may hold it."
            )
    return sentences


def _on(setting: str) -> str:
    return f"On {setting}: " if setting else ""
