"""A text and a tokenizer to try things on without a download."""

import random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

WORDS = {
    "who": [
        "the trader",
        "the broker",
        "the dealer",
        "a banker",
        "an investor",
        "the minister",
        "a governor",
    ],
    "did": ["bought", "sold", "acquired", "dumped", "praised", "criticized", "ignored"],
    "how": ["cheap", "costly", "risky", "safe", "foreign", "domestic"],
    "what": ["stocks", "shares", "bonds", "notes", "goods", "houses"],
    "when": ["today", "yesterday", "on monday", "on friday", "last week", "last month"],
}


def sentences(count: int, seed: int = 0) -> list[str]:
    """So many sentences of five parts each."""
    chance = random.Random(seed)
    return [" ".join(chance.choice(choices) for choices in WORDS.values()) + " ." for _ in range(count)]


def tokenizer_for(text: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer learned from the text."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    special = ["<pad>", "<eos>"]
    bpe.train_from_iterator(
        text, trainers.BpeTrainer(vocab_size=320, special_tokens=special, show_progress=False)
    )
    return PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", eos_token="<eos>")
