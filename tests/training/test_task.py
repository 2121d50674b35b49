"""A task: losses, accuracies, and models with dropout, buffers, tied and frozen parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from undrift.config import UndriftError
from undrift.data.federated import FederatedData
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import Round, rounds
from undrift.federation.sampling import Uniform
from undrift.training.losses import PADDING, next_token, suitable_loss
from undrift.training.sums import Rates
from undrift.training.task import CHUNK, Task
from undrift.training.trainer import Trainer, Work
from undrift.training.work import Local

over_seeds = pytest.mark.parametrize("seed", range(3))


def play(
    task: Task, inputs: Tensor, targets: Tensor, name: str = "fedavg", total: int = 3, seed: int = 0
) -> list[Round]:
    """A few rounds with four clients."""
    parts = np.array_split(np.arange(len(targets)), 4)
    data = FederatedData.of_clients([(inputs[part], targets[part]) for part in parts])
    local = Local(lr=0.1, batch_size=3, epochs=1)
    made = algorithm(name)
    return list(rounds(made, task, data, total=total, sampler=Uniform(3), local=local, seed=seed))


def samples(n: int = 24, features: int = 4, classes: int = 3) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(n, features, generator=random)
    return x, torch.randint(classes, (n,), generator=random)


# Losses


class Echo(nn.Module):
    """Gives its inputs back, moved by one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


def evaluate(loss: Any, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
    task = Task(Echo(), loss)
    return task.evaluate(task.x0, task.buffers0, outputs, targets)


@pytest.mark.parametrize("n", [7, CHUNK + 7])
def test_next_token_counts_real_tokens_only(n: int) -> None:
    random = torch.Generator().manual_seed(0)
    scores = torch.randn(n, 5, 4, generator=random)
    targets = torch.randint(5, (n, 4), generator=random)
    targets[:, 3] = PADDING
    targets[: n // 2, 1:] = PADDING
    targets[-1] = PADDING
    real = targets != PADDING
    chosen = scores.transpose(1, 2)[real]
    loss, accuracy = evaluate("next_token", scores, targets)
    assert loss == pytest.approx(
        nn.functional.cross_entropy(chosen, targets[real]).item(), rel=1e-5
    )
    right = (chosen.argmax(1) == targets[real]).float().mean()
    assert accuracy == pytest.approx(right.item())
    assert accuracy > 0
    short = evaluate("next_token", scores, targets.to(torch.int16))
    assert short == (loss, accuracy)


def rates(
    outputs: Tensor, targets: Tensor, loss: Any = "cross_entropy", predicts: Any = None
) -> Rates:
    task = Task(Echo(), loss, predicts=predicts)
    return task.rates(task.score(task.x0, task.buffers0, outputs, targets))


@over_seeds
def test_balanced_accuracy_is_the_mean_of_the_accuracies_of_classes(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    outputs = torch.randn(CHUNK + 40, 6, generator=random)
    targets = torch.randint(5, (len(outputs),), generator=random) ** 2 // 4  # 0, 1, 2 and 4
    targets[::7] = PADDING
    got = rates(outputs, targets)
    asked = targets != PADDING
    each = [rates(outputs[targets == kind], targets[targets == kind]) for kind in (0, 1, 2, 4)]
    assert got.balanced_accuracy == pytest.approx(np.mean([one.accuracy for one in each]))
    assert got[:2] == pytest.approx(rates(outputs[asked], targets[asked])[:2])
    assert got.balanced_accuracy != got.accuracy
    even = torch.cat([torch.where(targets == kind)[0][:9] for kind in (0, 1, 2, 4)])
    alike = rates(outputs[even], targets[even])
    assert alike.balanced_accuracy == pytest.approx(alike.accuracy)
    assert alike.accuracy == evaluate("cross_entropy", outputs[even], targets[even])[1]


def test_balanced_accuracy_of_a_constant_answer_is_one_of_the_number_of_classes() -> None:
    targets = torch.tensor([0] * 90 + [1] * 7 + [2] * 3)
    always = rates(torch.eye(3)[torch.zeros(100, dtype=torch.long)], targets)
    assert always.accuracy == pytest.approx(0.9)
    assert always.balanced_accuracy == pytest.approx(1 / 3)


def logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(outputs.view(-1), targets.float())


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
def test_balanced_accuracy_of_a_single_logit(shape: tuple[int, ...]) -> None:
    logits = torch.tensor([-1.0, -1.0, 2.0, -3.0, 1.0, -1.0]).reshape(shape)
    got = rates(logits, torch.tensor([0, 0, 0, 0, 1, 1]), logistic, "classes")
    assert got[1:] == pytest.approx((4 / 6, (3 / 4 + 1 / 2) / 2))


def test_there_is_no_balanced_accuracy_of_tokens_values_and_nothing() -> None:
    text = rates(torch.randn(4, 5, 3), torch.randint(5, (4, 3)), "next_token")
    assert not math.isnan(text.accuracy)
    assert math.isnan(text.balanced_accuracy)
    assert all(map(math.isnan, rates(torch.randn(4), torch.randn(4), "mse")[1:]))
    assert all(map(math.isnan, rates(torch.randn(0, 3), torch.randint(3, (0,)))))


def test_a_batch_of_padding_has_no_loss_and_no_gradient() -> None:
    outputs = torch.randn(2, 5, 4, requires_grad=True)
    loss = next_token(outputs, torch.full((2, 4), PADDING))
    loss.backward()
    assert loss == 0
    assert outputs.grad is not None
    assert not outputs.grad.any()


def test_the_gradient_over_all_samples_is_that_of_their_mean_loss() -> None:
    torch.manual_seed(0)
    n = CHUNK + 9
    model = nn.Sequential(nn.Embedding(6, 3), nn.Linear(3, 6), Swapped())
    task = Task(model, "next_token", dtype=torch.float64)
    inputs, targets = torch.randint(6, (n, 4)), torch.randint(6, (n, 4))
    targets[:CHUNK, 1:] = PADDING
    data = FederatedData.of_clients([(inputs, targets)])
    work = Work(t=1, client=0, seed=0, data=data, local=Local(), n_mean=1.0)
    _, wanted = task.gradient(task.x0, {}, inputs, targets)
    assert torch.allclose(Trainer(task).facts(work, task.buffers0).full_grad(task.x0), wanted)


class Swapped(nn.Module):
    """Puts the scores where `next_token` wants them."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


def test_regression_has_a_loss_and_no_accuracy() -> None:
    x, y = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1.0, 4.0, 4.0])
    loss, accuracy = evaluate("squared_error", x, y)
    assert loss == pytest.approx(2 / 3)
    assert math.isnan(accuracy)
    several, _ = evaluate("squared_error", torch.zeros(3, 2), torch.ones(3, 2))
    assert several == pytest.approx(0.5)


def test_nothing_to_evaluate() -> None:
    values = evaluate("cross_entropy", torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    assert all(map(math.isnan, values))


def test_the_loss_that_suits_the_targets() -> None:
    assert suitable_loss(torch.zeros(3)) == "squared_error"
    assert suitable_loss(torch.zeros(3, 2)) == "squared_error"
    assert suitable_loss(torch.zeros(3, dtype=torch.int64)) == "cross_entropy"
    assert suitable_loss(torch.zeros(3, 2, dtype=torch.int64)) == "next_token"
    with pytest.raises(UndriftError, match="did you mean 'cross_entropy'"):
        Task(Echo(), "crossentropy")


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "mime(SGDm())", "fedglad+fedadam"])
def test_regression_and_next_token_learn(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    task = Task(nn.Linear(3, 1), "squared_error")
    last = play(task, x, x @ torch.tensor([1.0, -2.0, 0.5]), name, total=10)[-1]
    assert last.train_loss < 1.5
    text = torch.arange(40)[:, None] + torch.arange(6)
    text, following = text % 5, (text + 1) % 5
    following[:, -1] = PADDING
    model = nn.Sequential(nn.Embedding(5, 5), nn.Linear(5, 5), Swapped())
    task = Task(model, "next_token")
    x0_loss, _ = task.evaluate(task.x0, task.buffers0, text, following)
    last = play(task, text, following, name, total=10)[-1]
    loss, accuracy = task.evaluate(last.server.x, last.buffers, text, following)
    assert loss < x0_loss
    assert 0 <= accuracy <= 1


# Models


def same(a: list[Round], b: list[Round]) -> bool:
    return all(torch.equal(i.server.x, j.server.x) for i, j in zip(a, b, strict=True))


def test_dropout_is_a_function_of_seed_round_and_client() -> None:
    inputs, targets = samples()

    def run(rate: float, seed: int = 0, disturb: bool = False) -> list[Round]:
        torch.manual_seed(0)
        task = Task(nn.Sequential(nn.Linear(4, 8), nn.Dropout(rate), nn.Linear(8, 3)))
        if disturb:
            torch.manual_seed(99)
        return play(task, inputs, targets, seed=seed)

    assert same(run(0.5), run(0.5, disturb=True))
    assert not same(run(0.5), run(0.0))


def test_dropout_leaves_the_global_generator_alone() -> None:
    task = Task(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)))
    before = torch.get_rng_state()
    play(task, *samples())
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_is_off_in_evaluation() -> None:
    inputs, targets = samples()
    task = Task(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.9), nn.Linear(8, 3)))
    task.gradient(task.x0, {}, inputs, targets)
    values = {task.evaluate(task.x0, task.buffers0, inputs, targets) for _ in range(3)}
    assert len(values) == 1


class Tied(nn.Module):
    """One matrix is both the embedding and, transposed, the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.classify = nn.Linear(4, 5, bias=False)
        self.classify.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classify(self.embed(x).mean(1))
        return scores


def test_tied_weights_are_one_parameter() -> None:
    torch.manual_seed(0)
    inputs, targets = torch.randint(5, (24, 3)), torch.randint(5, (24,))
    model = Tied()
    task = Task(model)
    assert task.names == ("embed.weight",)
    nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
    assert model.embed.weight.grad is not None
    _, gradient = task.gradient(task.x0, {}, inputs, targets)
    assert torch.allclose(gradient, model.embed.weight.grad.flatten())
    last = play(task, inputs, targets)[-1]
    trained: Any = task.module(last.server.x)
    assert trained.classify.weight is trained.embed.weight
    assert torch.equal(trained.embed.weight.flatten(), last.server.x)
    assert not torch.equal(last.server.x, task.x0)


def test_frozen_parameters_stay_and_do_not_travel() -> None:
    inputs, targets = samples()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].requires_grad_(False)
    task = Task(model)
    assert task.names == ("2.weight", "2.bias")
    assert len(task.x0) == 27
    last = play(task, inputs, targets)[-1]
    assert last.bytes_up == 3 * 27 * 4
    trained: Any = task.module(last.server.x, last.buffers)
    assert torch.equal(trained[0].weight, model[0].weight)
    assert not torch.equal(trained[2].weight, model[2].weight)
    outputs = trained(inputs)
    assert task.evaluate(last.server.x, last.buffers, inputs, targets)[0] == pytest.approx(
        nn.functional.cross_entropy(outputs, targets).item()
    )


def test_running_statistics_are_averaged() -> None:
    inputs, targets = samples()
    task = Task(nn.Sequential(nn.BatchNorm1d(4, momentum=0.5), nn.Linear(4, 3)))
    data = FederatedData.of_clients([(inputs[:8], targets[:8]), (inputs[8:], targets[8:])])
    local = Local(lr=0.1, steps=1, batching="full")
    (only,) = rounds(algorithm("fedavg"), task, data, total=1, sampler=Uniform(2), local=local)
    statistics = task.unpack(only.buffers)
    mean = 0.5 * inputs.mean(0)  # weighted by samples, as the models are
    assert torch.allclose(statistics["0.running_mean"], mean, atol=1e-6)
    assert int(statistics["0.num_batches_tracked"]) == 1
    variance = 0.5 + 0.5 * (8 * inputs[:8].var(0) + 16 * inputs[8:].var(0)) / 24
    assert torch.allclose(statistics["0.running_var"], variance, atol=1e-6)


class Masked(nn.Module):
    """A linear model with a constant of infinities."""

    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        mask = torch.tensor([0.0, 0.0, -math.inf])
        self.register_buffer("mask", mask, persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(x) + self.get_buffer("mask")
        return scores


def test_constants_stay_where_they_are() -> None:
    inputs, targets = samples(classes=2)
    task = Task(Masked(persistent=False))
    assert len(task.buffers0) == 0
    last = play(task, inputs, targets)[-1]
    assert len(last.delivered) == 3
    assert last.bytes_up == 3 * 15 * 4
    assert task.evaluate(last.server.x, last.buffers, inputs, targets)[0] < 5


def shared() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 3), nn.Identity(), nn.Identity())
    for part in model[1:]:
        part.register_buffer("seen", model[1]._buffers.get("seen", torch.zeros(3)))
    return model


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Masked(persistent=True), "'mask' is not finite.*persistent=False"),
        (shared, "'1.seen' and '2.seen' share one tensor"),
        (lambda: nn.LazyLinear(3), "'weight' has no shape yet"),
        (lambda: nn.Linear(4, 3).requires_grad_(False), "no trainable parameters"),
    ],
)
def test_what_cannot_work_is_said(make: Callable[[], nn.Module], says: str) -> None:
    with pytest.raises(UndriftError, match=says):
        Task(make())


def test_one_module_used_twice_is_fine() -> None:
    inputs, targets = samples()
    norm = nn.BatchNorm1d(4)
    task = Task(nn.Sequential(norm, nn.Linear(4, 4), norm, nn.Linear(4, 3)))
    assert len(task.buffers0) == 9
    last = play(task, inputs, targets)[-1]
    assert (
        int(task.unpack(last.buffers)["0.num_batches_tracked"]) == 12
    )  # 2 uses, 2 steps, 3 rounds


def test_a_notebook_shows_a_table_and_no_markup_of_names() -> None:
    def odd(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets)

    odd.__name__ = "<script>"
    page = Task(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), odd)._repr_html_()
    assert "<caption>Task</caption>" in page
    for shown in ("Sequential", "&lt;script&gt;", "12 parameters float32", "cpu", "5, averaged"):
        assert shown in page
    assert "<script" not in page
    assert "buffers" not in Task(nn.Linear(3, 2))._repr_html_()


def test_a_task_in_a_line() -> None:
    made = Task(nn.Linear(3, 2), dtype=torch.float64)
    assert repr(made) == "Task(Linear, cross_entropy, 8 parameters float64, cpu)"
    assert "MSELoss" in repr(Task(nn.Linear(3, 2), nn.MSELoss()))


@pytest.mark.parametrize("device", ["gpu", "cuda:99", torch.device("cuda:99")])
def test_a_device_that_is_not_there(device: str | torch.device) -> None:
    with pytest.raises(UndriftError, match=rf"device='{device}' cannot be used here: \w.*the CPU$"):
        Task(nn.Linear(2, 2), device=device)
