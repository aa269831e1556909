"""The curriculum under transformers' Trainer: the plain run at rate 0, exact resumption, compiled or checkpointed."""

import json
import warnings

import pytest
import torch
from tests.integrations.batches import expected_changes
from tests.integrations.tiny import VOCAB, embedded, gpt2, t5, table_of
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainerCallback, TrainingArguments

import nnrs
from nnrs.errors import ConfigError, RunError
from nnrs.integrations.huggingface import STATE, InputCurriculum


def rows(count=24, time=10):
    """Prompts of three tokens, whose labels do not count; some rows are padded, some hold two documents."""
    made = []
    for index in range(count):
        ids = torch.randint(1, VOCAB, (time,), generator=torch.Generator().manual_seed(index))
        mask = (torch.arange(time) < time - index % 3).long()
        labels = torch.where((torch.arange(time) < 3) | (mask == 0), -100, ids)
        positions = torch.arange(time) % (5 if index % 4 == 0 else time)
        made.append({"input_ids": ids, "labels": labels, "attention_mask": mask, "position_ids": positions})
    return made


def trainer(folder, *callbacks, model=None, evaluation=None, **options):
    arguments = TrainingArguments(
        str(folder),
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        per_device_train_batch_size=4,
        **{"max_steps": 6, "save_strategy": "no", "logging_steps": 2, "seed": 1, **options},
    )
    model = gpt2(dropout=0.2) if model is None else model
    evaluation = (evaluation or rows(8)) if options.get("eval_strategy") else None
    return Trainer(model, arguments, train_dataset=rows(), eval_dataset=evaluation, callbacks=list(callbacks))


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def same(first, second):
    return all(torch.equal(value, second[name]) for name, value in first.items())


class Batches(TrainerCallback):
    """The arguments of every training forward, as the trainer gave them."""

    def __init__(self, model):
        self.given = []
        model.register_forward_pre_hook(self._note, with_kwargs=True, prepend=True)

    def _note(self, model, args, kwargs):
        if model.training:
            self.given.append(
                {name: value.clone() for name, value in kwargs.items() if torch.is_tensor(value)}
            )


def test_rate_zero_is_the_plain_run_bit_for_bit(tmp_path):
    plain = trainer(tmp_path)
    plain.train()
    model = gpt2(dropout=0.2)
    callback = InputCurriculum(table_of(model), neighbor_rate=0.0, prediction_rate=0.0)
    ours = trainer(tmp_path, callback, model=model)
    ours.train()
    assert same(weights(plain), weights(ours))
    assert [entry.get("loss") for entry in plain.state.log_history] == [
        entry.get("loss") for entry in ours.state.log_history
    ]


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which dynamo looks at
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_checkpointing": True},
        {"torch_compile": True, "torch_compile_backend": "aot_eager"},
        {"gradient_accumulation_steps": 2},
    ],
    ids=["eager", "checkpointed", "compiled", "accumulated"],
)
def test_under_the_trainer_exactly_the_changeable_inputs_change(tmp_path, options):
    model = gpt2()
    given = Batches(model)
    callback = InputCurriculum(table_of(model), neighbor_rate=1.0)
    with embedded(model) as seen:
        trainer(tmp_path, callback, model=model, max_steps=3, **options).train()
    assert len(given.given) == len(seen) == 3 * options.get("gradient_accumulation_steps", 1)
    for batch, inputs in zip(given.given, seen, strict=True):
        names = ("input_ids", "labels", "attention_mask", "position_ids")
        ids, *_ = parts = [batch[name] for name in names]
        assert (inputs != ids).tolist() == expected_changes(parts)


def test_rates_follow_the_trainers_steps_and_the_hook_goes_when_training_ends(tmp_path):
    model = gpt2()
    callback = InputCurriculum(table_of(model), neighbor_rate=nnrs.Schedule("linear", 0.0, 0.5))
    ours = trainer(tmp_path, callback, model=model, max_steps=6, logging_steps=1)
    ours.train()
    logged = [entry["neighbor_rate"] for entry in ours.state.log_history if "loss" in entry]
    assert logged == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert not model._forward_pre_hooks
    with embedded(model) as seen:
        model.train()(
            input_ids=torch.ones(1, 4, dtype=torch.int64), labels=torch.ones(1, 4, dtype=torch.int64)
        )
    assert (seen[0] == 1).all()


@pytest.mark.parametrize("evaluated", [{}, {"eval_on_start": True}], ids=["", "evaluated at the start"])
def test_a_run_resumed_from_a_checkpoint_ends_where_an_unbroken_one_does(tmp_path, evaluated):
    def run(folder, resume=None, **options):
        model = gpt2(dropout=0.2)
        callback = InputCurriculum(
            table_of(model),
            neighbor_rate=nnrs.Schedule("linear", 0.1, 0.6),
            prediction_rate=0.2,
            rule="effective",
        )
        settings = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
        settings |= evaluated
        made = trainer(folder, callback, model=model, gradient_accumulation_steps=2, **settings, **options)
        made.train(resume_from_checkpoint=resume)
        temperatures = [entry["neighbor_temperature"] for entry in made.state.log_history if "loss" in entry]
        return weights(made), temperatures

    unbroken, temperatures = run(tmp_path / "whole")
    checkpoint = tmp_path / "whole" / "checkpoint-4"
    kept = json.loads((checkpoint / "trainer_state.json").read_text())["stateful_callbacks"][STATE]
    assert kept["temperature"]["target"] != 2.0  # two evaluations have moved it
    resumed, again = run(tmp_path / "rest", str(checkpoint))
    assert same(unbroken, resumed)
    assert temperatures == again
    assert len(set(temperatures)) > 1
    restored, _ = run(tmp_path / "asked", str(checkpoint), restore_callback_states_from_checkpoint=True)
    assert same(unbroken, restored)


def saved_at_the_end_of_an_epoch(folder, resume=None, rule="effective", **options):
    """Temperatures of a run of twelve steps, six an epoch, that saves each third; also where it is resumed."""
    model = gpt2()
    callback = InputCurriculum(table_of(model), neighbor_rate=0.5, rule=rule)
    settings = {
        "max_steps": 12,
        "save_strategy": "steps",
        "save_steps": 3,
        "eval_strategy": "epoch",
        **options,
    }
    made = trainer(folder, callback, model=model, **settings)
    made.train(resume_from_checkpoint=str(folder / f"checkpoint-{resume}") if resume else None)
    return [entry["neighbor_temperature"] for entry in made.state.log_history if "loss" in entry]


def test_an_evaluation_that_a_checkpoint_lacks_is_told_of_and_made_up_for_at_the_start(tmp_path):
    unbroken = saved_at_the_end_of_an_epoch(tmp_path)
    assert saved_at_the_end_of_an_epoch(tmp_path, resume=9) == unbroken  # a warning would be an error
    assert saved_at_the_end_of_an_epoch(tmp_path, resume=6, eval_on_start=True) == unbroken
    with pytest.warns(UserWarning, match="checkpoint of step 6 was saved before the evaluation") as told:
        broken = saved_at_the_end_of_an_epoch(tmp_path, resume=6)
    assert len(told) == 1
    assert broken[:3] == unbroken[:3]
    assert broken[3:] != unbroken[3:]


@pytest.mark.parametrize(
    ("resume", "options"),
    [
        (6, {"rule": "constant"}),
        (6, {"eval_delay": 2}),
        (12, {}),
        (6, {"save_strategy": "epoch", "eval_strategy": "epoch"}),
        (6, {"eval_strategy": "steps", "eval_steps": 4}),
    ],
    ids=["temperature stays", "not yet evaluated", "ended", "saved after", "not evaluated there"],
)
def test_a_checkpoint_that_lacks_no_evaluation_is_resumed_without_a_word(tmp_path, resume, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unbroken = saved_at_the_end_of_an_epoch(tmp_path, **options)
        assert saved_at_the_end_of_an_epoch(tmp_path, resume=resume, **options) == unbroken


def test_a_second_training_begins_at_the_first_temperature(tmp_path):
    model = gpt2()
    callback = InputCurriculum(table_of(model), neighbor_rate=0.5)
    options = {
        "max_steps": 3,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "logging_steps": 1,
        "learning_rate": 1e-2,
    }
    ours = trainer(tmp_path, callback, model=model, **options)
    for _ in range(2):
        ours.train()
        logged = [entry["neighbor_temperature"] for entry in ours.state.log_history if "loss" in entry]
        assert logged[0] == 0.5 < logged[2]


def test_evaluation_moves_the_temperature_once_each(tmp_path):
    model = gpt2()
    callback = InputCurriculum(table_of(model), neighbor_rate=0.1, rule="equation", temperature=3.0)
    ours = trainer(
        tmp_path,
        callback,
        model=model,
        eval_strategy="steps",
        eval_steps=2,
        eval_on_start=True,
        logging_steps=1,
    )
    ours.train()
    logged = [entry["neighbor_temperature"] for entry in ours.state.log_history if "loss" in entry]
    # At the start, and after steps 2 and 4: the untrained model is near uniform (61), so each evaluation compares
    # with the best before it.
    losses = [entry["eval_loss"] for entry in ours.state.log_history if "eval_loss" in entry][1:]
    tau, best, expected = 3.0, float(VOCAB), [3.0, 3.0]
    for loss in losses[:2]:
        improved, step = torch.tensor(loss).exp() < best, abs(tau - (2**tau - 1))
        tau = min(max(tau - step if improved else tau + step, 0.5), 10.0)
        best = min(best, float(torch.tensor(loss).exp()))
        expected += [tau, tau]
    assert logged == pytest.approx(expected)


SEVERAL = {"a": rows(4), "b": rows(8)[4:]}


@pytest.mark.parametrize(
    "options", [{}, {"eval_on_start": True}, {"eval_steps": 3}], ids=["", "start", "end"]
)
def test_an_evaluation_without_the_metric_is_told_of_once(tmp_path, options):
    model = gpt2()
    callback = InputCurriculum(table_of(model), neighbor_rate=0.1)
    arguments = {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 1, **options}
    with pytest.warns(UserWarning, match="one of: eval_a_loss, eval_b_loss; or rule") as told:
        trainer(tmp_path, callback, model=model, evaluation=SEVERAL, **arguments).train()
    assert len(told) == 1
    assert "no 'eval_loss'" in str(told[0].message)


@pytest.mark.parametrize(
    ("k", "options"),
    [
        (4, {"neighbor_rate": 0.1, "metric": "eval_a_loss"}),
        (4, {"neighbor_rate": 0.1, "metric": "eval_b_loss"}),
        (4, {"neighbor_rate": 0.1, "rule": "constant"}),
        (0, {"neighbor_rate": 0.1}),
        (None, {"prediction_rate": 0.1}),
    ],
)
def test_where_the_metric_is_there_or_nothing_follows_it_no_warning_comes(tmp_path, k, options):
    model = gpt2()
    callback = InputCurriculum(None if k is None else table_of(model, k), **options)
    arguments = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer(tmp_path, callback, model=model, evaluation=SEVERAL, **arguments).train()


class Reports(TrainerCallback):
    """Keeps what TensorBoard would be sent."""

    def __init__(self):
        self.sent = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.sent.append(dict(logs))


def test_a_reporting_callback_that_is_given_after_ours_is_sent_the_rates(tmp_path):
    model, reports = gpt2(), Reports()
    callback = InputCurriculum(table_of(model), neighbor_rate=0.25)
    trainer(tmp_path, callback, reports, model=model, max_steps=2, logging_steps=1).train()
    assert [logs["neighbor_rate"] for logs in reports.sent if "loss" in logs] == [0.25, 0.25]


def test_of_two_curricula_in_one_trainer_the_first_says_that_it_does_nothing(tmp_path):
    model = gpt2()
    both = [InputCurriculum(table_of(model), neighbor_rate=0.1) for _ in range(2)]
    with pytest.raises(RunError, match="another curriculum has taken the model over"):
        trainer(tmp_path, *both, model=model).train()


def test_labels_that_never_reach_the_model_stop_the_run(tmp_path):
    model = gpt2()
    callback = InputCurriculum(table_of(model), neighbor_rate=0.1)
    with pytest.raises(RunError, match="given no labels"):
        trainer(tmp_path, callback, model=model, label_smoothing_factor=0.1).train()
    ours = trainer(tmp_path, callback, model=model, max_steps=1)  # the hook of the broken run is gone
    ours.train()
    assert not model._forward_pre_hooks


def test_where_the_trainer_keeps_labels_to_itself_ids_are_named_instead(tmp_path):
    model = gpt2()
    given, callback = Batches(model), InputCurriculum(table_of(model), neighbor_rate=1.0, inputs="input_ids")
    with embedded(model) as seen:
        trainer(tmp_path, callback, model=model, max_steps=2, label_smoothing_factor=0.1).train()
    assert len(given.given) == len(seen) == 2
    for batch, inputs in zip(given.given, seen, strict=True):
        ids, mask, positions = (batch[name] for name in ("input_ids", "attention_mask", "position_ids"))
        assert "labels" not in batch
        assert (inputs != ids).tolist() == expected_changes([ids, ids, mask, positions])


def test_settings_that_cannot_be_are_refused_before_anything_is_trained():
    with pytest.raises(ConfigError, match="go together"):
        InputCurriculum(neighbor_rate=0.1)


def test_a_seq2seq_trainer_feeds_the_decoder_changed_labels(tmp_path):
    model = t5()
    data = [{"input_ids": row["input_ids"], "labels": row["input_ids"].flip(0)} for row in rows(8)]
    arguments = Seq2SeqTrainingArguments(
        str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True, max_steps=2, save_strategy="no"
    )
    callback = InputCurriculum(table_of(model), neighbor_rate=1.0)
    with embedded(model) as seen:
        Seq2SeqTrainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
    for source, decoder in zip(seen[::2], seen[1::2], strict=True):
        assert torch.equal(decoder[:, 0], torch.zeros(8, dtype=torch.int64))
        assert (decoder[:, 1:] != source.flip(1)[:, :-1]).all()


@pytest.mark.parametrize("options", [{"target_modules": ["c_attn", "wte"]}, {"trainable_token_indices": [3]}])
def test_adapters_on_the_embeddings_are_read_through(options):
    peft = pytest.importorskip("peft")
    base = gpt2()
    table = table_of(base)
    chosen = {"target_modules": ["c_attn"], **options}
    model = peft.get_peft_model(
        base, peft.LoraConfig(task_type="CAUSAL_LM", r=2, fan_in_fan_out=True, **chosen)
    )
    ids = torch.randint(1, VOCAB, (2, 9), generator=torch.Generator().manual_seed(0))
    with nnrs.curriculum(model.train(), table, steps=1, neighbor_rate=1.0) as ours:
        model(input_ids=ids, labels=ids)
        assert ours.report()["effective_neighbor_rate"] == 1.0


def test_lora_trains_its_adapters_and_leaves_the_weights_alone(tmp_path):
    peft = pytest.importorskip("peft")
    base = gpt2()
    table = table_of(base)
    before = {name: value.clone() for name, value in base.state_dict().items()}
    model = peft.get_peft_model(
        base, peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    )
    callback = InputCurriculum(table, neighbor_rate=0.5, prediction_rate=0.5)
    with embedded(model) as seen:
        trainer(tmp_path, callback, model=model, max_steps=2, learning_rate=0.1).train()
    assert len(seen) == 4  # a second pass in each of two steps
    assert (seen[0] != seen[1]).any()
    after = {name: value for name, value in model.get_base_model().state_dict().items() if "lora" not in name}
    assert all(torch.equal(before[name.replace(".base_layer", "")], value) for name, value in after.items())
    assert any(value.abs().sum() > 0 for name, value in model.state_dict().items() if "lora_B" in name)
