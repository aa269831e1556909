"""One of several processes under Lightning: `torchrun --nproc-per-node 2 lightning_worker.py OUT`.

Each validates on rows of its own, and rank 1 has none of `rare` to log.
"""

import json
import sys
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from tests.integrations.tiny import VOCAB, gpt2, table_of
from torch.utils.data import DataLoader

from nnrs.integrations.lightning import InputCurriculum

ROWS = torch.full((32, 8), 7)  # easy, and so is validation on rank 0
OTHERS = torch.randint(1, VOCAB, (16, 8), generator=torch.Generator().manual_seed(0))
OTHERS[::2] = 7


class Language(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = gpt2()

    def training_step(self, batch, index):
        return self.model(input_ids=batch, labels=batch).loss

    def validation_step(self, batch, index):
        loss = self.model(input_ids=batch, labels=batch).loss
        self.log("val_loss", loss)
        if self.global_rank == 0:
            self.log("rare", loss)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class Watched(InputCurriculum):
    """Notes the temperature after each validation, and this process's own loss."""

    def on_validation_end(self, trainer, *rest) -> None:
        super().on_validation_end(trainer, *rest)
        if not trainer.sanity_checking:
            heard = self.curriculum.policy.temperature, float(trainer.callback_metrics["val_loss"])
            self.seen = [*getattr(self, "seen", []), heard]


def train(monitor: str) -> tuple[int, list[tuple[float, float]]]:
    module = Language()
    callback = Watched(table_of(module.model), monitor=monitor, neighbor_rate=0.5, rule="effective")
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="gloo"),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        callbacks=[callback],
        max_epochs=2,
        val_check_interval=1,
    )
    trainer.fit(module, DataLoader(ROWS, 4), DataLoader(OTHERS, 4))
    return trainer.global_rank, callback.seen


def main(out: Path) -> None:
    found = {monitor: train(monitor) for monitor in ("val_loss", "rare")}
    [rank] = {rank for rank, _ in found.values()}
    (out / f"rank-{rank}.json").write_text(json.dumps({name: seen for name, (_, seen) in found.items()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
