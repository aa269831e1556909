"""One of several processes that train together: `torchrun --nproc-per-node 2 group_worker.py FOLDER`.

Trains every case, goes on with the run that the test began alone, and leaves one half done for the test to finish.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from tests.training.group_cases import CASES, HALF, RESUMED, pairs, trainer_of

from nnrs.errors import NnrsError
from nnrs.training.group import Processes


def message_of(act, *arguments, **named):
    """The error that an act ends with."""
    try:
        act(*arguments, **named)
    except NnrsError as error:
        return str(error)
    return None


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    group, found = Processes(), {}
    for name in CASES:
        trainer, heard = trainer_of(name, group)
        assert trainer.fit()
        found[name] = [metrics.as_dict() for metrics in heard.metrics]

    trainer, heard = trainer_of(RESUMED, group)
    trainer.restore(*torch.load(folder / "begun-alone.pt", weights_only=True))
    assert trainer.fit()
    found["resumed"] = [metrics.as_dict() for metrics in heard.metrics]

    trainer, heard = trainer_of(RESUMED, group)
    trainer.save = lambda live: torch.save(live.snapshot(), folder / f"saved-by-{group.rank}.pt")
    # Only the second process is asked to stop.
    trainer.should_stop = group.agreed(lambda: group.rank == 1 and trainer.live.position.step >= HALF)
    assert not trainer.fit()

    found["agreement"] = message_of(group.check_agreement, {"text": "same", "checkpoint": group.rank})
    found["indivisible"] = message_of(replace, trainer, config=replace(trainer.config, batch_size=5))
    found["too few"] = message_of(replace, trainer, windows=pairs(19))
    if group.rank == 0:
        found["deserted"] = message_of(group.meet)
    (folder / f"rank-{group.rank}.json").write_text(json.dumps(found))
    os._exit(0)  # without a word to the other


if __name__ == "__main__":
    main(Path(sys.argv[1]))
