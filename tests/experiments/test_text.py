import pytest

from nnrs.experiments.config import DataConfig
from nnrs.experiments.text import Text

KNOWN = "a b c d\n" * 20  # 100 tokens, the ends of lines among them


@pytest.fixture
def remark(tmp_path):
    """Writes a text's splits and gives what is said of it."""

    def write(train: str, valid: str, test: str, **options: int) -> str | None:
        for split, lines in {"train": train, "valid": valid, "test": test}.items():
            (tmp_path / f"{split}.txt").write_text(lines)
        return Text.read(DataConfig(source=str(tmp_path), **options)).remark

    return write


def test_words_that_training_lacks_are_told_where_no_unk_is_trained(remark):
    said = remark(KNOWN, KNOWN, "a new d word\n" * 20)
    assert said is not None
    assert said.startswith(
        "0.0% of the valid tokens and 40.0% of the test tokens are words that the training text lacks"
    )


@pytest.mark.parametrize(
    ("train", "test", "options"),
    [
        pytest.param(KNOWN + "<unk>\n", "new\n", {}, id="the text brings <unk>"),
        pytest.param(KNOWN + "once\n", "new\n", {"min_count": 2}, id="a rare word is trained as <unk>"),
        pytest.param(KNOWN, KNOWN * 9 + "new\n", {}, id="one of 902 tokens"),
        pytest.param(KNOWN, "d c b a\n", {}, id="none"),
    ],
)
def test_nothing_is_said_where_unk_is_trained_or_hardly_needed(remark, train, test, options):
    assert remark(train, KNOWN, test, **options) is None
