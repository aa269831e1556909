"""What may be compared with what: groups alike in all but their method, and the pairs that were named in advance."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from nnrs.experiments.config import DataConfig, leaves
from nnrs.experiments.groups import Group
from nnrs.experiments.score_keys import version_of
from nnrs.run_directory import Json

# Before anything was run: ours and theirs, on test perplexity, at exponential 0 -> 0.2 (docs/statistics.md).
NAMED_IN_ADVANCE = (
    ("nnrs", "mle"),
    ("ss", "mle"),
    ("ss-nnrs", "ss"),
    ("nnrs", "unigram"),
    ("nnrs", "shuffled"),
    ("nnrs", "tprs"),
)
# What users of a text of their own ask first. The paper's tables keep to the six above.
ASKED_FIRST = ("ss-nnrs", "mle")
AS_NAMED = {"shape": "exponential", "start": 0.0, "end": 0.2}
BASELINE = "mle"
SECTIONS = ("data", "model", "optimizer", "training")  # of a configuration, without method and seed
UNSAID = {"data": asdict(DataConfig()), "model": {"weight_dropout": 0.0}}  # where it says nothing of that


@dataclass(frozen=True, eq=False)
class Setting:
    """Groups that differ in their method only: one text, one model, one way of training."""

    groups: tuple[Group, ...]
    name: str  # empty where there is one setting

    def pairs(self) -> list[tuple[Group, Group]]:
        """The groups to compare: one stands for each method."""
        chosen = {method: self._stands_for(method) for method in dict.fromkeys(g.method for g in self.groups)}
        of_paper = any("row" in group.labels for group in self.groups)
        pairs = pairs_of(list(chosen), of_paper=of_paper)
        return [(chosen[ours], chosen[theirs]) for ours, theirs in pairs]

    def called(self, group: Group) -> str:
        """The method, or what tells its groups apart where it has several."""
        if len(self._of(group.method)) == 1:
            return group.method
        told = [text for name, text in group.labels.items() if name not in ("method", "corpus", "model")]
        named = told if "row" in group.labels else [group.method, *told]  # a row of the paper says its method
        return " ".join(named) if told else f"{group.method} {group.results[0].group}"

    def choices(self) -> list[str]:
        """How the one group was chosen that stands for a method with several."""
        sentences = []
        for method in dict.fromkeys(group.method for group in self.groups):
            several, one = self._of(method), self._stands_for(method)
            if len(several) > 1:
                named = sum(map(_as_named, several)) == 1
                how = "the setting named in advance" if named else "the best on validation"
                ways = f"{method} was trained in {len(several)} ways"
                sentences.append(f"{ways}; compared is {self.called(one)}, {how}.")
        return sentences

    def _of(self, method: str) -> list[Group]:
        return [group for group in self.groups if group.method == method]

    def _stands_for(self, method: str) -> Group:
        """The group with the rates named in advance, else the best on validation; the test split has no say."""
        groups = self._of(method)
        named = [group for group in groups if _as_named(group)]
        return min(named or groups, key=lambda group: fmean(group.nats("valid").values()))


def pairs_of(methods: Sequence[str], *, of_paper: bool = False) -> list[tuple[str, str]]:
    """Whom to compare with whom: the pairs named in advance, and methods in none of them with the baseline.

    >>> pairs_of(["mle", "ss", "ss-nnrs", "gsns"])
    [('ss', 'mle'), ('ss-nnrs', 'ss'), ('ss-nnrs', 'mle'), ('gsns', 'mle')]
    >>> pairs_of(["mle", "ss", "ss-nnrs"], of_paper=True)
    [('ss', 'mle'), ('ss-nnrs', 'ss')]
    """
    named = NAMED_IN_ADVANCE if of_paper else (*NAMED_IN_ADVANCE, ASKED_FIRST)
    pairs = [(ours, theirs) for ours, theirs in named if {ours, theirs} <= {*methods}]
    baseline = BASELINE if BASELINE in methods else methods[0]
    compared = {method for pair in pairs for method in pair} | {baseline}
    return pairs + [(method, baseline) for method in methods if method not in compared]


def settings_of_groups(groups: Sequence[Group]) -> list[Setting]:
    """The groups, those together that can be compared; each setting named by what tells it from the others."""
    members: dict[int, list[Group]] = {}
    for number, group in zip(setting_numbers(groups), groups, strict=True):
        members.setdefault(number, []).append(group)
    flats = [
        {name: str(value) for name, value in leaves(_surroundings(some[0]))} for some in members.values()
    ]
    varying = [name for name in flats[0] if len({flat.get(name) for flat in flats}) > 1] if flats else []
    return [
        Setting(tuple(some), _name(flat, varying)) for some, flat in zip(members.values(), flats, strict=True)
    ]


def setting_numbers(groups: Sequence[Group]) -> list[int]:
    """For each group the number of its setting: groups of one number can be compared."""
    numbers: dict[str, int] = {}
    told = [json.dumps(_surroundings(group), sort_keys=True) for group in groups]
    return [numbers.setdefault(text, len(numbers)) for text in told]


def _as_named(group: Group) -> bool:
    """Whether its rates are those of the contrasts named in advance."""
    policy = group.results[0].record["config"]["policy"]
    return all(policy[name] in (None, AS_NAMED) for name in ("prediction_rate", "neighbor_rate"))


def _surroundings(group: Group) -> Json:
    """All that a run depends on but its method and its seed."""
    record = group.results[0].record
    parts = {name: UNSAID.get(name, {}) | record["config"][name] for name in SECTIONS}
    text = {"source": record["names"]["corpus"], "text": record.get("text")}  # two texts may have one name
    parts["data"] = {**parts["data"], **text}
    return {**parts, "nnrs": {"version": version_of(str(record["signature"]))}}


def _name(flat: dict[str, str], varying: Sequence[str]) -> str:
    bare = ("data.source", "model.kind")  # which need no name beside the value
    return ", ".join(flat[name] if name in bare else f"{name} {flat[name]}" for name in varying)
