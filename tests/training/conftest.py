"""Without Triton there are no kernels to test, and no fleet."""

from importlib.util import find_spec

import pytest
import torch

from nnrs.seeding import Random, Stream

pytest.register_assert_rewrite("tests.training.fleet_cases")  # it says what differs

collect_ignore_glob = [] if find_spec("triton") else ["test_fleet*.py", "*kernels.py", "test_recurrence.py"]


@pytest.fixture
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN would round float32 products to tf32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def draw(device):
    """`draw(shape)`: numbers in [-1, 1), others at each call."""
    random = Random(5, Stream.TEXT)
    return lambda *shape: random.uniform(*shape).mul(2).sub(1).to(device)
