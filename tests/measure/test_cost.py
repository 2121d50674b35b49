"""Costs: what is declared is what is measured, and the papers' tables follow from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from undrift.algorithms import FedAvg, FedProx, Mime, MimeLite
from undrift.cli.cost import cost as command
from undrift.config import UndriftError
from undrift.core import Algorithm, Client, Part, RoundFacts, Struct, Vector
from undrift.data.federated import FederatedData
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import rounds
from undrift.federation.sampling import Uniform
from undrift.measure.cost import (
    RoundCost,
    Size,
    add,
    client_work,
    formula,
    forward_flops,
    messages,
    operations,
    server_work,
    storage,
    vector_work,
)
from undrift.models import MLP
from undrift.optim import SGDm
from undrift.papers.cost_tables import (
    ADJUSTMENTS,
    ALGORITHMS,
    OPTIMISERS,
    TABLES,
    WORKLOADS,
    Convention,
    markdown,
    model_size,
    round_flops,
    step_operations,
    table,
    text,
)
from undrift.parts import ServerOpt
from undrift.training.task import Task
from undrift.training.work import Local

NAMES = [
    "FedAvg()",
    "FedProx(mu=0.1)",
    "SCAFFOLD()",
    "SCAFFOLD(option=1)",
    "SCAFFOLDm()",
    "FedDyn(mu=0.02)",
    "AdaBest(mu=0.02, beta=0.96)",
    "AdaBest(mu=0.02, beta=0.96, scale='none')",
    "AdaBest(mu=0.02, beta=0.96, plateau=Plateau())",
    "FedNova(momentum=0.9)",
    "LocalOnly()",
    "FedGBO(SGDm())",
    "FedGBO(RMSProp())",
    "FedGBO(Adam())",
    "MFL(SGDm())",
    "MFL(Adam())",
    "MimeLite(RMSProp())",
    "MimeLite(Adam(), gradient='batch')",
    "Mime(SGDm())",
    "Mime(Adam())",
    "FedAdam()",
    "FedYogi()",
    "Krum(FedAvg(), f=0)",
    "Median(MFL(SGDm()))",
    "IDA(FedNova())",
    "LocalOpt(SCAFFOLD(), Adam(bias_correction=True))",
    "FedGLAD(FedAdam())",
    "FedGLAD(ServerOpt(Clip(Prox(Mime(RMSProp()), mu=0.1), norm=1.0), SGD(lr=0.5)))",
    "FedGLAD(AdaBest(mu=0.02, beta=0.96), groups='universal')",
    "FedDC(mu=0.1)",
    "FedDC(mu=0.1, duals='active')",
    "FedVARP()",
    "FedAU(cut=50)",
    "SAM(SCAFFOLD(), rho=0.1)",
    "FedExP(FedAvg())",
    "FedHyper(FedAvg())",
    "FedInit(FedAvg(), beta=0.1)",
    "DeltaSGD(FedAvg())",
]


def problem() -> tuple[Task, FederatedData]:
    torch.manual_seed(0)
    sizes = (5, 8, 6, 7)
    clients = [(torch.randn(n, 3).double(), torch.randint(2, (n,))) for n in sizes]
    return Task(nn.Linear(3, 2).double()), FederatedData.of_clients(clients)


# messages and memory


@pytest.mark.parametrize("name", NAMES)
def test_declared_messages_are_the_bytes_of_a_run(name: str) -> None:
    made, (task, data) = algorithm(name), problem()
    declared = messages(made, len(task.x0))
    local = Local(lr=0.05, batch_size=4, steps=2)
    for round in rounds(made, task, data, total=2, sampler=Uniform(3), local=local):
        assert len(round.delivered) == 3
        assert round.bytes_down == 3 * declared.down.bytes(width=8)
        assert round.bytes_up == 3 * declared.up.bytes(width=8)


@pytest.mark.parametrize("name", NAMES)
def test_parts_send_nothing(name: str) -> None:
    made = algorithm(name)
    if isinstance(made, Part):
        assert messages(made, 100) == messages(made.core, 100)


@pytest.mark.parametrize("name", NAMES)
def test_storage_is_what_a_run_keeps(name: str) -> None:
    made, (task, data) = algorithm(name), problem()
    task.groups = (len(task.x0),)
    *_, last = rounds(made, task, data, total=1, sampler=Uniform(3))
    kept = storage(made, len(task.x0))
    assert Size.of(last.server) == kept.server
    assert all(Size.of(me) == kept.client for me in last.clients.values())


@pytest.mark.parametrize(
    ("name", "down", "up", "client", "server", "gradients"),
    [
        ("fedcm", (2, 0), (1, 0), (0, 0), (3, 0), 1),
        ("SCAFFOLD-M", (3, 0), (2, 0), (1, 0), (4, 0), 1),
        ("fedacg", (1, 0), (1, 0), (0, 0), (3, 1), 1),
        ("fedgamma", (2, 0), (2, 0), (1, 0), (3, 0), 2),
        ("fedspeed", (1, 0), (1, 0), (1, 0), (3, 0), 2),
        ("feddc", (2, 0), (2, 0), (2, 0), (4, 0), 1),
        ("fedvarp", (1, 0), (1, 0), (1, 0), (3, 0), 1),
        ("fedau", (1, 0), (1, 1), (0, 2), (2, 0), 1),
        ("scaffnew", (1, 0), (1, 0), (2, 1), (2, 0), 1),
        ("fedhyper", (1, 0), (1, 0), (0, 0), (3, 1), 1),
        ("fedinit", (1, 0), (1, 0), (1, 0), (2, 0), 1),
        ("deltasgd", (1, 0), (1, 0), (0, 0), (2, 0), 2),
        ("SAM(Mime())", (3, 0), (2, 0), (0, 0), (3, 0), 4),
    ],
)
def test_costs_of_the_family(
    name: str,
    down: tuple[int, int],
    up: tuple[int, int],
    client: tuple[int, int],
    server: tuple[int, int],
    gradients: int,
) -> None:
    """Vectors and numbers that are sent and kept, and gradients a step."""
    made = algorithm(name)
    sent, kept = messages(made, 10), storage(made, 10)
    found = [size.multiples(10) for size in (sent.down, sent.up, kept.client, kept.server)]
    assert found == [down, up, client, server]
    assert client_work(made)["Kg"] == gradients


def test_sizes() -> None:
    sent = messages(algorithm("AdaBest()"), 10)
    assert sent.down.vectors == (("x", 10),)
    assert sent.down.numbers == 1
    assert sent.down.multiples(10) == (1, 1)
    assert sent.down.bytes() == 48
    assert messages(algorithm("Mime(Adam())"), 10).down.multiples(10) == (4, 0)


@dataclass(frozen=True)
class Peeks(FedAvg):
    """Looks at values on the client, which is forbidden."""

    def upload(
        self, local: Struct, down: Struct, me: Struct, client: Client
    ) -> tuple[Struct, Struct]:
        delta = down.x - local.y
        return Struct(delta=delta if float(delta.norm()) < 1 else 0 * delta), me


def test_clients_that_look_at_values_are_found_out() -> None:
    with pytest.raises(RuntimeError, match="meta"):
        messages(Peeks(), 10)


# operations


@dataclass(frozen=True)
class Busy(Algorithm):
    """Does a known amount of everything."""

    def move(self, local: Struct, d: Vector, down: Struct, client: Client) -> Struct:
        y = local.y.clone()
        y.add_(d, alpha=-client.lr)  # s m
        y = y.lerp(d, 0.5) + d.addcmul(d, d)  # 2s m, s 2m, s
        y = y + (d**2) / (1 - d)  # m, s, m, s
        y = y.view(2, -1).reshape(-1).sign() + d.sqrt().abs()  # 3r s
        return local | Struct(y=y * (d @ d) * d.norm() + d.mean())  # 2m, ms, msr, s, s

    def update(self, s: Struct, mean: Struct, round: RoundFacts) -> tuple[Vector, Struct]:
        return mean.delta, Struct(xbar=s.x - mean.delta, much=float(mean.delta.max()))


def test_every_operation_is_counted() -> None:
    assert client_work(Busy()) == {"Kg": 1, "Kns": 12, "Knm": 10, "Knr": 3, "ns": 1}
    assert server_work(Busy()) == {"pns": 1, "pnm": 1, "ns": 1, "nr": 1}


@pytest.mark.parametrize(
    ("name", "client", "server"),
    [
        ("FedAvg()", "K(g + ns + nm) + ns", "p(ns + nm) + ns"),
        ("FedProx()", "K(g + 3ns + 2nm) + ns", "p(ns + nm) + ns"),
        ("SCAFFOLD(option=1)", "K(g + 3ns + nm) + G + 2ns", "p(2ns + 2nm) + ns + nm"),
        ("Mime(SGDm())", "K(2g + 4ns + 3nm) + G + ns", "p(2ns + 2nm) + ns + 2nm"),
        ("MimeLite(gradient='batch')", "K(g + 2ns + 3nm) + g + ns", "p(2ns + 2nm) + ns + 2nm"),
        ("Krum(FedAvg())", "K(g + ns + nm) + ns", "p²(2ns + nm) + p(ns + nm) + ns"),
        ("Median(FedAvg())", "K(g + ns + nm) + ns", "pnr + 3ns + nm"),
        ("TrimmedMean(FedAvg(), 0.34)", "K(g + ns + nm) + ns", "p(0.32ns + nr) + ns + nm"),
        ("MFL(Adam())", "K(g + 4ns + 7nm + nr) + ns", "p(3ns + 3nm) - ns"),
        ("FedGLAD(FedAvg())", "K(g + ns + nm) + ns", "p(2ns + 2nm) + 2ns + 2nm + 2nr"),
    ],
)
def test_operations(name: str, client: str, server: str) -> None:
    counted = operations(algorithm(name))
    assert formula(counted.client) == client
    assert formula(counted.server) == server
    assert counted.per_step == vector_work(counted.client, "K")


def test_sums_of_costs() -> None:
    assert add({"Kns": 2, "ns": 1}, {"ns": -1, "nm": 0.5}) == {"Kns": 2, "nm": 0.5}
    assert formula({"ns": -1, "Kg": 2}) == "2Kg - ns"
    assert formula({}) == "0"


# floating point operations


@pytest.mark.parametrize(
    ("model", "example", "products"),
    [
        (MLP().build(784, 10), torch.zeros(3, 784), 784 * 100 + 100 * 100 + 100 * 10),
        (nn.Conv2d(2, 4, 3, groups=2), torch.zeros(3, 2, 7, 7), 4 * 5 * 5 * 9),
        (nn.GRU(3, 4, 2, batch_first=True), torch.zeros(3, 5, 3), 5 * 12 * (3 + 4 + 4 + 4)),
        (nn.LSTM(3, 4, batch_first=True), torch.zeros(3, 5, 3), 5 * 16 * (3 + 4)),
        (
            nn.LSTM(3, 4, batch_first=True, bidirectional=True).double(),
            torch.zeros(3, 5, 3).double(),
            2 * 5 * 16 * (3 + 4),
        ),
        (
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
            torch.zeros(3, 5, 8),
            5 * (4 * 8 * 8 + 2 * 8 * 16) + 2 * 5 * 5 * 8,
        ),
    ],
)
def test_forward_flops(model: nn.Module, example: Tensor, products: int) -> None:
    assert forward_flops(model, example) == 2 * products


def test_forward_flops_leaves_no_trace() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    draws = torch.get_rng_state()
    assert forward_flops(model, torch.ones(2, 3)) == 2 * (3 * 4 + 4)
    assert model.training
    assert torch.equal(draws, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_flops_of_rounds() -> None:
    task, data = problem()
    n, forward = 8, 2 * 3 * 2

    def flops(made: Algorithm, *numbers: int) -> int:
        return RoundCost.of(made, task, data.inputs[:1]).flops(*numbers)

    assert flops(FedAvg(), 10, 40, 25) == 3 * forward * 40 + 10 * 2 * n
    assert flops(FedAvg(), 10, 40, 25, 2) == 3 * forward * 40 + 10 * 2 * n + 2 * n
    assert flops(FedProx(), 10, 40, 25) == 3 * forward * 40 + 10 * 5 * n
    assert flops(MimeLite(SGDm()), 10, 40, 25) == 3 * forward * (40 + 25) + 10 * 5 * n
    assert flops(Mime(SGDm()), 10, 40, 25) == 3 * forward * (2 * 40 + 25) + 10 * 7 * n
    batch = MimeLite(SGDm(), gradient="batch")
    assert flops(batch, 10, 40, 25, 2) == 3 * forward * (40 + 2 * 4) + 10 * 5 * n + 2 * n
    assert flops(FedAvg(), 0, 0, 0) == 0


# the tables of AdaBest


def printed(kind: str) -> dict[str, Any]:
    return {str(row["algorithm"]): row["printed"] for row in table(kind).rows}


def test_adabest_table_4() -> None:
    assert printed("adabest-4") == {
        "FedAvg": "K(g + ns + nm)",
        "SCAFFOLD/m": "K(g + ns + nm) + 2Kns + 2n(s + m)",
        "FedDyn": "K(g + ns + nm) + 3Kns + Knm + n(s + m)",
        "AdaBest": "K(g + ns + nm) + Kns + n(s + m)",
    }


def test_adabest_table_5() -> None:
    assert printed("adabest-5") == {
        "FedAvg": "pns",
        "SCAFFOLD/m": "pns + 2ns + 2nm",
        "FedDyn": "pns + 3ns + nm",
        "AdaBest": "pns + 2ns + nm",
    }


def test_local_steps_of_table_4_need_no_adjustment() -> None:
    assert not any(
        term[0] == "K" for a in ADJUSTMENTS if "adabest-4" in a.tables for term in a.cost
    )


def test_the_shape_of_algorithms_does_not_matter_to_the_tables() -> None:
    for name, same in (("AdaBest", "AdaBest(form='box')"), ("FedDyn", "FedDyn(scale='oracle')")):
        assert operations(algorithm(same)) == operations(ALGORITHMS[name])


def test_adabest_traffic() -> None:
    rows = {row["algorithm"]: (row["down"], row["up"]) for row in table("adabest-traffic").rows}
    assert rows.pop("SCAFFOLD") == (2, 2)
    assert rows.pop("SCAFFOLD/m") == (2, 1)  # "1.5 n" is the mean of both ways
    assert set(rows.values()) == {(1, 1)}


# the tables of FedGBO


def test_fedgbo_table_2() -> None:
    rows = {str(row.pop("algorithm")): list(row.values()) for row in table("fedgbo-2").rows}
    assert rows == {
        "FedAvg": ["x", "x", "no", "|x|", "1/1", "1/1", "1/1"],
        "FedOpt": ["x", "x", "no", "|x|", "1/1", "1/1", "1/1"],
        "MFL": ["x, s", "x, s", "no", "|x| + |s|", "2/2", "2/2", "3/3"],
        "MimeLite": ["x, s", "x, ∇f", "yes", "2|x| + |s|", "2/2", "2/2", "3/2"],
        "FedGBO": ["x, s", "x", "no", "|x| + |s|", "2/1", "2/1", "3/1"],
    }


@pytest.mark.parametrize(
    ("convention", "rmsprop", "sgdm", "adam"),
    [
        ("paper", (5, 5), (5, 8), (8, 11)),
        ("prose", (5, 8), (4, 4), (8, 11)),
        ("exact_ops", (5, 9), (5, 5), (8, 12)),
    ],
)
def test_fedgbo_table_9(convention: Convention, rmsprop: Any, sgdm: Any, adam: Any) -> None:
    found = {
        str(r["optimiser"]): (r["fixed"], r["moving"]) for r in table("fedgbo-9", convention).rows
    }
    assert found == {"RMSProp": rmsprop, "SGDm": sgdm, "Adam": adam}


def test_plain_sgd_takes_two_operations() -> None:
    assert operations(FedAvg()).per_step == 2
    for optimiser in OPTIMISERS.values():
        assert client_work(ServerOpt(FedAvg(), optimiser)) == client_work(FedAvg())


def test_fixed_counts_are_ours() -> None:
    for optimiser in OPTIMISERS:
        exact = step_operations("fixed", optimiser, "exact_ops")
        assert step_operations("fixed", optimiser, "paper") == exact


def test_forward_passes_as_thop_counts_them() -> None:
    assert {name: model_size(workload) for name, workload in WORKLOADS.items()} == {
        "CIFAR100": (1_250_852, 5_163_072),
        "Sent140": (10_002, 10_000),
        "FEMNIST": (870_334, 3_305_280),
        "Shakespeare": (162_887, 12_318_592),
    }


TABLE_4 = """
CIFAR100     FedGBO    50.2    50.2    50.6
CIFAR100     MimeLite  65.7    65.7    66.1
CIFAR100     MFL       50.2    50.6    50.9
CIFAR100     SGD       49.8
Sent140      FedGBO    0.0290  0.0290  0.0320
Sent140      MimeLite  0.0350  0.0350  0.0365
Sent140      MFL       0.0290  0.0320  0.0350
Sent140      SGD       0.0260
FEMNIST      FedGBO    32.2    32.2    32.4
FEMNIST      MimeLite  49.0    49.0    49.3
FEMNIST      MFL       32.2    32.4    32.7
FEMNIST      SGD       31.9
Shakespeare  FedGBO    118     118     118
Shakespeare  MimeLite  2180    2180    2180
Shakespeare  MFL       118     118     118
Shakespeare  SGD       118
"""

TABLE_10 = """
CIFAR100     FedGBO    251     251     253
CIFAR100     MimeLite  266     266     268
CIFAR100     MFL       251     253     255
CIFAR100     SGD       249
Sent140      FedGBO    0.145   0.145   0.160
Sent140      MimeLite  0.150   0.150   0.165
Sent140      MFL       0.145   0.160   0.175
Sent140      SGD       0.130
FEMNIST      FedGBO    161     161     162
FEMNIST      MimeLite  178     178     179
FEMNIST      MFL       161     162     163
FEMNIST      SGD       160
Shakespeare  FedGBO    592     592     592
Shakespeare  MimeLite  2650    2650    2650
Shakespeare  MFL       592     592     592
Shakespeare  SGD       591
"""


def entries(kind: str) -> dict[tuple[str, str, str], str]:
    """A regenerated table as a paper prints it, by task, algorithm and optimiser."""
    found = {}
    for row in table(kind).rows:
        task, name = str(row["task"]), str(row["algorithm"])
        for column in (*OPTIMISERS, "SGD"):
            if row[column] != "":
                found[task, name.replace("FedAvg, FedOpt", "SGD"), column] = text(row[column])
    return found


def read(printed: str) -> dict[tuple[str, str, str], str]:
    found: dict[tuple[str, str, str], str] = {}
    for line in printed.strip().splitlines():
        task, name, *values = line.split()
        columns = ["SGD"] if name == "SGD" else list(OPTIMISERS)
        found |= {(task, name, c): v for c, v in zip(columns, values, strict=True)}
    return found


def test_fedgbo_tables_4_and_10() -> None:
    missed: dict[tuple[str, ...], tuple[str, str]] = {}
    compared = 0
    for kind, data in (("fedgbo-4", TABLE_4), ("fedgbo-10", TABLE_10)):
        ours, theirs = entries(kind), read(data)
        assert ours.keys() == theirs.keys()
        compared += len(theirs)
        missed |= {(kind, *k): (theirs[k], ours[k]) for k in theirs if theirs[k] != ours[k]}
    assert compared == 80
    assert missed == {
        ("fedgbo-4", "Sent140", "MimeLite", "RMSProp"): ("0.0350", "0.0335"),
        ("fedgbo-4", "Sent140", "MimeLite", "SGDm"): ("0.0350", "0.0335"),
    }


def test_server_optimisers_cost_clients_nothing() -> None:
    for workload in WORKLOADS.values():
        made = ServerOpt(FedAvg(), SGDm())
        assert round_flops(made, 2, workload, 10) == round_flops(FedAvg(), 2, workload, 10)


# rendering


@pytest.mark.parametrize(
    ("value", "shown"),
    [("x", "x"), (3, "3"), (2.0, "2"), (1.5, "1.50"), (0.02904, "0.0290"), (2183.7, "2180")],
)
def test_cells(value: Any, shown: str) -> None:
    assert text(value) == shown


def test_markdown() -> None:
    assert markdown([{"a": "|x|", "b": 1}]) == "| a | b |\n| --- | --- |\n| \\|x\\| | 1 |"


def test_unknown_table() -> None:
    with pytest.raises(UndriftError, match="did you mean 'adabest-4'"):
        table("adabest4")


@pytest.mark.parametrize("kind", TABLES)
def test_rows_have_the_same_columns(kind: str) -> None:
    rows = table(kind).rows
    assert all(list(row) == list(rows[0]) for row in rows)


# the command


def test_command_shows_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    command()
    shown = capsys.readouterr().out
    assert "K(g + ns + nm) + Kns + n(s + m)" in shown
    assert "2|x| + |s|" in shown
    command(markdown_=True)
    assert "| AdaBest | pns + 2ns + nm | p(ns + nm) + 3ns + nm |" in capsys.readouterr().out
    command(json_=True)
    assert [one["title"][:6] for one in json.loads(capsys.readouterr().out)].count("FedGBO") == 4


def test_command_shows_algorithms(capsys: pytest.CaptureFixture[str]) -> None:
    command("FedGLAD(fedadam)", "adabest", parameters=91226, json_=True)
    glad, adabest = json.loads(capsys.readouterr().out)
    assert glad["algorithm"] == "FedGLAD(ServerOpt(FedAvg(), Adam(lr=0.01)))"
    assert glad["bytes_down"] == 4 * 91226
    assert adabest["down"] == {"vectors": 1, "numbers": 1}
    assert adabest["client"] == {"Kg": 1, "Kns": 2, "Knm": 1, "ns": 2, "nm": 2}
    command("adabest")
    assert "n + 1" in capsys.readouterr().out
    command("mime", markdown_=True)
    assert "| Mime(SGDm()) | 3n | 2n | 0 | 3n |" in capsys.readouterr().out


def test_command_refuses_a_model_of_nothing() -> None:
    with pytest.raises(UndriftError, match="--parameters 0: must be"):
        command("adabest", parameters=0)


def test_what_needs_single_uploads_cannot_be_aggregated_securely(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command("adabest", "mime", "FedGLAD(Krum(fedavg))", json_=True)
    assert [one["secagg"] for one in json.loads(capsys.readouterr().out)] == ["yes", "yes", "no"]
