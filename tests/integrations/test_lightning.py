"""The curriculum under Lightning: rates by its steps, temperature by its validation, exact resumption."""

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from tests.integrations.test_plain_loop import Outside
from tests.integrations.tiny import VOCAB, embedded, gpt2, table_of
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import nnrs
from nnrs.errors import ConfigError, RunError
from nnrs.integrations.lightning import InputCurriculum

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*is smaller than the logging interval"),
    pytest.mark.filterwarnings("ignore:.*`isinstance.*LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Found .* module.*in eval mode"),
]
ROWS = torch.randint(1, VOCAB, (24, 8), generator=torch.Generator().manual_seed(1))


class Language(LightningModule):
    def __init__(self, labels=True, fatal=-1, skipped=-1, logged="val_loss"):
        super().__init__()
        self.model, self.labels, self.fatal = gpt2(dropout=0.2), labels, fatal
        self.skipped, self.logged = skipped, logged

    def training_step(self, batch, index):
        if index == self.skipped:
            return None
        if self.labels:
            loss = self.model(input_ids=batch, labels=batch).loss
            if self.trainer.global_step == self.fatal:
                raise RuntimeError("out of luck")
            return loss
        return self.model(input_ids=batch).logits.mean()

    def validation_step(self, batch, index):
        self.log(self.logged, self.model(input_ids=batch, labels=batch).loss)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def made_trainer(folder, *callbacks, **options):
    settings = {"max_steps": 6, "accumulate_grad_batches": 2, "val_check_interval": 4, **options}
    return Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[*callbacks, ModelCheckpoint(folder, every_n_train_steps=3, save_top_k=-1)],
        **settings,
    )


def fit(folder, callback, module, resume=None, beside=(), **options):
    torch.manual_seed(7)  # for dropout: making the model has set it too
    trainer = made_trainer(folder, callback, *beside, **options)
    with embedded(module.model) as seen:
        trainer.fit(
            module, DataLoader(ROWS, 4), DataLoader(ROWS[:4], 4), ckpt_path=resume, weights_only=False
        )
    return module, [ids for ids in seen if len(ids) == 4]


class Watched(InputCurriculum):
    """Notes rate and temperature of each batch."""

    def on_train_batch_end(self, trainer, *rest):
        super().on_train_batch_end(trainer, *rest)
        ours = self.curriculum
        self.seen = [*getattr(self, "seen", []), (ours.step, ours.rates.neighbor, ours.policy.temperature)]


def rising(table):
    return Watched(table, neighbor_rate=nnrs.Schedule("linear", 0.0, 0.5), rule="effective")


def test_rates_follow_lightnings_steps_and_the_hook_goes_when_training_ends(tmp_path):
    module = Language()
    callback = rising(table_of(module.model))
    fit(tmp_path, callback, module)
    assert [step for step, _, _ in callback.seen] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [rate for _, rate, _ in callback.seen[::2]] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert callback.seen[0][2] != callback.seen[-1][2]  # validation has moved it
    assert not module.model._forward_pre_hooks


def test_rate_zero_is_the_plain_run_bit_for_bit(tmp_path):
    module = Language()
    ours, _ = fit(tmp_path / "a", InputCurriculum(table_of(module.model), neighbor_rate=0.0), module)
    plain, _ = fit(tmp_path / "b", ModelCheckpoint(tmp_path), Language())
    expected = plain.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in ours.state_dict().items())


def test_a_resumed_run_continues_as_an_unbroken_one(tmp_path):
    module = Language()
    whole = rising(table_of(module.model))
    _, unbroken = fit(tmp_path, whole, module)
    [checkpoint] = tmp_path.glob("*step=3.ckpt")
    rest = rising(table_of(Language().model))
    _, resumed = fit(tmp_path, rest, Language(), resume=checkpoint)
    assert rest.seen == whole.seen[6:]
    ours, theirs = ([ids.tolist() for ids in seen[-6:]] for seen in (unbroken, resumed))
    assert ours == theirs


class Given(Language):
    """Keeps the model that it is given among its hyperparameters, which Lightning pickles."""

    def __init__(self, model):
        super().__init__()
        self.save_hyperparameters()
        self.model = model


@pytest.mark.filterwarnings("ignore:Attribute 'model' is an instance of `nn.Module`")
def test_a_module_with_its_model_among_its_hyperparameters_is_saved_and_loaded(tmp_path):
    module = Given(gpt2())
    callback = InputCurriculum(table_of(module.model), neighbor_rate=0.5)
    made_trainer(tmp_path, callback).fit(module, DataLoader(ROWS, 4), DataLoader(ROWS[:4], 4))
    [checkpoint] = tmp_path.glob("*step=3.ckpt")
    loaded = Given.load_from_checkpoint(checkpoint, weights_only=False).train()
    with embedded(loaded.model) as seen:
        loaded.model(input_ids=ROWS, labels=ROWS)
    assert torch.equal(seen[0], ROWS)


def test_a_checkpoint_made_after_training_has_the_state_it_ended_with(tmp_path):
    module = Language()
    callback = rising(table_of(module.model))
    fit(tmp_path, callback, module)
    module.trainer.save_checkpoint(tmp_path / "end.ckpt")
    longer = rising(table_of(Language().model))
    fit(tmp_path, longer, Language(), resume=tmp_path / "end.ckpt", max_steps=7)
    assert {step for step, _, _ in longer.seen} == {6}
    assert longer.seen[0][2] == callback.state_dict()["temperature"]["temperature"] != callback.seen[0][2]


def test_the_temperature_hears_perplexities_and_not_losses(tmp_path, monkeypatch):
    module, losses = Language(), []
    monkeypatch.setattr(
        module, "log", lambda name, loss: losses.append(loss) or Language.log(module, name, loss)
    )
    callback = rising(table_of(module.model))
    fit(tmp_path, callback, module)
    best = callback.state_dict()["temperature"]["best_valid_perplexity"]
    assert best == pytest.approx(min(loss.exp().item() for loss in losses[1:]), rel=1e-5)  # one is the trial


@pytest.mark.filterwarnings("ignore:.*was called without a model")
@pytest.mark.filterwarnings("ignore:.*there is no last checkpoint")
@pytest.mark.filterwarnings("ignore:.*your dataloader is not resumable")
def test_a_checkpoint_made_after_an_error_has_the_state_at_the_error(tmp_path):
    module = Language(fatal=4)
    callback = rising(table_of(module.model))
    with pytest.raises(RuntimeError, match="out of luck"):
        fit(tmp_path, callback, module, beside=[OnExceptionCheckpoint(tmp_path, "error")])
    assert not module.model._forward_pre_hooks
    rest = rising(table_of(Language().model))
    fit(tmp_path, rest, Language(), resume=tmp_path / "error.ckpt")
    assert [step for step, _, _ in rest.seen[-4:]] == [4, 4, 5, 5]
    assert [rate for _, rate, _ in rest.seen[-4:]] == pytest.approx([0.4, 0.4, 0.5, 0.5])
    assert rest.seen[0][2] == callback.seen[-1][2] != callback.seen[0][2]  # the temperature


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
@pytest.mark.parametrize("skipped", [0, 3])
def test_a_batch_that_the_module_skips_does_not_end_the_run(tmp_path, skipped):
    module = Language(skipped=skipped)
    callback = rising(table_of(module.model))
    fit(tmp_path, callback, module, accumulate_grad_batches=1)
    assert callback.seen[-1][1] == 0.5


@pytest.mark.parametrize(("rule", "warned"), [("effective", True), ("constant", False)])
def test_a_validation_that_logs_no_loss_of_that_name_is_said_once(tmp_path, rule, warned, recwarn):
    module = Language(logged="valid/loss")
    fit(tmp_path, InputCurriculum(table_of(module.model), neighbor_rate=0.3, rule=rule), module)
    told = [
        str(each.message) for each in recwarn if "the validation logged no 'val_loss'" in str(each.message)
    ]
    assert len(told) == warned
    assert all("(logged: valid/loss)" in each for each in told)


def test_what_cannot_be_is_refused(tmp_path):
    module = Language()
    table = table_of(module.model)
    with pytest.raises(ConfigError, match="has no module 'language_model'"):
        fit(tmp_path, InputCurriculum(table, model="language_model", neighbor_rate=0.1), module)
    with pytest.raises(ConfigError, match="needs an end"):
        fit(tmp_path, InputCurriculum(table, neighbor_rate=0.1), module, max_steps=-1, max_epochs=-1)
    with pytest.raises(RunError, match="given no labels"):
        fit(tmp_path, InputCurriculum(table, neighbor_rate=0.1), Language(labels=False))


class LossOutside(Language):
    """Its network is called with ids alone."""

    def __init__(self):
        super().__init__()
        self.net = Outside()

    def training_step(self, batch, index):
        return cross_entropy(self.net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    def validation_step(self, batch, index):
        self.log("val_loss", self.training_step(batch, index))


def test_of_a_module_whose_loss_is_made_outside_of_its_network_ids_are_named(tmp_path):
    module = LossOutside()
    seen = []
    module.net.embed.register_forward_pre_hook(
        lambda layer, args: seen.append(args[0].clone()) if layer.training else None
    )
    callback = InputCurriculum(model="net", inputs="x", prediction_rate=1.0)
    fit(tmp_path, callback, module, max_steps=1)
    assert [ids.shape for ids in seen] == [(4, 7)] * 4  # two batches, each read twice
    assert (seen[0] != seen[1])[:, 1:].float().mean() > 0.5
    assert torch.equal(seen[0][:, 0], seen[1][:, 0])


class TwoOptimizers(Language):
    """Steps two optimizers by hand, each of which `global_step` counts."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, index):
        self.manual_backward(self.model(input_ids=batch, labels=batch).loss)
        for optimizer in self.optimizers():
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self):
        first, *rest = self.parameters()
        return torch.optim.SGD([first], lr=0.1), torch.optim.SGD(rest, lr=0.1)


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
def test_steps_beyond_the_estimate_are_told_of_and_not_where_the_trainer_knows_them_all(tmp_path):
    module = TwoOptimizers()
    options = {"accumulate_grad_batches": 1, "val_check_interval": 1.0}
    # 24 rows make 6 batches an epoch and 12 steps, of which Lightning estimates 6: the fourth batch is step 7.
    with pytest.warns(UserWarning, match=r"steps=6, and step 7 is beyond.*max_epochs=-1 and max_steps="):
        fit(tmp_path, rising(table_of(module.model)), module, max_steps=-1, max_epochs=1, **options)
    fit(tmp_path, rising(table_of(module.model)), module, max_steps=12, max_epochs=-1, **options)
