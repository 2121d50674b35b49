"""Texts with a class or a next word each: tweets, messages, articles and sentences."""

import csv
import gzip
import io
import json
import tarfile

import numpy as np
import pytest
import torch

from tests.data.real import real
from undrift.config import UndriftError
from undrift.data.files.fetch import use_data_dir
from undrift.data.partition.partitions import Natural, federate
from undrift.data.sources.agnews import AGNews
from undrift.data.sources.newsgroups import Newsgroups20, body
from undrift.data.sources.sent140 import Sent140
from undrift.data.sources.stackoverflow import StackOverflow
from undrift.data.text.words import NO_TARGET


@pytest.fixture
def folder(tmp_path):
    use_data_dir(tmp_path)
    yield tmp_path
    use_data_dir(None)


@pytest.fixture
def real_data():
    yield lambda *names: use_data_dir(real(*names))
    use_data_dir(None)


def batches(source):
    return source.transform(source.inputs, None), source.transform(source.test_inputs, None)


def write_tweets(folder, rows):
    (folder / "sent140").mkdir()
    with (folder / "sent140" / "tweets.csv").open("w", encoding="latin-1", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


def tweets(user, *texts, target="0"):
    return [[target, "1", "Mon Apr 06", "NO_QUERY", user, text] for text in texts]


def test_sent140_by_user(folder):
    write_tweets(
        folder,
        [
            *tweets("ann", *["good day"] * 10),
            *tweets("bob", *["bad  day"] * 5, target="4"),
            *tweets("cat", *["café"] * 4),
            *tweets("one", "alone"),
        ],
    )
    source = Sent140(file="tweets.csv", minimum=5).load(0)
    assert source.transform.words == ("day", "good", "", "bad")
    assert np.bincount(source.client_ids).tolist() == [8, 4]
    assert source.targets.tolist() == [0] * 8 + [1] * 4
    assert source.test_targets.tolist() == [0, 0, 1]
    train, test = batches(source)
    assert train.dtype == torch.float32
    assert train[0].tolist() == [0.5, 0.5, 0, 0]
    assert test[-1].tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
    assert len(federate(source, Natural(), 0)) == 2
    everyone = Sent140(file="tweets.csv", minimum=1).load(0)
    assert len(np.unique(everyone.client_ids)) == 3
    assert "café" in everyone.transform.words


def test_sent140_drops_tweets_without_a_known_word(folder):
    write_tweets(folder, tweets("ann", *["day"] * 6, "x y", "z"))
    source = Sent140(file="tweets.csv", minimum=1, vocabulary=1).load(0)
    assert source.transform.words == ("day",)
    assert len(source.targets) + len(source.test_targets) == 6
    assert len(Sent140(file="tweets.csv", minimum=1, vocabulary=None).load(0).targets) == 6


def test_sent140_refuses_what_it_cannot_use(folder):
    write_tweets(folder, [*tweets("ann", "a", "b"), *tweets("bob", "c", target="2")])
    with pytest.raises(UndriftError, match=r"row 3: the target must be 0 or 4, not '2'"):
        Sent140(file="tweets.csv").load(0)
    with pytest.raises(UndriftError, match=r"there is no none.csv here or in .*sent140"):
        Sent140(file="none.csv").load(0)
    (folder / "short.csv").write_text("0,1,2\n")
    with pytest.raises(UndriftError, match="expected 6 columns"):
        Sent140(file="short.csv").load(0)
    (folder / "few.csv").write_text("0,1,2,3,ann,a b\n")
    with pytest.raises(UndriftError, match=r'no user has 10; .*test="tweets"'):
        Sent140(file="few.csv").load(0)


def test_the_real_sample_of_sent140(real_data):
    real_data("sent140-subset/sent140-sample.csv.gz")
    sample = Sent140(file="sent140-sample.csv.gz", minimum=1, test="tweets")
    source = sample.load(0)
    assert len(source.targets) + len(source.test_targets) == 12_979
    assert len(source.targets) == 10_383
    assert source.transform(source.inputs[:9], None).shape == (9, 5000)
    pairs = Sent140(file="sent140-sample.csv.gz", minimum=2).load(0)
    assert len(np.unique(pairs.client_ids)) == 411
    with pytest.raises(UndriftError, match="no user has 10"):
        Sent140(file="sent140-sample.csv.gz").load(0)


def write_messages(folder, messages, name="20news-bydate.tar.gz"):
    (folder / "20news").mkdir()
    with tarfile.open(folder / "20news" / name, "w:gz") as archive:
        for path, text in messages.items():
            content = text.encode("latin-1")
            info = tarfile.TarInfo(path)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def test_newsgroups(folder):
    write_messages(
        folder,
        {
            "20news-bydate-train/sci.space/1": "From: a\n\nThe moon, the moon.",
            "20news-bydate-train/alt.atheism/2": "From: b\n\nno god é",
            "20news-bydate-test/sci.space/3": "From: c\n\nthe sun the moon",
        },
    )
    source = Newsgroups20(length=3).load(0)
    assert source.targets.tolist() == [0, 1]
    assert source.test_targets.tolist() == [1]
    known = source.transform.words
    assert known == ("", "", "moon", "the", "god", "no", "é")
    train, test = batches(source)
    assert [[known[i] for i in row] for row in train] == [
        ["no", "god", "é"],
        ["the", "moon", "the"],
    ]
    assert test.tolist() == [[3, 1, 3]]
    bag = Newsgroups20(form="bag", vocabulary=2).load(0)
    assert batches(bag)[0].tolist() == [[0, 0], [pytest.approx(0.5**0.5)] * 2]
    assert batches(bag)[1][0].tolist() == pytest.approx([0.2**0.5, 0.8**0.5])


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ({"20_newsgroups/sci.space/1": "a"}, "expected 20news-bydate-train/GROUP/MESSAGE"),
        ({"20news-bydate-train/sci.space/1": "a"}, "found 1 training messages of 1 groups"),
    ],
)
def test_other_archives_are_refused(folder, messages, said):
    write_messages(folder, messages)
    with pytest.raises(UndriftError, match=said):
        Newsgroups20().load(0)


def test_the_body_of_a_message():
    message = """From: me
Subject: moon

In article <1> you wrote:
> quoted
bob@x (Bob) writes:
| as well
My answer.

And more.
--
Me, Street 1"""
    assert body(message) == "My answer.\n\nAnd more."
    assert body("From: me\n\nOne line.") == "One line."
    assert body("From: me") == ""


@pytest.mark.slow
def test_the_real_newsgroups(real_data):
    real_data("20news/20news-bydate.tar.xz")
    source = Newsgroups20().load(0)
    assert (len(source.targets), len(source.test_targets)) == (11_314, 7_532)
    assert source.classes == 20
    assert torch.bincount(source.targets)[:3].tolist() == [480, 584, 591]
    assert torch.bincount(source.test_targets)[-1].tolist() == 251
    assert source.transform(source.inputs[:4], None).shape == (4, 256)


def write_articles(folder, train, test, name="train.csv"):
    (folder / "ag_news").mkdir(exist_ok=True)
    for file, rows in ((name, train), ("test.csv", test)):
        with (folder / "ag_news" / file).open("w", encoding="utf-8", newline="") as opened:
            csv.writer(opened, quoting=csv.QUOTE_ALL).writerows(rows)


def test_agnews(folder):
    write_articles(
        folder,
        [["3", "Oil up", "Oil; gold"], ["1", "War", ""], ["4", "", "x"]],
        [["2", "Oil", "é"]],
    )
    source = AGNews(length=4).load(0)
    assert source.targets.tolist() == [2, 0, 3]
    assert source.test_targets.tolist() == [1]
    known = source.transform.words
    train, test = batches(source)
    assert [[known[i] for i in row] for row in train][:2] == [
        ["oil", "up", "oil", "gold"],
        ["war", "", "", ""],
    ]
    assert test.tolist() == [[2, 1, 0, 0]]
    assert batches(AGNews(form="bag").load(0))[0][0].norm() == pytest.approx(1)


def test_agnews_refuses_other_tables(folder):
    write_articles(folder, [["5", "a", "b"]], [["1", "a", "b"]])
    with pytest.raises(UndriftError, match=r"row 1: the class must be 1, 2, 3 or 4, not '5'"):
        AGNews().load(0)
    write_articles(folder, [], [["1", "a", "b"]], name="other.csv")
    with pytest.raises(UndriftError, match="the file is empty"):
        AGNews(train="other.csv").load(0)
    write_articles(folder, [["1", "a", "b" * 200_000]], [["1", "a", "b"]], name="long.csv")
    with pytest.raises(UndriftError, match=r"long.csv: not a valid CSV file \(field larger"):
        AGNews(train="long.csv").load(0)


def test_another_file_may_lie_anywhere(folder, tmp_path_factory, monkeypatch):
    write_articles(folder, [["1", "a", "b"]], [["1", "a", "b"]])
    here = tmp_path_factory.mktemp("here")
    (here / "mine.csv").write_text("2,c,d\n")
    with pytest.raises(UndriftError, match=r"there is no mine.csv here or in .*ag_news"):
        AGNews(train="mine.csv").load(0)
    assert AGNews(train=str(here / "mine.csv")).load(0).targets.tolist() == [1]
    monkeypatch.chdir(here)
    assert AGNews(train="mine.csv").load(0).targets.tolist() == [1]


def test_the_real_agnews(real_data):
    real_data("ag_news/test.csv", "ag_news/train-subset.csv.gz")
    source = AGNews(train="train-subset.csv.gz").load(0)
    assert (len(source.targets), len(source.test_targets)) == (9_774, 7_600)
    assert torch.bincount(source.test_targets).tolist() == [1900] * 4
    train, test = batches(source)
    assert train.shape == (9_774, 64)
    assert (test > 1).float().mean() > 0.4  # words that are known, not unknown or padding


SENTENCES = [
    ("b", "how do i", "train"),
    ("a", "how do you do it all", "train"),
    ("b", "do", "train"),
    ("b", "third", "train"),
    ("c", "how so", "test"),
    ("d", "", "test"),
]


def check_next_words(source):
    assert source.transform.words == ("", "do", "how", "", "", "")
    unknown, begin, end = 3, 4, 5
    assert source.classes == 6
    train, test = batches(source)
    assert train.tolist()[0] == [begin, 2, 1, unknown]
    assert train.tolist()[1] == [begin, 2, 1, unknown]
    assert train.tolist()[2] == [begin, 1, 0, 0]
    assert source.targets.tolist()[0] == [2, 1, unknown, end]
    assert source.targets.tolist()[1] == [2, 1, unknown, 1]
    assert source.targets.tolist()[2] == [1, end, NO_TARGET, NO_TARGET]
    assert test.tolist() == [[begin, 2, unknown, 0]]
    assert source.test_targets.tolist() == [[2, unknown, end, NO_TARGET]]


def test_stackoverflow_in_json_lines(folder):
    (folder / "stackoverflow").mkdir()
    rows = [dict(zip(("client_id", "tokens", "split"), row, strict=True)) for row in SENTENCES]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    with gzip.open(folder / "stackoverflow" / "stackoverflow.jsonl.gz", "wt") as file:
        file.write(text)
    source = StackOverflow(vocabulary=2, length=4, sentences=2).load(0)
    assert source.client_ids.tolist() == [0, 1, 0]
    check_next_words(source)
    few = StackOverflow(vocabulary=2, length=4, clients=1, sentences=None).load(0)
    assert few.client_ids.tolist() == [0, 0, 0]
    (folder / "stackoverflow" / "stackoverflow.word_count").write_text("you\t9\nhow\t5\nx\t1\n")
    assert StackOverflow(vocabulary=2).load(0).transform.words[1:3] == ("you", "how")


def test_stackoverflow_in_hdf5(folder):
    h5py = pytest.importorskip("h5py")
    (folder / "stackoverflow").mkdir()
    for part in ("train", "test"):
        with h5py.File(folder / "stackoverflow" / f"stackoverflow_{part}.h5", "w") as file:
            for user in "abcd":
                mine = [text for owner, text, split in SENTENCES if (owner, split) == (user, part)]
                if mine:
                    file[f"examples/{user}/tokens"] = np.array(mine, dtype=h5py.string_dtype())
    source = StackOverflow(vocabulary=2, length=4, sentences=2).load(0)
    assert source.client_ids.tolist() == [0, 1, 1]
    assert source.targets.tolist()[1] == [2, 1, 3, 5]


@pytest.mark.parametrize(
    "line", ["no json", '["a"]', '{"client_id": 1, "tokens": "a"}', "[" * 9999]
)
def test_other_lines_are_refused(folder, line):
    (folder / "stackoverflow").mkdir()
    (folder / "stackoverflow" / "stackoverflow.jsonl").write_text(line)
    with pytest.raises(UndriftError, match="line 1: expected an object with client_id"):
        StackOverflow().load(0)


def test_stackoverflow_says_what_it_needs(folder):
    with pytest.raises(UndriftError, match=r"expected stackoverflow_train.h5 and"):
        StackOverflow().load(0)
