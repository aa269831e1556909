"""The packages that metrics need beyond the core: which metric needs which, and what is said where one is missing."""

from importlib.util import find_spec
from typing import NamedTuple

from nnrs.errors import ConfigError

INSTALL = "pip install 'nnrs[metrics]'"


class Package(NamedTuple):
    """A package of the extra `metrics`."""

    name: str  # as pip has it
    module: str  # as Python imports it
    purpose: str

    @property
    def lack(self) -> str | None:
        """Why what needs it is left out; None where it is installed."""
        return None if find_spec(self.module) else f"the package {self.name} is not installed ({INSTALL})"

    def error(self) -> ConfigError:
        """What is raised where it is needed and not there."""
        return ConfigError(f"{self.purpose} needs the package {self.name}. Install it with: {INSTALL}")


POT = Package("POT", "ot", "word mover's distance")
SACREBLEU = Package("sacrebleu", "sacrebleu", "bleu of a translation")

PACKAGES = {"wmd": POT, "self-wmd": POT}
TRANSLATION_PACKAGES = {"bleu": SACREBLEU}  # of a run that translates
