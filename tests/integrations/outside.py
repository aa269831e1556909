"""Models of one's own that are called with ids alone, their loss made elsewhere."""

import torch
import torch.nn.functional as F
from tests.integrations.tiny import VOCAB
from torch import nn

GREEDY = {"steps": 1, "prediction_rate": 1.0, "predict": "greedy"}


class Outside(nn.Module):
    """Ids to logits; the loss is made outside."""

    def __init__(self, dropout=0.0):
        super().__init__()
        torch.manual_seed(5)
        self.embed, self.out = nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB)
        self.encode, self.drop = nn.GRU(16, 16, batch_first=True), nn.Dropout(dropout)

    def hidden(self, x):
        return self.encode(self.drop(self.embed(x)))[0]

    def forward(self, x):
        return self.out(self.hidden(x))


class WithTargets(Outside):
    """As nanoGPT: the logits of all words beside targets, those of the last word without."""

    def forward(self, x, targets=None):
        if targets is None:
            return self.out(self.hidden(x)[:, [-1]]), None
        logits = self.out(self.hidden(x))
        return logits, F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


class TimeFirst(Outside):
    """As PyTorch's word language model: (time, batch), a state that is handed on, logits in one list."""

    def __init__(self):
        super().__init__()
        self.encode.batch_first = False

    def forward(self, x, state=None):
        hidden, state = self.encode(self.embed(x), state)
        return self.out(hidden).view(-1, VOCAB), state


class Recurrent(TimeFirst):
    """The same, its logits in the order of its ids."""

    def forward(self, x, **given):
        return self.out(self.encode(self.embed(x))[0])


def words_read(model):
    """What reaches the embedding layer: in each forward its last call, which a source may stand before."""
    seen = []
    model.embed.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    return seen
