"""The hook itself: what reaches the embedding layer, and what does not change."""

import copy
import gc
import io
import weakref

import pytest
import torch
from hypothesis import given, settings
from tests.integrations.batches import expected_changes, packed_or_padded
from tests.integrations.tiny import IDS, VOCAB, embedded, gpt2, inputs_under, llama, t5, table_of
from torch.utils.checkpoint import checkpoint
from transformers import M2M100Config, M2M100ForConditionalGeneration

import nnrs
from nnrs.errors import ConfigError, RunError
from nnrs.integrations.curriculum import Curriculum, curriculum
from nnrs.integrations.settings import Settings

GPT2, LLAMA, T5 = gpt2(), llama(), t5()


def gradients(model):
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@settings(max_examples=60)
@given(packed_or_padded())
def test_at_rate_one_exactly_the_changeable_inputs_change(batch):
    ids, labels, mask, positions = batch
    before = [None if part is None else part.clone() for part in batch]
    GPT2.train()
    with embedded(GPT2) as seen, curriculum(GPT2, table_of(GPT2), steps=1, neighbor_rate=1.0):
        GPT2(input_ids=ids, labels=labels, attention_mask=mask, position_ids=positions)
    changed = (seen[0] != ids).tolist()
    assert changed == expected_changes(batch)
    untouched = [a is None or torch.equal(a, b) for a, b in zip(before, batch, strict=True)]
    assert all(untouched)


@settings(max_examples=40)
@given(packed_or_padded())
def test_predictions_too_come_only_where_an_input_may_change(batch):
    ids, labels, mask, positions = batch
    LLAMA.train()
    with embedded(LLAMA) as seen, curriculum(LLAMA, steps=1, prediction_rate=1.0):
        LLAMA(input_ids=ids, labels=labels, attention_mask=mask, position_ids=positions)
    assert not ((seen[1] != ids) & ~torch.tensor(expected_changes(batch))).any()


def test_the_labels_that_the_loss_is_made_with_are_the_gold_ones():
    model = gpt2().train()
    with embedded(model) as seen, curriculum(model, table_of(model), steps=1, neighbor_rate=0.5):
        loss = model(input_ids=IDS, labels=IDS).loss
    expected = model(input_ids=seen[0], labels=IDS).loss
    assert (seen[0] != IDS).any()
    assert loss == expected


def test_protected_tokens_stay_and_are_never_proposed():
    protected = tuple(range(1, 30))
    with (
        embedded(GPT2) as seen,
        curriculum(GPT2.train(), table_of(GPT2, protected=protected), steps=1, neighbor_rate=1.0),
    ):
        GPT2(input_ids=IDS, labels=IDS)
    stays = IDS < 30
    assert torch.equal(seen[0][stays], IDS[stays])
    assert (seen[0][:, 1:][~stays[:, 1:]] >= 30).all()


def test_in_seq2seq_the_decoder_reads_changed_labels_and_the_encoder_what_it_was_given():
    source, labels = IDS.flip(1), IDS.clone()
    labels[0, 3:6] = -100
    T5.train()
    with embedded(T5) as seen, curriculum(T5, table_of(T5), steps=1, neighbor_rate=1.0):
        loss = T5(input_ids=source, labels=labels).loss
    encoder, decoder = seen
    own = torch.cat([torch.full((4, 1), -100), labels[:, :-1]], dim=1)
    assert torch.equal(encoder, source)
    assert torch.equal(decoder != T5._shift_right(labels), own != -100)
    assert loss == T5(input_ids=source, decoder_input_ids=decoder, labels=labels).loss


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_decoder_that_shifts_its_labels_within_its_forward_reads_them_shifted_and_changed(rate):
    torch.manual_seed(0)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = M2M100Config(
        vocab_size=VOCAB, d_model=16, decoder_start_token_id=2, pad_token_id=1, **sizes, **heads
    )
    model = M2M100ForConditionalGeneration(config).train()
    labels = IDS.clone()
    labels[0, 3:6] = -100
    torch.manual_seed(5)
    with embedded(model) as plain:
        expected = model(input_ids=IDS, labels=labels).loss
    torch.manual_seed(5)
    with embedded(model) as seen, curriculum(model, table_of(model), steps=1, neighbor_rate=rate):
        loss = model(input_ids=IDS, labels=labels).loss
    own = torch.cat([torch.full((4, 1), -100), labels[:, :-1]], dim=1)
    replaceable = (own != -100) & (own != 1)  # the vector of padding is 0 and has no neighbors
    assert torch.equal(seen[0], IDS)
    assert torch.equal(seen[1] != plain[1], replaceable if rate else torch.zeros_like(replaceable))
    assert (loss == expected) == (rate == 0.0)


def test_in_seq2seq_a_greedy_prediction_is_what_the_decoder_says():
    T5.train()
    with embedded(T5) as seen, curriculum(T5, steps=1, prediction_rate=1.0, predict="greedy"):
        T5(input_ids=IDS, labels=IDS)
    said = T5.eval()(input_ids=IDS, labels=IDS).logits.argmax(-1)
    assert torch.equal(seen[-1][:, 1:], said[:, :-1])


@pytest.mark.parametrize("make", [gpt2, t5], ids=["gpt2", "t5"])
@pytest.mark.parametrize(
    ("k", "options"),
    [(4, {"neighbor_rate": 0.0}), (0, {"neighbor_rate": 0.5}), (None, {"prediction_rate": 0.0})],
)
def test_rate_zero_and_k_zero_are_the_plain_run_bit_for_bit(make, k, options):
    plain, ours = make(dropout=0.2).train(), make(dropout=0.2).train()
    torch.manual_seed(5)
    plain(input_ids=IDS, labels=IDS).loss.backward()
    after = torch.get_rng_state()
    torch.manual_seed(5)
    with curriculum(ours, None if k is None else table_of(ours, k), steps=1, **options):
        ours(input_ids=IDS, labels=IDS).loss.backward()
    assert torch.equal(torch.get_rng_state(), after)
    expected = gradients(plain)
    assert all(torch.equal(value, expected[name]) for name, value in gradients(ours).items())


def test_the_training_pass_draws_its_dropout_as_if_there_were_no_second_pass():
    model = gpt2(dropout=0.3).train()
    torch.manual_seed(5)
    with embedded(model) as seen, curriculum(model, steps=1, prediction_rate=0.5):
        loss = model(input_ids=IDS, labels=IDS).loss
    torch.manual_seed(5)
    assert loss == model(input_ids=seen[1], labels=IDS).loss


def test_the_training_pass_has_casts_of_its_own_under_autocast(monkeypatch):
    """Before pytorch#165068 a weight that the second pass had cast would have no gradient."""
    model, events = gpt2().train(), []
    monkeypatch.setattr(torch, "clear_autocast_cache", lambda: events.append("cleared"))
    model.transformer.register_forward_pre_hook(lambda *_: events.append(torch.is_grad_enabled()))
    with curriculum(model, steps=1, prediction_rate=0.5):
        model(input_ids=IDS, labels=IDS)
    assert events == [False, "cleared", True]


def test_draws_differ_by_step_micro_step_rank_and_seed_and_by_nothing_else():
    def first(steps=1, **options):
        return [ids.tolist() for ids in inputs_under(GPT2, steps, neighbor_rate=0.5, **options)]

    one, two, three, four = first(4, accumulation=2)
    assert [one, two, three, four] == first(4, accumulation=2)
    assert len({str(ids) for ids in (one, two, three, four)}) == 4
    assert first() == [one]
    assert first(seed=1) != [one] != first(rank=1)
    torch.manual_seed(99)
    assert first() == [one]


def test_steps_are_counted_in_training_forwards_and_the_last_has_the_end_rate():
    rates = []
    model = gpt2()
    options = {"neighbor_rate": nnrs.Schedule("linear", 0.0, 1.0)}
    with curriculum(model, table_of(model), steps=3, accumulation=2, **options) as ours:
        for _ in range(6):
            model.eval()(input_ids=IDS, labels=IDS)  # not counted
            model.train()(input_ids=IDS, labels=IDS)
            rates.append(ours.rates.neighbor)
    assert rates == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_forwards_without_gradient_are_left_alone_and_not_counted_also_in_training_mode(without):
    model = gpt2().train()
    options = {"neighbor_rate": 0.5, "prediction_rate": 0.5, "accumulation": 2}
    expected = inputs_under(model, 2, **options)
    with curriculum(model, table_of(model), steps=2, **options), embedded(model) as seen:
        for _ in range(2):
            with without():
                model(input_ids=IDS, labels=IDS)
            model(input_ids=IDS, labels=IDS)
    evaluated = [seen.pop(3), seen.pop(0)]  # a training forward follows each, after its second pass
    assert all(torch.equal(ids, IDS) for ids in evaluated)
    assert [ids.tolist() for ids in seen] == [ids.tolist() for ids in expected]


def rates_beyond(accumulation, *, begins):
    """γ of ten forwards along three steps, counted by the curriculum or by the loop that begins them."""
    model = gpt2().train()
    options = {"neighbor_rate": nnrs.Schedule("linear", 0.0, 1.0), "accumulation": accumulation}
    with curriculum(model, table_of(model), steps=3, **options) as ours:
        for forward in range(10):
            if begins:
                ours.begin_step(forward, 3)
            model(input_ids=IDS, labels=IDS)
            yield ours.rates.neighbor


@pytest.mark.parametrize(
    ("accumulation", "begins", "told"),
    [
        (1, False, "steps=3 and accumulation=1, and training forward 4 is beyond"),
        (2, False, "steps=3 and accumulation=2, and training forward 7 is beyond"),
        (1, True, "steps=3, and step 4 is beyond"),
    ],
)
def test_forwards_after_the_last_step_keep_its_rates_and_are_told_of_once(accumulation, begins, told):
    with pytest.warns(UserWarning, match=told) as warned:
        rates = list(rates_beyond(accumulation, begins=begins))
    assert len(warned) == 1
    assert rates[3 * accumulation :] == [1.0] * (10 - 3 * accumulation)


def test_a_constant_rate_has_no_end_to_tell_of():
    model = gpt2().train()
    with curriculum(model, table_of(model), steps=1, neighbor_rate=0.5):  # a warning would be an error
        for _ in range(3):
            model(input_ids=IDS, labels=IDS)


def test_a_restored_state_continues_as_if_nothing_had_happened():
    def forwards(ours, model, count):
        with embedded(model) as seen:
            for _ in range(count):
                model(input_ids=IDS, labels=IDS)
        return [ids.tolist() for ids in seen]

    options = {
        "steps": 6,
        "accumulation": 2,
        "neighbor_rate": nnrs.Schedule("linear", 0.2, 0.8),
        "rule": "prose",
    }
    model = gpt2().train()
    with curriculum(model, table_of(model), **options) as ours:
        forwards(ours, model, 5)
        ours.end_evaluation(20.0)
        state = ours.state_dict()
        expected = forwards(ours, model, 4)
    with curriculum(model, table_of(model), **options) as ours:
        ours.load_state_dict(state)
        assert ours.policy.temperature > 0.5
        assert forwards(ours, model, 4) == expected


def test_the_temperature_follows_the_perplexities_it_is_told_of():
    with curriculum(GPT2.train(), table_of(GPT2), steps=1, neighbor_rate=0.5) as ours:
        GPT2(input_ids=IDS, labels=IDS)
        ours.end_evaluation(30.0)
        higher = 0.5 + (0.5 - (2**0.5 - 1))  # better than 61, a uniform model's: up by |τ − (2^τ − 1)|
        assert ours.policy.temperature == pytest.approx(higher)
        ours.end_evaluation(40.0)
        assert ours.policy.temperature == pytest.approx(higher - (higher - (2**higher - 1)))  # worse: down


@pytest.mark.parametrize("end", [2, [3, 2]], ids=["one", "several"])
def test_the_id_that_ends_a_document_keeps_the_next_one_in_a_causal_model_and_in_a_decoder(end):
    ids = IDS.clone()
    ids[:, 5] = 2
    for model, shift in ((GPT2, 0), (T5, 1)):  # a decoder reads its labels one place later
        seen = inputs_under(model, ids=ids, neighbor_rate=1.0, document_end=end)[-1]
        assert torch.equal(seen[:, 6 + shift], ids[:, 6])
        assert (seen[:, 7 + shift] != ids[:, 7]).all()


def test_ids_of_32_bits_stay_of_32_bits():
    model, ids = gpt2().train(), IDS.int()
    with embedded(model) as seen, curriculum(model, table_of(model), steps=1, neighbor_rate=1.0):
        model(input_ids=ids, labels=IDS)
    assert seen[0].dtype == torch.int32


def test_evaluation_generation_and_forwards_without_labels_are_left_alone():
    model = gpt2()
    prompt = IDS[:1, :4]
    expected = model.eval().generate(prompt, max_new_tokens=5, do_sample=False, pad_token_id=0)
    table = table_of(model)
    with curriculum(model, table, steps=1, neighbor_rate=1.0, prediction_rate=1.0):
        model.train()(input_ids=IDS, labels=IDS)
        with embedded(model) as seen:
            model.train()(input_ids=IDS)
            model.eval()(input_ids=IDS, labels=IDS)
        generated = model.eval().generate(prompt, max_new_tokens=5, do_sample=False, pad_token_id=0)
    assert all(torch.equal(ids, IDS) for ids in seen)
    assert torch.equal(generated, expected)


def test_after_the_block_the_model_is_as_it_was_even_after_an_error():
    model = gpt2().train()

    def broken_loop():
        with curriculum(model, table_of(model), steps=1, neighbor_rate=1.0):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        broken_loop()
    assert not model._forward_pre_hooks
    assert not model.lm_head._forward_pre_hooks


@pytest.mark.parametrize("counted", [True, False], ids=["by itself", "by the loop"])
def test_a_second_curriculum_inside_the_block_of_a_first_is_refused_and_the_first_goes_on(counted):
    model = gpt2().train()
    with embedded(model) as seen, curriculum(model, table_of(model), steps=2, neighbor_rate=1.0) as ours:
        if not counted:
            ours.begin_step(0, 2)
        with (
            pytest.raises(ConfigError, match="active on this model already"),
            curriculum(torch.compile(model, backend="eager"), table_of(model), steps=1, neighbor_rate=0.0),
        ):
            pass
        model(input_ids=IDS, labels=IDS)
    assert (seen[0][:, 1:] != IDS[:, 1:]).all()
    assert not model._forward_pre_hooks


def test_of_two_curricula_without_a_block_the_newest_acts_alone():
    model, other = gpt2().train(), gpt2().train()
    table = table_of(model)
    for each, rate in [(model, 1.0), (model, 0.0), (other, 1.0)]:
        Curriculum(each, table, Settings(neighbor_rate=rate)).attach()
    with embedded(model) as seen, embedded(other) as changed:
        model(input_ids=IDS, labels=IDS)
        other(input_ids=IDS, labels=IDS)
    assert torch.equal(seen[0], IDS)
    assert (changed[0][:, 1:] != IDS[:, 1:]).all()  # one of another model is its own


def test_a_curriculum_that_another_took_over_from_says_so_also_after_it_has_acted():
    model = gpt2().train()
    first, second = (Curriculum(model, table_of(model), Settings(neighbor_rate=0.5)) for _ in range(2))
    first.attach()
    model(input_ids=IDS, labels=IDS)
    first.check_it_acts()
    second.attach()
    with pytest.raises(RunError, match="another curriculum has taken the model over"):
        first.check_it_acts()
    second.detach()


def test_a_model_that_nobody_holds_is_freed_with_the_curriculum_left_on_it():
    model = gpt2()
    Curriculum(model, table_of(model), Settings(neighbor_rate=1.0)).attach()
    left = weakref.ref(model)
    del model
    gc.collect()
    assert left() is None


def saved_and_loaded(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, saved_and_loaded])
def test_a_copy_of_the_model_is_left_alone_and_the_model_itself_is_not(copied):
    model = gpt2().train()
    with curriculum(model, table_of(model), steps=2, neighbor_rate=1.0):
        model(input_ids=IDS, labels=IDS)
        average = copied(model)
        with embedded(average) as seen:
            average(input_ids=IDS, labels=IDS)
        with embedded(model) as changed:
            model(input_ids=IDS, labels=IDS)
    assert torch.equal(seen[0], IDS)
    assert (changed[0] != IDS)[:, 1:].all()


def test_a_copy_of_the_model_compiles_in_one_graph_with_what_is_around_it():
    model = gpt2().train()
    with curriculum(model, table_of(model), steps=1, neighbor_rate=1.0):
        model(input_ids=IDS, labels=IDS)
        average = copy.deepcopy(model)
    score = torch.compile(lambda ids: average(input_ids=ids).logits, fullgraph=True, backend="eager")
    assert torch.equal(score(IDS), model(input_ids=IDS).logits)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # in the second pass, rightly
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_gives_equal_gradients(reentrant):
    plain, checkpointed = gpt2(dropout=0.2).train(), gpt2(dropout=0.2).train()
    checkpointed.gradient_checkpointing_enable({"use_reentrant": reentrant})
    checkpointed.enable_input_require_grads()  # without which a reentrant one gives none
    options = {"steps": 1, "neighbor_rate": 0.4, "prediction_rate": 0.4}
    seen = {}
    for model in (plain, checkpointed):
        torch.manual_seed(5)
        with embedded(model) as seen[model], curriculum(model, table_of(model), **options):
            model(input_ids=IDS, labels=IDS).loss.backward()
    assert [ids.tolist() for ids in seen[plain]] == [ids.tolist() for ids in seen[checkpointed]]
    # Checkpoints add the same float32 numbers up in another order, without a curriculum too (1e-9 seen; inputs that
    # differ would show at 1e-3).
    expected = gradients(plain)
    for name, value in gradients(checkpointed).items():
        torch.testing.assert_close(value, expected[name], atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_around_the_whole_model_is_refused_at_its_first_backward(reentrant):
    model = gpt2().train()
    embeddings = model.transformer.wte.weight  # a reentrant checkpoint asks for an input with gradient

    def loss(ids, weight):
        return model(input_ids=ids, labels=ids).loss

    def loop():
        with curriculum(model, table_of(model), steps=2, neighbor_rate=0.0):
            checkpoint(loss, IDS, embeddings, use_reentrant=reentrant).backward()

    with pytest.raises(RunError, match=r"run again within backward.*gradient_checkpointing_enable"):
        loop()
    assert not model._forward_pre_hooks


@pytest.mark.parametrize("granularity", ["position", "sequence"])
def test_a_coarser_granularity_decides_whole_columns_or_rows(granularity):
    [inputs] = inputs_under(gpt2(), neighbor_rate=0.5, granularity=granularity, seed=2)
    changed = (inputs != IDS)[:, 1:]
    shared = (
        changed.all(0) | ~changed.any(0) if granularity == "position" else changed.all(1) | ~changed.any(1)
    )
    assert shared.all()
    assert 0 < changed.float().mean() < 1


def test_the_report_counts_predictions_that_equal_the_gold_token_too():
    model = gpt2().train()
    with torch.no_grad():
        model.lm_head.weight.zero_()  # and the embeddings with it: the likeliest of equals is the first
    ids = torch.zeros_like(IDS)
    with curriculum(model, steps=1, prediction_rate=1.0, predict="greedy") as ours, embedded(model) as seen:
        model(input_ids=ids, labels=ids)
        assert ours.report()["effective_prediction_rate"] == 1.0
    assert torch.equal(seen[1], ids)


def test_the_report_counts_what_was_replaced_among_all_that_might_have_been():
    model = gpt2().train()
    rates = nnrs.Schedule("linear", 0.0, 0.5)  # 0, 0.25 and 0.5
    with embedded(model) as seen, curriculum(model, table_of(model), steps=3, neighbor_rate=rates) as ours:
        for _ in range(3):
            model(input_ids=IDS, labels=IDS)
        report = ours.report()
        assert ours.report()["effective_neighbor_rate"] == 0.0  # counted anew
    changed = sum(int((ids != IDS).sum()) for ids in seen)
    assert report["effective_neighbor_rate"] == changed / (3 * 44) > 0
    assert report["neighbor_rate"] == 0.5
