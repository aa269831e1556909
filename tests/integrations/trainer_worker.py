"""One of several processes under transformers' Trainer: `torchrun --nproc-per-node 2 trainer_worker.py OUT [FATAL]`.

It continues from the last checkpoint in OUT. Before step FATAL rank 1 is killed, the first time it gets there.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from tests.integrations.tiny import VOCAB, gpt2, table_of
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import nnrs
from nnrs.integrations.huggingface import InputCurriculum

ROWS = torch.randint(1, VOCAB, (32, 10), generator=torch.Generator().manual_seed(4))


class Fate(TrainerCallback):
    """Ends rank 1 the way a machine does."""

    def __init__(self, fatal: int) -> None:
        self.fatal = fatal

    def on_step_begin(self, args, state, control, **kwargs) -> None:
        first_life = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if state.global_step == self.fatal and args.process_index == 1 and first_life:
            os.kill(os.getpid(), signal.SIGKILL)


def main(out: Path, fatal: int) -> None:
    model = gpt2(dropout=0.2)
    curriculum = InputCurriculum(
        table_of(model), neighbor_rate=nnrs.Schedule("linear", 0.0, 0.5), prediction_rate=0.2
    )
    arguments = TrainingArguments(
        str(out / "checkpoints"),
        use_cpu=True,
        ddp_backend="gloo",
        report_to="none",
        disable_tqdm=True,
        max_steps=6,
        save_steps=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        logging_steps=1,
    )
    data = [{"input_ids": row, "labels": row} for row in ROWS]
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[curriculum, Fate(fatal)])
    last = get_last_checkpoint(arguments.output_dir) if Path(arguments.output_dir).exists() else None
    trainer.train(resume_from_checkpoint=last)
    if trainer.is_world_process_zero():
        torch.save({"weights": model.state_dict(), "from": last}, out / "end.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else -1)
