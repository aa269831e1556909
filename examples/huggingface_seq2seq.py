"""Train an encoder-decoder along a curriculum: its decoder's inputs are perturbed. About 30 seconds on a CPU."""

import math
import tempfile

from tiny_text import sentences, tokenizer_for
from transformers import (
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

import nnrs
from nnrs.integrations.huggingface import InputCurriculum

set_seed(1)
text = sentences(600)
tokenizer = tokenizer_for(text)
# The task: say the sentence again with its last part first.
pairs = [(line, " ".join(line.split()[-3:-1] + line.split()[:-3])) for line in text]
rows = [
    {
        "input_ids": tokenizer(source + "<eos>")["input_ids"],
        "labels": tokenizer(target + "<eos>")["input_ids"],
    }
    for source, target in pairs
]
config = T5Config(
    vocab_size=len(tokenizer),
    d_model=64,
    d_kv=32,
    d_ff=128,
    num_layers=2,
    num_heads=2,
    decoder_start_token_id=0,
    pad_token_id=0,
    eos_token_id=1,
)
model = T5ForConditionalGeneration(config)
table = nnrs.NeighborTable.from_model(model, tokenizer, k=8)

trainer = Seq2SeqTrainer(
    model,
    Seq2SeqTrainingArguments(
        tempfile.mkdtemp(),
        max_steps=150,
        per_device_train_batch_size=16,
        learning_rate=5e-3,
        eval_strategy="steps",
        eval_steps=50,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=rows[:500],
    eval_dataset=rows[500:],
    data_collator=DataCollatorForSeq2Seq(tokenizer, model),
    callbacks=[
        InputCurriculum(
            table,
            neighbor_rate=nnrs.Schedule("exponential", 0, 0.2),
            prediction_rate=nnrs.Schedule("exponential", 0, 0.2),
        )
    ],
)
trainer.train()
print(f"validation perplexity {math.exp(trainer.evaluate()['eval_loss']):.2f}")
