"""Under torch.compile: one compilation serves the whole curriculum, and the numbers are those of the eager run."""

import pytest
import torch
from tests.integrations.tiny import VOCAB, embedded, gpt2, t5, table_of

import nnrs
from nnrs.integrations.curriculum import curriculum

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # which dynamo looks at

IDS = torch.randint(1, VOCAB, (4, 12), generator=torch.Generator().manual_seed(3))
RISING = {
    "neighbor_rate": nnrs.Schedule("linear", 0.0, 0.6),
    "prediction_rate": nnrs.Schedule("linear", 0.0, 0.6),
}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield
    torch._dynamo.reset()


def losses(model, call):
    """Of six training steps along the curriculum, and the gradients at the end."""
    found = []
    with curriculum(model, table_of(model), steps=6, **RISING):
        for _ in range(6):
            found.append(call(input_ids=IDS, labels=IDS).loss)
        found[-1].backward()
    gradients = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    return torch.stack(found).detach(), gradients


@pytest.mark.parametrize("make", [gpt2, t5], ids=["gpt2", "t5"])
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


def test_the_whole_forward_is_one_graph_beside_the_hook():
    model = gpt2().train()
    losses(model, torch.compile(model, backend="eager", fullgraph=True))


def test_the_curriculum_finds_the_model_inside_the_compiled_one():
    model = gpt2().train()
    compiled = torch.compile(model, backend="eager")
    with embedded(model) as seen, curriculum(compiled, table_of(model), steps=1, neighbor_rate=1.0):
        compiled(input_ids=IDS, labels=IDS)
    assert (seen[0] != IDS)[:, 1:].all()
