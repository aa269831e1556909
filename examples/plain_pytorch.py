"""The curriculum in a training loop of one's own, around a model of one's own. About 10 seconds on a CPU."""

import torch
import torch.nn.functional as F
from tiny_text import sentences, tokenizer_for
from torch import Tensor, nn

import nnrs

STEPS = 150


class Language(nn.Module):
    """Any module will do that is called with `input_ids` and `labels`."""

    def __init__(self, vocab_size: int, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.encode = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, vocab_size)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The logits, and the loss of predicting each label from the inputs before it."""
        logits = self.out(self.encode(self.embed(input_ids))[0])
        if labels is None:
            return logits, None
        return logits, F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


torch.manual_seed(1)
text = sentences(640)
tokenizer = tokenizer_for(text)
batch = tokenizer([line + "<eos>" for line in text], padding=True, return_tensors="pt")
ids = batch["input_ids"]
labels = ids.masked_fill(batch["attention_mask"] == 0, -100)

model = Language(len(tokenizer))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
table = nnrs.NeighborTable.from_vectors(torch.randn(len(tokenizer), 32), tokenizer, k=8)  # yours here

with nnrs.curriculum(
    model,
    table,
    steps=STEPS,
    neighbor_rate=nnrs.Schedule("exponential", 0, 0.2),
    prediction_rate=nnrs.Schedule("exponential", 0, 0.2),
    output_layer=model.out,
) as curriculum:
    for step in range(STEPS):
        rows = torch.randint(0, 576, (16,))
        model.train()
        _, loss = model(input_ids=ids[rows], labels=labels[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 50 == 0:
            model.eval()
            with torch.no_grad():
                perplexity = float(model(ids[576:], labels[576:])[1].exp())
            curriculum.end_evaluation(perplexity)  # the temperature follows
            shares = curriculum.report()
            print(
                f"step {step + 1}: validation perplexity {perplexity:.2f}, "
                f"replaced {shares['effective_neighbor_rate']:.1%} by neighbors "
                f"and {shares['effective_prediction_rate']:.1%} by predictions"
            )
