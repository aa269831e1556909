"""Tiny models of random weights; what reaches their embedding layer is written down."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from nnrs.integrations.curriculum import curriculum
from nnrs.neighbors.table import NeighborTable

VOCAB = 61
IDS = torch.randint(1, VOCAB, (4, 12), generator=torch.Generator().manual_seed(3))


def gpt2(dropout: float = 0.0) -> PreTrainedModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=64,
        attn_pdrop=dropout,
        embd_pdrop=dropout,
        resid_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # unsaid, it is logged, and a log line cannot be compiled
    return model


def llama() -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config)


def t5(dropout: float = 0.0) -> PreTrainedModel:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCAB,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        dropout_rate=dropout,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    return T5ForConditionalGeneration(config)


def table_of(model: PreTrainedModel, k: int = 4, protected: tuple[int, ...] = ()) -> NeighborTable:
    return NeighborTable.from_vectors(model.get_input_embeddings().weight, k=k, protected=protected)


@contextmanager
def embedded(model: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Every id tensor that a token embedding is given, in order: a T5's encoder's, then its decoder's."""
    seen: list[torch.Tensor] = []

    def note(_: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        seen.append(args[0].clone())

    layers = [
        part for part in model.modules() if isinstance(part, nn.Embedding) and part.num_embeddings == VOCAB
    ]
    handles = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def inputs_under(
    model: nn.Module, steps: int = 1, ids: torch.Tensor = IDS, **options: Any
) -> list[torch.Tensor]:
    """The ids that reach the embedding layer in each of some training forwards."""
    model.train()
    table = table_of(model) if "neighbor_rate" in options else None
    with embedded(model) as seen, curriculum(model, table, steps=steps, **options):
        for _ in range(steps):
            model(input_ids=ids, labels=ids)
    return seen


class Wrapped(nn.Module):
    """A model around another, called as that one is."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids, labels=None):
        return self.inner(input_ids=input_ids, labels=labels)


class Adapted(Wrapped):
    """As an adapter is (LoRA's)."""

    def get_base_model(self):
        return self.inner
