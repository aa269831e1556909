"""Under torch.compile: one compilation serves the whole curriculum, and the numbers are those of the eager run."""

from contextlib import contextmanager
from functools import partial

import pytest
import torch
from accelerate.utils import compile_regions
from lightning.pytorch import LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from tests.integrations.tiny import IDS, VOCAB, embedded, gpt2, llama, t5, table_of
from torch import nn
from torch.utils.data import DataLoader
from transformers import BartConfig, BartForConditionalGeneration, Trainer, TrainingArguments

import nnrs
from nnrs.integrations import huggingface, lightning, second_pass
from nnrs.integrations.curriculum import curriculum

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # which dynamo looks at

RISING = {
    "neighbor_rate": nnrs.Schedule("linear", 0.0, 0.6),
    "prediction_rate": nnrs.Schedule("linear", 0.0, 0.6),
}
TRAINING, SECOND_PASS = True, False  # whether a graph was made with gradients


def bart():
    """An encoder and a decoder in one base model, unlike T5's; it compiles in pieces, for it may drop layers."""
    torch.manual_seed(0)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = {"decoder_start_token_id": 0, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1}
    config = BartConfig(
        vocab_size=VOCAB,
        d_model=16,
        max_position_embeddings=32,
        dropout=0.0,
        forced_eos_token_id=None,
        use_cache=False,
        **sizes,
        **heads,
        **ids,
    )
    return BartForConditionalGeneration(config)


@pytest.fixture(autouse=True)
def _fresh_compiler(monkeypatch):
    for name, value in (
        ("BACKEND", "no"),
        ("MODE", "default"),
    ):  # TrainingArguments would leave its own behind
        monkeypatch.setenv(f"ACCELERATE_DYNAMO_{name}", value)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield
    torch._dynamo.reset()


class Graphs:
    """A backend that runs a graph as it is, and notes whether it is one of the training pass or of the second."""

    def __init__(self):
        self.made = []

    def __call__(self, graph, inputs):
        self.made.append(torch.is_grad_enabled())
        return graph.forward


def losses(model, call):
    """Of six training steps along the curriculum, and the gradients at the end."""
    found = []
    with curriculum(call, table_of(model), steps=6, **RISING):
        for _ in range(6):
            found.append(call(input_ids=IDS, labels=IDS).loss)
        found[-1].backward()
    gradients = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    return torch.stack(found).detach(), gradients


@contextmanager
def training_inputs(model, name="input_ids"):
    """What the training forward is given, after the curriculum's hook."""
    given = []
    note = torch.compiler.disable(lambda _, args, kwargs: given.append(kwargs[name].clone()))
    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield given
    finally:
        handle.remove()


@pytest.mark.parametrize("make", [gpt2, t5])
@pytest.mark.parametrize("way", ["torch.compile", "model.compile"])
def test_no_step_of_the_curriculum_recompiles_and_losses_and_gradients_are_the_eager_ones(make, way):
    eager, compiled = make().train(), make().train()
    if way == "model.compile":
        compiled.compile(backend="aot_eager")
        ours = losses(compiled, compiled)
    else:
        ours = losses(compiled, torch.compile(compiled, backend="aot_eager"))
    for one, other in zip(losses(eager, eager), ours, strict=True):
        torch.testing.assert_close(one, other)


class Normed(nn.Module):
    """A BatchNorm over the units of hidden vectors."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def forward(self, hidden):
        return self.norm(hidden.flatten(0, 1)).view_as(hidden)


def test_a_compiled_second_pass_leaves_buffers_as_they_were_and_recompiles_nothing():
    found = []
    for compile_ in (lambda model: model, partial(torch.compile, backend="aot_eager")):
        model = gpt2()
        model.transformer.ln_f = Normed()
        losses(model.train(), compile_(model))
        found.append(model.transformer.ln_f.norm)
    eager, compiled = found
    assert eager.num_batches_tracked == compiled.num_batches_tracked == 6
    torch.testing.assert_close(eager.running_mean, compiled.running_mean)


def test_the_whole_forward_is_one_graph_beside_the_hook():
    model = gpt2().train()
    losses(model, torch.compile(model, backend="eager", fullgraph=True))


def test_the_curriculum_finds_the_model_inside_the_compiled_one():
    model = gpt2().train()
    compiled = torch.compile(model, backend="eager")
    with embedded(model) as seen, curriculum(compiled, table_of(model), steps=1, neighbor_rate=1.0):
        compiled(input_ids=IDS, labels=IDS)
    assert (seen[0] != IDS)[:, 1:].all()


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_the_second_pass_is_compiled_once_when_its_rate_leaves_zero(make, fullgraph):
    graphs, model, made = Graphs(), make().train(), []
    compiled = torch.compile(model, backend=graphs, fullgraph=fullgraph)
    with curriculum(compiled, table_of(model), steps=50, **RISING):
        for _ in range(50):
            compiled(input_ids=IDS, labels=IDS).loss.backward()
            made.append(list(graphs.made))
    assert made == [[TRAINING]] + [[TRAINING, SECOND_PASS]] * 49


def test_a_second_pass_whose_predictions_are_made_in_pieces_is_compiled_once(monkeypatch):
    monkeypatch.setattr(second_pass, "LOGITS_AT_ONCE", 5 * VOCAB)
    graphs, model = Graphs(), gpt2().train()
    compiled = torch.compile(model, backend=graphs)
    with training_inputs(model) as ours, curriculum(compiled, steps=8, prediction_rate=0.8):
        for _ in range(8):
            compiled(input_ids=IDS, labels=IDS)
    assert graphs.made == [SECOND_PASS, TRAINING]
    eager = gpt2().train()
    with training_inputs(eager) as theirs, curriculum(eager, steps=8, prediction_rate=0.8):
        for _ in range(8):
            eager(input_ids=IDS, labels=IDS)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@torch._dynamo.config.patch(error_on_recompile=False)  # its pieces share code
def test_a_second_pass_that_compiles_in_pieces_does_so_once():
    graphs, model, made = Graphs(), bart().train(), []
    compiled = torch.compile(model, backend=graphs)
    with curriculum(compiled, table_of(model), steps=10, **RISING):
        for _ in range(10):
            compiled(input_ids=IDS, labels=IDS).loss.backward()
            made.append(list(graphs.made))
    assert SECOND_PASS not in made[0]
    assert SECOND_PASS in made[1]
    assert made[1] == made[-1]


def test_a_second_curriculum_of_the_same_model_finds_the_second_pass_compiled():
    graphs, model = Graphs(), gpt2().train()
    compiled = torch.compile(model, backend=graphs)
    for _ in range(2):
        losses(model, compiled)
    assert graphs.made == [TRAINING, SECOND_PASS]


def test_a_model_that_has_no_part_below_its_output_layer_makes_its_second_pass_uncompiled():
    graphs, model = Graphs(), t5().train()
    losses(model, torch.compile(model, backend=graphs))
    assert graphs.made == [TRAINING]


def test_nothing_of_a_model_that_is_not_compiled_is(monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: pytest.fail("torch.compile was called"))
    torch._dynamo.utils.counters.clear()
    model = gpt2().train()
    losses(model, model)
    trainer(tmp_path, gpt2()).train()
    assert not torch._dynamo.utils.counters["stats"]


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # which Inductor calls
@pytest.mark.parametrize(("backend", "compilations"), [("inductor", 2), ("aot_eager", 1)])
def test_of_models_that_compile_themselves_inductors_have_a_compiled_second_pass(
    monkeypatch, backend, compilations
):
    called, real = [], torch.compile

    def counted(*args, **kwargs):
        called.append(kwargs)
        return real(*args, **kwargs)

    monkeypatch.setattr(torch, "compile", counted)
    model = gpt2().train()
    model.compile(backend=backend)
    with torch.compiler.set_stance("force_eager"):  # Inductor would take a minute
        losses(model, model)
    assert len(called) == compilations


@torch._dynamo.config.patch(error_on_recompile=False)
@pytest.mark.parametrize("predict", ["greedy", "sample"])
@pytest.mark.parametrize(("make", "name"), [(gpt2, "input_ids"), (bart, "decoder_input_ids")])
def test_the_training_pass_is_given_the_ids_of_the_eager_run(make, name, predict):
    seen = []
    for compile_ in (lambda model: model, partial(torch.compile, backend="eager")):
        model = make().train()
        call = compile_(model)
        with (
            curriculum(call, table_of(model), steps=6, predict=predict, **RISING),
            training_inputs(model, name) as given,
        ):
            for _ in range(6):
                call(input_ids=IDS, labels=IDS)
        seen.append([ids.tolist() for ids in given])
    eager, compiled = seen
    assert len({str(ids) for ids in eager}) == 6
    assert eager == compiled


def test_the_training_pass_draws_its_dropout_as_if_there_were_no_compiled_second_pass():
    model, graphs = gpt2(dropout=0.3).train(), Graphs()
    compiled = torch.compile(model, backend=graphs)
    torch.manual_seed(5)
    with curriculum(compiled, steps=1, prediction_rate=0.5), training_inputs(model) as given:
        loss = compiled(input_ids=IDS, labels=IDS).loss
    assert SECOND_PASS in graphs.made
    torch.manual_seed(5)
    assert loss == model(input_ids=given[0], labels=IDS).loss


def test_gradient_checkpointing_and_a_compiled_second_pass_give_the_eager_gradients():
    plain, checkpointed, graphs = gpt2().train(), gpt2().train(), Graphs()
    checkpointed.gradient_checkpointing_enable()
    ours = losses(checkpointed, torch.compile(checkpointed, backend=graphs))
    assert SECOND_PASS in graphs.made
    for one, other in zip(losses(plain, plain), ours, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("own", [False, True], ids=["of its class", "of its own"])
def test_the_base_model_has_its_forward_back_after_a_pass_and_after_an_error_in_one(own):
    model, graphs = gpt2().train(), Graphs()
    base = model.base_model
    if own:
        base.forward = partial(type(base).forward, base)  # as Accelerate sets it
    before, during = vars(base).get("forward"), []
    compiled = torch.compile(model, backend=graphs)

    def same():
        return vars(base).get("forward") is before

    note = torch.compiler.disable(lambda *_: during.append(same()) if not torch.is_grad_enabled() else None)
    noting = base.register_forward_hook(note)
    prompt = IDS[:1, :4]
    with curriculum(compiled, steps=2, prediction_rate=0.5), training_inputs(model) as given:
        compiled(input_ids=IDS, labels=IDS)
        noting.remove()
        assert during == [False]
        assert same()
        assert (given[0] != IDS).any()
        with torch.compiler.set_stance("force_eager"):
            model.eval().generate(prompt, max_new_tokens=3, do_sample=False, pad_token_id=0)
            model.eval()(input_ids=IDS, labels=IDS)
        assert same()
        handle = model.lm_head.register_forward_pre_hook(lambda *_: {}["mine"])
        with pytest.raises(KeyError, match="mine"):
            compiled.train()(input_ids=IDS, labels=IDS)
        handle.remove()
        assert same()
        compiled(input_ids=IDS, labels=IDS)
    assert same()
    assert graphs.made.count(SECOND_PASS) == 1


def test_a_base_model_that_is_kept_from_the_compiler_trains_as_before():
    eager, model, graphs = gpt2().train(), gpt2().train(), Graphs()
    model.base_model.forward = torch.compiler.disable(model.base_model.forward)
    ours = losses(model, torch.compile(model, backend=graphs))
    assert SECOND_PASS not in graphs.made
    for one, other in zip(losses(eager, eager), ours, strict=True):
        torch.testing.assert_close(one, other)


def test_of_a_model_with_lora_the_part_below_the_output_layer_is_compiled():
    peft = pytest.importorskip("peft")
    chosen = {"task_type": "CAUSAL_LM", "r": 2, "target_modules": ["c_attn"], "fan_in_fan_out": True}
    found, graphs = [], Graphs()
    for compile_ in (lambda model: model, partial(torch.compile, backend=graphs)):
        model = peft.get_peft_model(gpt2(), peft.LoraConfig(**chosen)).train()
        found.append(losses(model, compile_(model)))
    assert graphs.made.count(SECOND_PASS) == 1
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def trainer(folder, model, **options):
    rows = [{"input_ids": ids, "labels": ids} for ids in IDS.repeat(6, 1)]
    arguments = TrainingArguments(
        str(folder),
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        per_device_train_batch_size=4,
        max_steps=4,
        **options,
    )
    callback = huggingface.InputCurriculum(table_of(model), **RISING)
    return Trainer(model, arguments, train_dataset=rows, callbacks=[callback])


@pytest.mark.parametrize("way", ["arguments", "accelerate launch"])
def test_the_trainers_backend_and_mode_compile_the_second_pass_too(monkeypatch, tmp_path, way):
    called, real, graphs = [], torch.compile, Graphs()

    def noted(model, **options):
        called.append(options)
        return real(model, backend=graphs)

    monkeypatch.setattr(torch, "compile", noted)
    chosen = {"backend": "aot_eager", "mode": "reduce-overhead"}
    options = {f"torch_compile_{name}": value for name, value in chosen.items()}
    if way == "arguments":
        trainer(tmp_path, gpt2(), **options).train()
    else:
        for name, value in chosen.items():
            monkeypatch.setenv(f"ACCELERATE_DYNAMO_{name.upper()}", value)
        trainer(tmp_path, gpt2()).train()
    assert called == [chosen, chosen]
    assert graphs.made == [TRAINING, SECOND_PASS]


@torch._dynamo.config.patch(error_on_recompile=False)
@pytest.mark.parametrize("way", ["with", "trainer"])
def test_a_model_compiled_block_by_block_is_given_replaced_inputs(monkeypatch, tmp_path, way):
    """Accelerate's regions: the model that is called is another object than the one that was handed over."""
    model = gpt2().train()
    with embedded(model) as seen:
        if way == "with":
            call = compile_regions(model, backend="eager")
            with curriculum(call, table_of(model), steps=1, neighbor_rate=0.9):
                call(input_ids=IDS, labels=IDS)
        else:
            monkeypatch.setenv("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "true")
            trainer(tmp_path, model, torch_compile_backend="eager").train()
    assert not torch.equal(seen[-1], IDS)


class Language(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = gpt2()

    def training_step(self, batch, index):
        return self.model(input_ids=batch, labels=batch).loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec", "ignore:.*`isinstance.*LeafSpec")
@pytest.mark.filterwarnings("ignore:Found .* module.*in eval mode")
def test_the_second_pass_of_a_compiled_lightning_module_is_compiled(tmp_path):
    module, graphs = Language(), Graphs()
    fit = LightningTrainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=tmp_path,
        max_steps=4,
        callbacks=[lightning.InputCurriculum(table_of(module.model), **RISING)],
    ).fit
    fit(torch.compile(module, backend=graphs), DataLoader(IDS.repeat(4, 1), 4))
    assert graphs.made.count(SECOND_PASS) == 1
