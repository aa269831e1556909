"""The curriculum as a Lightning callback. About 20 seconds on a CPU."""

import tempfile

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from tiny_text import sentences, tokenizer_for
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

import nnrs
from nnrs.integrations.lightning import InputCurriculum

seed_everything(1)
text = sentences(600)
tokenizer = tokenizer_for(text)


class Language(LightningModule):
    """A language model whose attribute `model` is called with `input_ids` and `labels`."""

    def __init__(self) -> None:
        super().__init__()
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            eos_token_id=1,
        )
        self.model = LlamaForCausalLM(config)

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        """The training loss, on inputs that the callback has changed."""
        return self.model(**batch).loss

    def validation_step(self, batch: dict[str, torch.Tensor], index: int) -> None:
        """The validation loss: the callback hears of it as `val_loss`."""
        self.log("val_loss", self.model(**batch).loss, prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Nothing special."""
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def collate(lines: list[str]) -> dict[str, torch.Tensor]:
    """Padded rows, whose padding has no label."""
    batch = tokenizer([line + "<eos>" for line in lines], padding=True, return_tensors="pt")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}


module = Language()
table = nnrs.NeighborTable.from_model(module.model, tokenizer, k=8)
rate = nnrs.Schedule("exponential", 0, 0.2)  # little, and late
trainer = Trainer(
    accelerator="cpu",
    max_epochs=4,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    default_root_dir=tempfile.mkdtemp(),
    callbacks=[InputCurriculum(table, neighbor_rate=rate, prediction_rate=rate)],
)
trainer.fit(
    module,
    DataLoader(text[:500], 16, shuffle=True, collate_fn=collate),
    DataLoader(text[500:], 50, collate_fn=collate),
)
print(f"validation perplexity {float(trainer.callback_metrics['val_loss'].exp()):.2f}")
