"""Partitions: nobody shares a sample, nobody goes without, and the shares are as described."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.config import UndriftError
from undrift.config.expressions import parse
from undrift.data.federated import FederatedData
from undrift.data.partition.dealing import quotas, reassign, round_shares
from undrift.data.partition.partitions import (
    IID,
    PARTITIONS,
    Dirichlet,
    DirichletTotal,
    Natural,
    Pachinko,
    Shards,
    federate,
    held_out,
)
from undrift.data.source import Source
from undrift.data.sources import Digits, Synthetic

ALPHAS = (1e-320, 1e-6, 0.3, 100.0, 1e308)
SIGMAS = (0.0, 0.3, 10.0)


def rng(*seed):
    return np.random.default_rng(seed)


def counts(parts, labels):
    """Samples of each class (columns) at each client (rows)."""
    return np.array([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts])


@st.composite
def problems(draw):
    """Labels with a few classes, some of them absent, and no more clients than samples."""
    labels = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=60)))
    return labels, draw(st.integers(1, len(labels))), draw(st.integers(0, 2**32))


def any_partition(clients):
    alpha, sigma = st.sampled_from(ALPHAS), st.sampled_from(SIGMAS)
    return st.one_of(
        st.builds(IID, st.just(clients), sigma=sigma),
        st.just(IID(clients, stratified=True)),
        st.builds(Dirichlet, st.just(clients), alpha, sigma=sigma),
        st.builds(DirichletTotal, st.just(clients), alpha),
        st.builds(Pachinko, st.just(clients), alpha, alpha),
        st.just(Shards(clients, shards=1)),
    )


@settings(deadline=None, derandomize=True, max_examples=150)
@given(problems(), st.data())
def test_is_a_partition(problem, data):
    labels, clients, seed = problem
    partition = data.draw(any_partition(clients))
    coarse = np.array([0, 0, 1, 1, 1, 2, 2])
    parts = partition.split(labels, rng(seed), coarse=coarse)
    sizes = [len(part) for part in parts]
    samples = np.concatenate(parts)

    assert len(parts) == clients
    assert min(sizes) > 0
    assert len(np.unique(samples)) == len(samples)
    assert np.isin(samples, np.arange(len(labels))).all()
    even = len(labels) // clients
    if isinstance(partition, DirichletTotal):
        assert sizes == [even] * (clients - 1) + [len(labels) - even * (clients - 1)]
    elif getattr(partition, "sigma", 0):
        assert sum(sizes) == len(labels)
    else:
        assert sizes == [even] * clients

    again = partition.split(labels, rng(seed), coarse=coarse)
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))


@settings(deadline=None, derandomize=True, max_examples=50)
@given(
    st.integers(1, 200), st.sampled_from((0.0, 0.3, 3.0, 10.0)), st.integers(0, 2**32), st.data()
)
def test_quotas(clients, sigma, seed, data):
    samples = data.draw(st.integers(clients, 10 * clients))
    sizes = quotas(rng(seed), samples, clients, sigma)
    assert sizes.min() >= 1
    assert sizes.sum() == (samples if sigma else samples // clients * clients)


def test_log_normal_quotas_have_the_asked_spread_and_the_first_client_takes_the_remainder():
    samples, clients = 1_000_000, 1000
    sizes = quotas(rng(0), samples, clients, 0.3)
    assert np.log(sizes[1:]).std() == pytest.approx(0.3, rel=0.1)
    z = np.exp(0.3 * rng(0).standard_normal(clients))
    whole = np.floor(z * samples / z.sum())
    assert np.array_equal(sizes[1:], whole[1:])
    assert sizes[0] == whole[0] + samples - whole.sum()


@pytest.mark.parametrize(
    "partition", [IID(10), Dirichlet(10, 1e6), DirichletTotal(10, 1e8)], ids=str
)
def test_no_skew_means_global_proportions(partition):
    labels = np.repeat([0, 1, 2], [6000, 3000, 1000])
    table = counts(partition.split(labels, rng(0)), labels)
    assert table == pytest.approx(np.tile([600, 300, 100], (10, 1)), abs=100)


@pytest.mark.parametrize(
    "partition", [Dirichlet(20, 1e-6), DirichletTotal(20, 1e-6), Shards(20, 1)], ids=str
)
def test_full_skew_means_few_classes(partition):
    labels = np.repeat(np.arange(10), 200)
    table = counts(partition.split(labels, rng(0)), labels)
    assert table.max(axis=1).mean() > 60  # of 100 samples; without skew it would be about 15


def test_stratified_is_exact_where_classes_divide():
    labels = rng(0).permutation(np.repeat(np.arange(5), 20))
    table = counts(IID(10, stratified=True).split(labels, rng(1)), labels)
    assert (table == 2).all()


def test_shards_hold_at_most_so_many_classes():
    labels = rng(0).permutation(np.repeat(np.arange(10), 60))
    table = counts(Shards(10, shards=2).split(labels, rng(1)), labels)
    assert ((table > 0).sum(axis=1) <= 2).all()
    assert (table.sum(axis=1) == 60).all()


def test_shards_leave_out_random_samples():
    labels = np.repeat([0, 1], 7)
    missing = [
        sorted(set(range(14)) - set(np.concatenate(Shards(2, 2).split(labels, rng(seed)))))
        for seed in range(50)
    ]
    assert all(len(two) == 2 for two in missing)
    assert set(np.concatenate(missing).tolist()) == set(range(14))


def one_by_one(labels, rng, clients, alpha, sigma):
    """Class counts of `Dirichlet`, drawn a sample at a time."""
    stock, room = np.bincount(labels), quotas(rng, len(labels), clients, sigma)
    wishes = rng.dirichlet(np.full(len(stock), alpha), clients)
    table = np.zeros((clients, len(stock)), dtype=int)
    while room.any():
        client = rng.choice(np.flatnonzero(room))
        chance = wishes[client] * (stock > 0)
        label = rng.choice(len(stock), p=chance / chance.sum())
        table[client, label] += 1
        stock[label] -= 1
        room[client] -= 1
    return table


def coarse_then_fine(labels, rng, clients, coarse, alpha, beta):
    """Class counts of `Pachinko`, drawn a sample at a time."""
    stock = np.bincount(labels)
    table = np.zeros((clients, len(stock)), dtype=int)
    kinds = range(coarse.max() + 1)
    for client in range(clients):
        wishes = rng.dirichlet(np.full(len(kinds), alpha))
        fine = [rng.dirichlet(np.full((coarse == kind).sum(), beta)) for kind in kinds]
        for _ in range(len(labels) // clients):
            chance = wishes * [stock[coarse == kind].sum() > 0 for kind in kinds]
            kind = rng.choice(kinds, p=chance / chance.sum())
            members = np.flatnonzero(coarse == kind)
            chance = fine[kind] * (stock[members] > 0)
            label = rng.choice(members, p=chance / chance.sum())
            table[client, label] += 1
            stock[label] -= 1
    return table


def assert_same_distribution(ones, others):
    """First and second moments and the chances of 0 agree, within 4.5 standard errors."""

    def statistics(tables):
        flat = np.array(tables, dtype=float).reshape(len(tables), -1)
        products = flat[:, :, None] * flat[:, None, :]
        return np.hstack([flat, products.reshape(len(flat), -1), flat == 0])

    one, other = statistics(ones), statistics(others)
    error = np.sqrt(one.var(axis=0) / len(one) + other.var(axis=0) / len(other))
    assert (np.abs(one.mean(axis=0) - other.mean(axis=0)) <= 4.5 * error + 1e-12).all()


SEEDS = range(700)


@pytest.mark.parametrize(("sizes", "sigma"), [([3, 8, 14], 0.0), ([4, 4, 16], 2.0)])
def test_dirichlet_is_distributed_like_its_process(sizes, sigma):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    partition = Dirichlet(4, 0.5, sigma=sigma)
    assert_same_distribution(
        [counts(partition.split(labels, rng(1, seed)), labels) for seed in SEEDS],
        [one_by_one(labels, rng(2, seed), 4, 0.5, sigma) for seed in SEEDS],
    )


def test_pachinko_is_distributed_like_its_process():
    coarse = np.array([0, 1, 0, 1])
    labels = np.repeat(np.arange(4), [1, 2, 11, 10])  # 0 and 1 run out while their kind does not
    partition = Pachinko(3, 2.0, 0.3)
    assert_same_distribution(
        [counts(partition.split(labels, rng(1, seed), coarse=coarse), labels) for seed in SEEDS],
        [coarse_then_fine(labels, rng(2, seed), 3, coarse, 2.0, 0.3) for seed in SEEDS],
    )


def test_every_sample_of_a_class_is_as_likely():
    labels = np.array([0, 0, 0, 0, 1, 1, 1])
    parts = [Dirichlet(2, 1.0).split(labels, rng(seed))[0] for seed in range(400)]
    often = np.bincount(np.concatenate(parts), minlength=7)
    assert often == pytest.approx(np.full(7, 400 * 3 / 7), rel=0.2)


def test_round_shares_by_hand():
    shares = np.array([[0.5, 0.25, 0.125, 0.125], [0.0, 0.125, 0.125, 0.75], [1.0, 0.0, 0.0, 0.0]])
    # times 12: 6, 3, 1.5, 1.5; halves become 2, and then there is room for 1 of the last class
    assert round_shares(shares, 12).tolist() == [[6, 3, 2, 1], [0, 2, 2, 8], [12, 0, 0, 0]]
    assert round_shares(np.array([[0.25, 0.25, 0.5]]), 10).tolist() == [[2, 2, 6]]


def test_reassign_by_hand():
    # class 0 has 3 of 6. The lacking 3 come from stocks of 4, 10 and 20: ⌈3·4/34⌉ = 1 of class 2,
    # ⌈3·10/34⌉ = 1 of class 1, and ⌈3·20/34⌉ = 2 of class 3, but only 1 is still missing
    taken = reassign(np.array([6, 3, 2, 1]), np.array([3, 10, 4, 20]))
    assert taken.tolist() == [3, 1 + 3, 1 + 2, 1 + 1]
    # class 1 has run out by the time it is asked: it gave all to class 0
    taken = reassign(np.array([4, 1, 0]), np.array([0, 1, 5]))
    assert taken.tolist() == [0, 1, 4]
    # equal stocks give in the order of the classes
    taken = reassign(np.array([1, 0, 0]), np.array([0, 2, 2]))
    assert taken.tolist() == [0, 1, 0]


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6))
def test_reassign_gives_what_was_asked_in_total(pairs):
    wanted, stock = np.array(pairs).T
    wanted[-1] = 0
    while wanted.sum() > stock.sum():
        wanted //= 2
    taken = reassign(wanted, stock)
    assert taken.sum() == wanted.sum()
    assert ((taken >= 0) & (taken <= stock)).all()
    assert (taken >= np.minimum(wanted, stock))[: np.argmax(wanted > stock) + 1].all()


def test_natural_follows_the_owners():
    owners = np.array([7, 3, 7, 9, 3])
    parts = Natural().split(np.zeros(5, dtype=int), rng(0), owners)
    assert [part.tolist() for part in parts] == [[1, 4], [0, 2], [3]]


def test_held_out():
    parts = [np.array([i]) for i in range(110)]
    training, validation = held_out(parts, rng(0))
    assert (len(training), len(validation)) == (100, 10)
    assert sorted(int(part[0]) for part in training + validation) == list(range(110))
    assert [len(half) for half in held_out(parts, rng(0), count=109)] == [1, 109]
    assert [len(half) for half in held_out(parts[:2], rng(0))] == [1, 1]


@pytest.mark.parametrize("count", [0, 3, 4])
def test_held_out_refuses(count):
    with pytest.raises(UndriftError, match=rf"held_out\(count={count}\): .* there are 3 clients"):
        held_out([np.array([0])] * 3, rng(0), count=count)


def test_clients_keep_their_names():
    x, y = torch.zeros(8, 2), torch.zeros(8, dtype=torch.long)
    owners = np.array(["H07", "H01", "H10", "H02"] * 2)
    source = Source(x, y, x, y, classes=1, client_ids=owners, note="as it was")
    data = federate(source, Natural(), seed=0)
    assert data.client_names == ("H01", "H02", "H07", "H10")
    assert data.note == "as it was"
    assert data.to("cpu").client_names == data.client_names
    for seed in range(5):
        some = federate(source, Natural(), seed, validation=2)
        assert len(some.client_names) == 2
        for i, name in enumerate(some.client_names):
            assert set(owners[some.rows(i)]) == {name}
        assert set(owners[np.concatenate(some.held_out)]).isdisjoint(some.client_names)
    assert federate(source, IID(2), seed=0).client_names is None
    numbers = Source(x, y, x, y, classes=1, client_ids=np.arange(8)[::-1] + 5)
    assert federate(numbers, Natural(), seed=0).client_names[:2] == ("5", "6")


def test_federate():
    data = federate(Digits(), Dirichlet(10, 0.3), seed=3)
    assert len(data) == 10
    assert data.sizes.tolist() == [143] * 10
    assert len(data.test_targets) == 360
    assert np.array_equal(federate(Digits(), Dirichlet(10, 0.3), seed=3).order, data.order)
    assert not np.array_equal(federate(Digits(), Dirichlet(10, 0.3), seed=4).order, data.order)


def test_federate_natural_owners_and_coarse_labels():
    synthetic = Synthetic(clients=4, samples=20)
    assert federate(synthetic, Natural(), seed=0).sizes.tolist() == [16] * 4
    x, y = torch.zeros(8, 2), torch.tensor([0, 1, 2, 3] * 2)
    own = Source(x, y, x, y, classes=4, coarse=np.array([0, 0, 1, 1]))
    assert federate(own, Pachinko(2), seed=0).sizes.tolist() == [4, 4]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dirichlet(10, 0), r"Dirichlet\(alpha=0\): alpha must be a number > 0"),
        (lambda: DirichletTotal(10, float("inf")), r"DirichletTotal\(alpha=inf\): .* < inf"),
        (lambda: IID(0), r"IID\(clients=0\): clients must be a whole number >= 1"),
        (lambda: Shards(3, shards=0), r"Shards\(shards=0\)"),
        (lambda: IID(3, sigma=-1), r"IID\(sigma=-1\)"),
        (lambda: IID(3, sigma=0.3, stratified=True), "stratified split needs sigma=0"),
    ],
)
def test_refuses_bad_parameters(make, message):
    with pytest.raises(UndriftError, match=message):
        make()


LABELS = np.arange(10) % 3


@pytest.mark.parametrize(
    ("partition", "labels", "message"),
    [
        (
            IID(11),
            LABELS,
            r"IID\(clients=11\): 10 samples are too few for 11 clients; use at most 10",
        ),
        (Dirichlet(11, 0.3), LABELS, "use at most 10 clients"),
        (DirichletTotal(11, 0.3), LABELS, "use at most 10 clients"),
        (Shards(6, 2), LABELS, "use at most 5 clients"),
        (Natural(), LABELS, "these data have no owners"),
        (Pachinko(2), LABELS, "these data have no coarse labels"),
        (
            Dirichlet(2, 0.3),
            LABELS / 2,
            r"the labels are float64 of shape \(10,\); use IID\(clients=2\)",
        ),
        (Shards(2), np.zeros((10, 4), dtype=int), r"of shape \(10, 4\)"),
    ],
)
def test_refuses_data_that_do_not_fit(partition, labels, message):
    with pytest.raises(UndriftError, match=message):
        partition.split(labels, rng(0))


def test_refuses_owners_and_coarse_labels_that_do_not_fit():
    with pytest.raises(UndriftError, match="9 owners for 10 samples"):
        Natural().split(LABELS, rng(0), owners=np.zeros(9))
    with pytest.raises(UndriftError, match="label 2 has no coarse label; coarse lists only 2"):
        Pachinko(2).split(LABELS, rng(0), coarse=np.array([0, 1]))


@pytest.mark.parametrize(
    "text",
    [
        "IID(clients=3)",
        "Dirichlet(clients=3, alpha=0.3, sigma=0.3)",
        "Natural()",
        "Shards(clients=3, shards=2)",
    ],
)
def test_prints_as_the_text_that_makes_it(text):
    assert repr(parse(text, PARTITIONS, "partition")) == text


@pytest.mark.parametrize("kind", [Dirichlet, DirichletTotal])
def test_thousands_of_clients(kind):
    labels = rng(0).integers(10, size=200_000)
    parts = kind(2000, 0.1).split(labels, rng(1))
    assert len(parts) == 2000
    assert sum(map(len, parts)) == len(labels)


def test_federated_data_in_a_line():
    made = federate(Digits(), Dirichlet(clients=20, alpha=0.1, sigma=0.3), seed=0, validation=2)
    sizes = f"{made.sizes.min()} to {made.sizes.max()}"
    held = f"{sum(map(len, made.held_out))} samples held out"
    assert repr(made) == (
        f"FederatedData(18 clients with {sizes} samples, inputs float32 of shape (64,), {held}, "
        "360 to test on)"
    )
    even = federate(Digits(), IID(clients=20), seed=0)
    assert repr(even).startswith("FederatedData(20 clients with 71 samples, inputs")
    nobody = FederatedData.split(([[1.0]], [0]), ([[1.0]], [0]), [])
    assert repr(nobody).startswith("FederatedData(0 clients with no samples, inputs")


def test_federated_data_in_a_notebook():
    made = federate(Digits(), Dirichlet(clients=20, alpha=0.1), seed=0, validation=2)
    page = replace(made, note="<script>")._repr_html_()
    cells = re.findall("<t[hd][^>]*>([^<]*)</t[hd]>", page)
    assert dict(zip(cells[::2], cells[1::2], strict=True)) == {
        "clients": "18",
        "samples per client (min, median, max)": "71, 71, 71",
        "inputs": "float32 of shape (64,)",
        "classes": "10",
        "validation samples": "142",
        "test samples": "360",
    }
    assert "<p>&lt;script&gt;</p>" in page
    nobody = FederatedData.split(([[1.0]], [0.5]), ([[1.0]], [0.5]), [])
    assert "classes" not in nobody._repr_html_()
