"""A number together with what produced it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Score:
    """A value that travels with its signature, in sacreBLEU's manner.

    >>> print(Score("ppl", 81.204, "data:ptb|split:test|seed:7"))
    ppl|data:ptb|split:test|seed:7 = 81.20
    """

    metric: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.metric}|{self.signature} = {self.value:.2f}"

    def as_dict(self) -> dict[str, Any]:
        """The score as plain values, for JSON."""
        return {"metric": self.metric, "value": self.value, "signature": f"{self.metric}|{self.signature}"}
