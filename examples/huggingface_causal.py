"""Fine-tune a causal model along a curriculum: transformers' Trainer and one callback. About 20 seconds on a CPU."""

import math
import tempfile

from tiny_text import sentences, tokenizer_for
from transformers import (
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    set_seed,
)

import nnrs
from nnrs.integrations.huggingface import InputCurriculum
from nnrs.neighbors.subword import report

set_seed(1)
text = sentences(600)
tokenizer = tokenizer_for(text)
rows = [tokenizer(line + "<eos>") for line in text]
config = GPT2Config(
    vocab_size=len(tokenizer), n_embd=64, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=1
)
model = GPT2LMHeadModel(config)


def train(steps: int, *callbacks: InputCurriculum) -> float:
    """The validation perplexity after so many further steps."""
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        max_steps=steps,
        per_device_train_batch_size=16,
        learning_rate=2e-3,
        eval_strategy="steps",
        eval_steps=50,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=rows[:500],
        eval_dataset=rows[500:],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        callbacks=list(callbacks),
    )
    trainer.train()
    return math.exp(trainer.evaluate()["eval_loss"])


print(f"after 100 plain steps, in place of a download: validation perplexity {train(100):.2f}")

table = nnrs.NeighborTable.from_model(model, tokenizer, k=8)
print(report(table, tokenizer))
word = tokenizer.convert_tokens_to_ids("Ġstocks")
print("' stocks' is near", [tokenizer.decode([near]) for near, _, _ in table.row(word, temperature=0.5)])

rate = nnrs.Schedule("exponential", 0, 0.2)  # little, and late
curriculum = InputCurriculum(table, neighbor_rate=rate, prediction_rate=rate)
print(f"after 100 more, along the curriculum: validation perplexity {train(100, curriculum):.2f}")
print("(More training lowers it, plain or not: what a curriculum gains, only runs of equal length show.)")
