"""The curriculum under TRL's SFTTrainer, whose model makes no logits in training: completions, packed rows, LoRA."""

import pytest
import torch
from tests.integrations.batches import expected_changes
from tests.integrations.test_huggingface import Batches
from tests.integrations.tiny import VOCAB, embedded, llama, table_of
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from nnrs.integrations.huggingface import InputCurriculum

datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")

TOKENIZER = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel({f"w{token}": token for token in range(VOCAB)}, "w0")),
    unk_token="w0",
    eos_token="w0",
    pad_token="w1",
)
TOKENIZER.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()


def words(count, seed):
    drawn = torch.randint(2, VOCAB, (count,), generator=torch.Generator().manual_seed(seed))
    return " ".join(f"w{token}" for token in drawn.tolist())


TEXTS = [{"text": words(4 + seed % 7, seed)} for seed in range(24)]
COMPLETIONS = [
    {"prompt": words(3, seed), "completion": " " + words(3 + seed % 5, 100 + seed)} for seed in range(24)
]


def trainer(folder, model, callback, rows=TEXTS, peft_config=None, **options):
    arguments = trl.SFTConfig(
        str(folder),
        use_cpu=True,
        bf16=False,
        report_to="none",
        disable_tqdm=True,
        per_device_train_batch_size=4,
        **{"max_steps": 2, "save_strategy": "no", "logging_steps": 1, "max_length": 16, **options},
    )
    return trl.SFTTrainer(
        model,
        arguments,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=TOKENIZER,
        callbacks=[callback],
        peft_config=peft_config,
    )


KINDS = {
    "texts": {},
    "completions": {"rows": COMPLETIONS},
    "packed": {"packing": True},
    "padding_free": {"padding_free": True, "max_length": None},
    "dft": {"loss_type": "dft"},
}
# It says that rows which lie beside each other see each other without a kernel that keeps them apart.
pytestmark = pytest.mark.filterwarnings("ignore:.*(attention|packing|padding).*:UserWarning")


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_every_changeable_input_becomes_what_the_model_says_before_it(tmp_path, options):
    model = llama()
    given, callback = Batches(model), InputCurriculum(prediction_rate=1.0, predict="greedy")
    ours = trainer(tmp_path, model, callback, learning_rate=0.0, **options)
    with embedded(model) as seen:
        ours.train()
    assert len(given.given) == 2
    assert len(seen) == 4  # the second pass, then the training pass
    for batch, first, inputs in zip(given.given, seen[::2], seen[1::2], strict=True):
        ids, labels = batch["input_ids"], batch["labels"]
        arguments = {name: batch[name] for name in ("attention_mask", "position_ids") if name in batch}
        changes = torch.tensor(
            expected_changes([ids, labels, arguments.get("attention_mask"), arguments.get("position_ids")])
        )
        assert changes.any()
        assert torch.equal(first, ids)
        with torch.no_grad():
            said = llama()(input_ids=ids, use_cache=False, **arguments).logits.argmax(dim=-1)
        assert torch.equal(inputs, torch.where(changes, said.roll(1, dims=1), ids))


@pytest.mark.parametrize("adapted", [False, True], ids=["whole", "adapter"])
def test_neighbors_and_predictions_are_counted_beside_its_own_metrics(tmp_path, adapted):
    config = None
    if adapted:
        config = pytest.importorskip("peft").LoraConfig(
            task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "v_proj"]
        )
    model = llama()
    callback = InputCurriculum(table_of(model), neighbor_rate=1.0, prediction_rate=1.0)
    ours = trainer(tmp_path, model, callback, peft_config=config)
    ours.train()
    logged = [entry for entry in ours.state.log_history if "loss" in entry]
    assert len(logged) == 2
    assert all("mean_token_accuracy" in entry for entry in logged)
    for entry in logged:
        assert entry["effective_neighbor_rate"] + entry["effective_prediction_rate"] == pytest.approx(1.0)
