"""Shakespeare by speaker: LEAF's rules on a made-up text, and its counts on the real one."""

import zipfile

import numpy as np
import pytest
import torch

from tests.data.real import real
from undrift.config import UndriftError
from undrift.data.files.fetch import use_data_dir
from undrift.data.partition.partitions import Natural, federate
from undrift.data.sources.shakespeare import (
    SYMBOLS,
    TINY_SYMBOLS,
    Shakespeare,
    TinyShakespeare,
    etext_speeches,
    named_speeches,
)

ETEXT = """\
1609

THE SONNETS

by William Shakespeare

  Not. a speech of anybody
    nor this

1603

A PLAY



by William Shakespeare

Dramatis Personae

  A BEADLE
ACT I.
                        Enter all

  First Lord. Good   morrow,
    my lord.     How now?

                        Exit
  Second lord. Ay.
  SECOND LORD. No.
    I say no.
Not indented, so nobody's.
    Yet this goes on.
  Boy. Once only.

<<THIS ELECTRONIC VERSION IS COPYRIGHT>>

1593

THE COMEDY OF ERRORS

by William Shakespeare

ACT I. SCENE 1
A hall
AEGEON. Proceed,
and end my woes.
<<THIS ELECTRONIC VERSION IS COPYRIGHT>>
Nobody says this.
AEGEON. I will.
"""


@pytest.fixture
def folder(tmp_path):
    use_data_dir(tmp_path)
    yield tmp_path
    use_data_dir(None)


def spoken(source, symbols, client):
    """The text of a client, put together again from its windows to train on."""
    mine = source.client_ids == client
    first = source.transform(source.inputs[mine][:1], None)[0].tolist()
    return "".join(symbols[i] for i in first + source.targets[mine].tolist())


def test_who_says_what():
    assert etext_speeches(ETEXT.splitlines(keepends=True)) == {
        "A PLAY, FIRST LORD": ["Good   morrow,", "my lord.     How now?", " " * 20 + "Exit"],
        "A PLAY, SECOND LORD": ["Ay.", "No.", "I say no.", "Yet this goes on."],
        "A PLAY, BOY": ["Once only."],
        "THE COMEDY OF ERRORS, AEGEON": ["Proceed,", "and end my woes.", "I will."],
    }


def test_windows_and_their_split(folder):
    (folder / "shakespeare").mkdir()
    with zipfile.ZipFile(folder / "shakespeare" / "1994-01-100.zip", "w") as archive:
        archive.writestr("100.txt", ETEXT.replace("\n", "\r\n"))
    source = Shakespeare(length=4, share=0.6).load(0)
    texts = ["Good morrow, my lord. How now? Exit ", "Ay. No. I say no. Yet this goes on. "]
    texts.append("Proceed, and end my woes. I will. ")
    counts = [len(text) - 4 for text in texts]
    trained = [int(0.6 * n) for n in counts]
    assert np.bincount(source.client_ids).tolist() == trained
    for client, text in enumerate(texts):
        assert spoken(source, SYMBOLS, client) == text[: 4 + trained[client]]
    tests = source.transform(source.test_inputs, None).tolist()
    expected = [
        (text[i : i + 4], text[i + 4])
        for text, n, train in zip(texts, counts, trained, strict=True)
        for i in range(train + 3, n)
    ]
    assert expected == [
        ("".join(SYMBOLS[i] for i in row), SYMBOLS[y])
        for row, y in zip(tests, source.test_targets, strict=True)
    ]
    assert Shakespeare(length=4, share=0.6).load(7) is source
    assert source.classes == len(set(SYMBOLS)) == 79
    with pytest.raises(UndriftError, match="no speaker has enough text for windows of 80"):
        Shakespeare().load(0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ACT I\n\nHAMLET. To be\n", "no speakers found; expected Project Gutenberg's etext 100"),
        (ETEXT.replace("Good", "Góod"), r"FIRST LORD has characters .*\['ó'\]; is it another"),
    ],
)
def test_other_editions_are_refused(folder, text, said):
    (folder / "shakespeare").mkdir()
    (folder / "shakespeare" / "100.txt").write_text(text, encoding="latin-1")
    with pytest.raises(UndriftError, match=said):
        Shakespeare(length=4).load(0)


def test_tiny_speeches():
    text = "ROMEO:\nAy me!\nsad hours\n\nNURSE:\nMy lady:\n\n\nROMEO:\nO!\n"
    assert named_speeches(text.splitlines(keepends=True)) == {
        "ROMEO": ["Ay me!", "sad hours", "O!"],
        "NURSE": ["My lady:"],
    }


@pytest.mark.slow
def test_the_real_etext_has_leafs_speakers():
    use_data_dir(real("shakespeare/shakespeare-gutenberg-100.txt.gz"))
    try:
        source = Shakespeare().load(0)
        data = federate(Shakespeare(), Natural(), 0)
    finally:
        use_data_dir(None)
    # FedGBO has 660, 3,678,451 and 356,921; where one window of each is lost is not known.
    assert (len(data), len(source.targets), len(source.test_targets)) == (660, 3_678_452, 356_922)
    assert len(torch.cat([source.targets, source.test_targets]).unique()) == source.classes == 79
    assert source.inputs.dtype == torch.int32
    inputs, targets = data.client(0)
    batch = data.transform(inputs[:5], None)
    assert batch.shape == (5, 80)
    assert (batch[1:, -1] == targets[:4]).all()
    hidden = np.concatenate([source.inputs, source.test_inputs])
    assert len(np.unique(hidden)) == len(hidden)


def test_the_real_tiny_file():
    use_data_dir(real("shakespeare/tinyshakespeare-input.txt.gz"))
    try:
        source = TinyShakespeare().load(0)
    finally:
        use_data_dir(None)
    assert (len(source.targets), len(source.test_targets)) == (877_082, 85_526)
    assert len(np.unique(source.client_ids)) == 152
    assert source.classes == len(set(TINY_SYMBOLS)) == 64
    assert spoken(source, TINY_SYMBOLS, 0).startswith(
        "Always obedient to your grace's will, I come"
    )
