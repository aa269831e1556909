"""What a curriculum has to know of the module that it is put on: what it is, what it wraps, what it embeds."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from nnrs.errors import ConfigError
from nnrs.integrations.batch import is_encoder_decoder
from nnrs.neighbors.arguments import may_be_padded
from nnrs.neighbors.table import NeighborTable
from nnrs.wording import counted

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]  # torch.compile, its options given

# How the names of models end that fill in masked words or mark given ones.
FILLS_IN = ("formaskedlm", "bertforpretraining", "fortokenclassification")
# The same of transformers' own; another's model for pretraining may be causal.
MAY_BE_CAUSAL = ("xlmwithlmheadmodel", "flaubertwithlmheadmodel")  # where their configuration says so
OWN_FILLS_IN = ("forpretraining", "xlnetlmheadmodel", *MAY_BE_CAUSAL)
SAY_WHAT_IT_EMBEDS = "Say what it embeds in get_input_embeddings(), as models of transformers do."


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside torch.compile's, DDP's and FSDP's wrappers, in whose forward its weights are whole."""
    *_, inner = _unwrapping(model)
    return inner


def compiler_of(model: nn.Module) -> Compiler | None:
    """What compiles this model, wrapped in whatever; none where nothing does.

    Of `torch.compile(model)` it is what was made of the options. `model.compile()` does not show them: torch's
    defaults if it says that it is Inductor, else nothing.
    """
    *_, inner = wrapped = list(_unwrapping(model))
    found: Any = next((each.dynamo_ctx for each in wrapped if hasattr(each, "dynamo_ctx")), None)
    call = getattr(inner, "_compiled_call_impl", None)
    return torch.compile if found is None and call and call.get_compiler_config() else found


def _unwrapping(model: nn.Module) -> Iterator[nn.Module]:
    """The model as it was given, and all that is found wrapped in it, down to the model itself."""
    yield model
    inner = getattr(model, "_orig_mod", getattr(model, "_fsdp_wrapped_module", None))
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        inner = model.module
    if inner is not None:
        yield from _unwrapping(inner)


def fitted(table: NeighborTable, model: nn.Module) -> NeighborTable:
    """The table with a row for every id that the model embeds; ids that the table does not know have no neighbors.

    A model that does not say how many is taken at the table's word, and warned of where no layer in it has as many.
    """
    rows = embedded_ids(model)
    if rows is None:
        _warn_of_few(table, model)
        return table
    if not may_be_padded(table.vocab_size, rows):
        raise ConfigError(
            f"the table has {counted(table.vocab_size, 'row')}, but the model embeds {counted(rows, 'id')}. "
            "Make it with this model's tokenizer: NeighborTable.from_model(model, tokenizer)."
        )
    if table.vocab_size == rows:
        return table
    extra = torch.arange(table.vocab_size, rows, device=table.ids.device)[:, None].expand(-1, table.k)
    empty = table.similarities.new_full(extra.shape, -torch.inf)
    return replace(
        table, ids=torch.cat([table.ids, extra]), similarities=torch.cat([table.similarities, empty])
    )


def embedded_ids(model: nn.Module) -> int | None:
    """How many ids the model (its decoder, if it has one) embeds, where it says so."""
    owner: Any = model
    if is_encoder_decoder(model) and hasattr(model, "get_decoder"):
        owner = owner.get_decoder()
    find = getattr(owner, "get_input_embeddings", nn.Module)
    layer: Any = find() or nn.Module()  # an adapter (LoRA's) holds the layer that knows
    known, weight = embedding_sizes(layer), getattr(layer, "weight", None)
    return known[0] if known else None if weight is None else len(weight)


def embedding_sizes(module: nn.Module) -> list[int]:
    """How many rows each embedding layer in a module has."""
    parts: Any = module.modules()
    return [int(part.num_embeddings) for part in parts if hasattr(part, "num_embeddings")]


def _warn_of_few(table: NeighborTable, model: nn.Module) -> None:
    """Warn where each embedding layer is smaller than the table; several, or something else, may still embed it."""
    most = max(embedding_sizes(model), default=None)
    if most is not None and most < table.vocab_size:
        warnings.warn(
            f"the table has {counted(table.vocab_size, 'row')}, and no embedding layer of the model more than "
            f"{counted(most, 'row')}: a neighbor that the model does not embed would end the training. "
            f"{SAY_WHAT_IT_EMBEDS}",
            stacklevel=2,
        )


def check_kind(model: nn.Module) -> None:
    """Refuse what a curriculum cannot serve: models that read ahead, encoder-decoders within others."""
    given: Any = model
    base = given.get_base_model() if hasattr(model, "get_base_model") else given  # of an adapter, LoRA's say
    kind, config = type(base), getattr(base, "config", None)
    causal = MAY_BE_CAUSAL if getattr(config, "causal", False) else ()
    if any(_fills_in(each) and not each.__name__.lower().endswith(causal) for each in kind.__mro__):
        raise ConfigError(
            f"{kind.__name__} fills in masked words, or marks given ones, and never reads its own: "
            "a curriculum is for causal and encoder-decoder models."
        )
    reads_back = getattr(config, "is_decoder", True) or is_encoder_decoder(base)
    if not reads_back and any(_asks_for_decoder(each) for each in kind.__mro__):
        raise ConfigError(
            f"{kind.__name__} reads the words that it is to predict, as its config's is_decoder is False. "
            "For a causal model, make it with is_decoder=True."
        )
    writers = [part for part in model.modules() if _writes(part)]
    if writers and model not in writers and all(is_encoder_decoder(part) for part in writers):
        raise ConfigError(
            f"{type(model).__name__} holds an encoder-decoder and does not show its decoder's inputs. "
            f"Give the curriculum that {type(writers[0]).__name__} itself."
        )


def _fills_in(kind: type) -> bool:
    """Whether a class of models fills in masked words or marks given ones, by its name."""
    own = kind.__module__.startswith("transformers.")
    return kind.__name__.lower().endswith(FILLS_IN + OWN_FILLS_IN if own else FILLS_IN)


def _asks_for_decoder(kind: type) -> bool:
    """Whether models of a class of transformers' are causal only where `is_decoder` says so (BERT's).

    Then it is asked for as one is made. Other configurations have an `is_decoder` too, False and never looked at
    (GPT-NeoX's).
    """
    if not kind.__module__.startswith("transformers."):
        return False
    code = getattr(inspect.unwrap(vars(kind).get("__init__", kind)), "__code__", None)
    return code is not None and "is_decoder" in code.co_names


def _writes(part: Any) -> bool:
    """Whether a part is a language model, with an output layer, and not the encoder or decoder of one."""
    find = getattr(part, "get_output_embeddings", None)
    return find is not None and find() is not None


def output_layer(model: nn.Module, given: nn.Module | None) -> nn.Module | None:
    """The module that makes the logits: the one that was named, or what the model says, if it does."""
    find = getattr(model, "get_output_embeddings", None)
    return given or (find() if find else None)


def check_inputs(model: nn.Module, inputs: str) -> None:
    """Refuse a name of the argument with the ids that the model's forward lacks, or that of a text it encodes."""
    parameters, kind = inspect.signature(model.forward).parameters, type(model).__name__
    if inputs not in parameters and not takes_any(parameters):
        raise ConfigError(
            f"{kind}.forward has no argument '{inputs}', which inputs= names. It has: {', '.join(parameters)}."
        )
    if inputs == "input_ids" and is_encoder_decoder(model):
        raise ConfigError(
            f"inputs='input_ids' names the text that {kind} encodes, and a curriculum is for the one that it writes. "
            "Pass the model that text as decoder_input_ids, and name it: inputs='decoder_input_ids'."
        )


def takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether a function takes arguments of any name."""
    return any(each.kind == each.VAR_KEYWORD for each in parameters.values())


def tells_order(shape: torch.Size) -> bool:
    """Whether rows and words can be told apart by their number; a single row may be read word by word."""
    return shape[0] != shape[1] and min(shape) > 1


@contextmanager
def read_in_order(model: nn.Module, shape: torch.Size, advice: str) -> Iterator[None]:
    """Refuse ids (batch, time) in whose time the model's recurrent layers see the batch; `advice` is what to do.

    Predictions would be those of other rows, and no number would tell.
    """
    with ExitStack() as hooks:
        for layer in [part for part in model.modules() if isinstance(part, nn.RNNBase)]:
            handle = layer.register_forward_pre_hook(
                lambda layer, args: _check_order(layer, args, shape, advice)
            )
            hooks.callback(handle.remove)
        yield


def _check_order(layer: nn.Module, args: tuple[Any, ...], shape: torch.Size, advice: str) -> None:
    given = args[0] if args else None
    if not isinstance(given, Tensor) or given.ndim != 3 or not tells_order(shape):
        return
    rows, words = given.shape[:2] if layer.batch_first else (given.shape[1], given.shape[0])
    if (words, rows) == shape:
        raise ConfigError(
            f"the model's {type(layer).__name__} reads {counted(rows, 'row')} of {counted(words, 'word')}, and the "
            f"curriculum took its ids for {counted(shape[0], 'row')} of {counted(shape[1], 'word')}. {advice}"
        )
