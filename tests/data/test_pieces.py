"""Word pieces, and DistilBERT on them from file to trained model."""

import csv
import gzip
import math
from itertools import islice

import pytest
import torch

from tests.data.real import real
from undrift.config import UndriftError
from undrift.config.expressions import parse
from undrift.data.files.fetch import use_data_dir
from undrift.data.sources import dataset
from undrift.data.text.pieces import Pieces
from undrift.data.text.words import most_frequent, words
from undrift.experiment.experiment import Experiment
from undrift.models import MODELS
from undrift.runs.trial import Trial

pytest.importorskip("tokenizers")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LISTED = [*SPECIAL, "un", "##drift", "##drifted", "cafe", "!", "##s", "unable", "[", "]", "sep"]


def listed(folder, pieces=LISTED):
    path = folder / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return str(path)


def cut(pieces, text, length=20):
    (numbers,) = pieces([text], length)
    return [pieces.words[number] for number in numbers]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Undrifted", ["un", "##drifted"]),  # the longest piece, not ##drift
        ("undrifts", ["un", "##drift", "##s"]),
        ("CAFÉ!cafe\u0301s", ["cafe", "!", "cafe", "##s"]),
        ("unabl", ["[UNK]"]),  # no part of a word where the rest is unknown
        ("drift", ["[UNK]"]),  # known only inside of words
        ("s" * 101 + " un", ["[UNK]", "un"]),
        ("[SEP]", ["[", "sep", "]"]),  # what is written in a text is text
    ],
)
def test_cutting(tmp_path, text, expected):
    assert cut(Pieces(listed(tmp_path)), text) == ["[CLS]", *expected, "[SEP]"]


def test_long_texts_keep_their_end(tmp_path):
    pieces = Pieces(listed(tmp_path))
    assert cut(pieces, "un un un un", 4) == ["[CLS]", "un", "un", "[SEP]"]
    assert cut(pieces, "un un", 4) == ["[CLS]", "un", "un", "[SEP]"]


def test_files_folders_and_the_cache(tmp_path, monkeypatch):
    import huggingface_hub
    import tokenizers

    path = listed(tmp_path)
    first = Pieces(path)
    assert Pieces(str(tmp_path)).words == first.words == tuple(LISTED)
    monkeypatch.setattr(
        huggingface_hub,
        "try_to_load_from_cache",
        lambda name, file: path if (name, file) == ("my/bert", "vocab.txt") else None,
    )
    assert Pieces("my/bert").words == first.words
    own = tmp_path / "own"
    own.mkdir()
    first.tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    first.tokenizer.save(str(own / "tokenizer.json"))
    assert Pieces(str(own)).words == first.words
    assert cut(Pieces(str(own)), "CAFE café") == ["[CLS]", "cafe", "[UNK]", "[SEP]"]


def test_other_files_are_refused(tmp_path):
    for wrong in ([], LISTED[1:], LISTED[:2], [*LISTED, "un"]):
        with pytest.raises(UndriftError, match=r"vocab.txt: not a valid tokenizer file \("):
            Pieces(listed(tmp_path, wrong))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UndriftError, match=r"tokenizer.json: not a valid tokenizer file \("):
        Pieces(str(tmp_path / "tokenizer.json"))
    for nowhere in (str(tmp_path / "none"), "no-such-model", "~/none"):
        with pytest.raises(UndriftError, match=r"nor a folder with vocab.txt or tokenizer.json"):
            Pieces(nowhere)


def test_the_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(UndriftError, match=r'needs tokenizers, .* pip install "\.\[text\]"'):
        Pieces(listed(tmp_path))


@pytest.fixture
def news(tmp_path):
    """A folder with some real articles and a vocab.txt of their words and letters."""
    folder = real("ag_news/test.csv", "ag_news/train-subset.csv.gz") / "ag_news"
    own = tmp_path / "ag_news"
    own.mkdir()
    with gzip.open(folder / "train-subset.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(islice(csv.reader(file), 240))
    for name, some in (("train.csv", rows[:200]), ("test.csv", rows[200:])):
        with (own / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(some)
    letters = [chr(code) for code in range(33, 127)]
    known = most_frequent((words(row[2]) for row in rows), 500)
    listed(tmp_path, dict.fromkeys([*SPECIAL, *letters, *(f"##{one}" for one in letters), *known]))
    use_data_dir(tmp_path)
    yield tmp_path
    use_data_dir(None)


def form(news, **options):
    given = "".join(f", {key}={value}" for key, value in options.items())
    return f"agnews(form='pieces', tokenizer={str(news)!r}{given})"


def small(news, weights=None):
    known = len((news / "vocab.txt").read_text(encoding="utf-8").splitlines())
    return f"DistilBERT({weights!r}, words={known}, layers=1, heads=2, width=32, hidden=32)"


def test_real_articles_as_pieces(news):
    source = dataset(form(news, length=16)).load(0)
    batch = source.transform(source.inputs, None)
    assert batch.shape == (200, 16)
    assert batch.dtype == torch.int64
    begin, end = (source.transform.words.index(special) for special in ("[CLS]", "[SEP]"))
    assert (batch[:, 0] == begin).all()
    assert ((batch == end).sum(1) == 1).all()
    last = (batch != 0).sum(1) - 1
    assert (batch[torch.arange(200), last] == end).all()


@pytest.mark.slow
def test_distilbert_learns_from_real_articles(news):
    pytest.importorskip("transformers")
    experiment = Experiment(
        algorithms=["LocalOpt(FedAvg(), Adam(eps=1e-8, beta2=0.999, bias_correction=True))"],
        data=form(news, length=24),
        partition="IID(clients=4)",
        model=small(news),
        local="Local(lr=0.005, epochs=4, batch_size=8)",
        sampler="Uniform(2)",
        rounds=5,
        every=5,
    )
    task, data = experiment.check()
    (row,) = Trial(experiment, experiment.algorithms[0], 0, task, data).rows()
    assert row["train_loss"] < 0.7 * math.log(4)


def test_data_and_model_from_one_folder(news, tmp_path_factory):
    """As transformers 5 saves them: config.json, model.safetensors and tokenizer.json."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    vocabulary = str(news / "vocab.txt")
    transformers.DistilBertTokenizer(vocab=vocabulary).save_pretrained(folder)
    saved = parse(small(news), MODELS, "model").build((64,), 4)
    saved.inner.save_pretrained(folder)
    source, other = (dataset(form(where)).load(0) for where in (folder, news))
    assert source.transform.words == other.transform.words
    texts = source.transform(source.inputs, None)
    assert torch.equal(texts, other.transform(other.inputs, None))
    loaded = parse(f"DistilBERT({str(folder)!r})", MODELS, "model")
    network = loaded.build((64,), 4, source.transform.words)
    assert torch.equal(network.eval()(texts), saved.eval()(texts))


@pytest.mark.parametrize(
    ("data", "model", "says"),
    [
        ("agnews", "{small}", "word ids, not word pieces; use form='pieces'"),
        (
            "{pieces}",
            "DistilBERT(None, words=9, layers=1, heads=1, width=2)",
            "vocabulary of 9 word pieces",
        ),
        ("{long}", "{small}", "reads at most 512 word pieces, these texts have 513"),
    ],
)
def test_what_does_not_fit_is_refused(news, data, model, says):
    pytest.importorskip("transformers")
    names = {"small": small(news), "pieces": form(news), "long": form(news, length=513)}
    source = dataset(data.format(**names)).load(0)
    made = parse(model.format(**names), MODELS, "model")
    shape = tuple(source.transform(source.inputs[:1], None).shape[1:])
    with pytest.raises(UndriftError, match=says):
        made.build(shape, 4, source.transform.words)
