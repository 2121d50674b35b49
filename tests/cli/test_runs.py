"""The commands that read finished runs: report, ls, show, diff and cite."""

from __future__ import annotations

import inspect
import json
import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.report.directory import ACCURACY, A, B, make_run, page_of
from undrift.cli.app import main
from undrift.cli.listing import KINDS, known
from undrift.report.cite import ENTRIES, WORKS, cite
from undrift.report.watch.folder import Folder
from undrift.system.lock import Lock

Shown = pytest.CaptureFixture[str]


def fails(*arguments: str, code: int) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    assert stopped.value.code == code


def change(folder: Path, line: int, **values: Any) -> None:
    """Put other values into one row of the metrics."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines[line] = json.dumps(json.loads(lines[line]) | values)
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def test_report_leaves_out_what_is_no_run(tmp_path: Path, capsys: Shown) -> None:
    good = make_run(tmp_path / "good")
    newer = make_run(tmp_path / "newer", format=99)
    (tmp_path / "empty").mkdir()
    begun = make_run(tmp_path / "begun")
    (begun / "metrics.jsonl").write_text('{"algorithm": "Fed')
    folders = [str(path) for path in (good, newer, tmp_path / "empty", begun)]
    out = tmp_path / "out"
    options = ["--out", str(out), "--formats", "svg", "--target", "0.7", "--baseline", "FedAvg"]
    fails("report", *folders, *options, code=1)
    shown, said = capsys.readouterr()
    assert f"report: {out / 'report.html'}" in shown
    assert "to 70 %" in shown
    assert "+20.00" in shown
    assert "too few for 95 % intervals" in shown
    assert said.count("left out") == 3
    assert "format 99" in said
    assert "has no experiment.json" in said
    assert "no evaluated round" in said
    assert {path.suffix for path in (out / "figures").iterdir()} == {".svg"}


@pytest.mark.usefixtures("without_figures")
def test_report_goes_into_the_run_itself(tmp_path: Path, capsys: Shown) -> None:
    one_seed = {key: values for key, values in ACCURACY.items() if key[1] == 0}
    run = str(make_run(tmp_path, one_seed))
    main(["report", run, "--formats", "svg", "--baseline", "AdaBest"])
    assert re.search(r"FedAvg +70\.00 +-10\.00 +0, 1", capsys.readouterr().out)
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "table.tex").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "at least one run directory"),
        (["RUN", "--target", "80"], "--target 80.0: must be"),
        (["RUN", "--formats", "svg,jpg"], "no kind of figure is called 'jpg'"),
        (
            ["RUN", "--columns", "final,worst"],
            "no column is called 'worst'; known: balanced, behind,",
        ),
        (["RUN", "--baseline", "fedavgm"], "did you mean 'FedAvg'"),
        (["RUN", "RUN"], "given twice"),
        (["nowhere"], "'nowhere' is not a directory"),
    ],
)
def test_report_says_what_is_wrong(
    tmp_path: Path, capsys: Shown, arguments: list[str], says: str
) -> None:
    run = str(make_run(tmp_path))
    fails("report", *(run if a == "RUN" else a for a in arguments), code=2)
    assert says in capsys.readouterr().err


def test_ls_lists_runs_latest_first(tmp_path: Path, capsys: Shown) -> None:
    accuracy = {key: values[:2] for key, values in ACCURACY.items()}
    for name, made in (("old", ACCURACY), ("new", accuracy)):
        make_run(tmp_path / name, made)
    for file in ("experiment.json", "metrics.jsonl"):
        os.utime(tmp_path / "old" / file, (0, 0))
    (tmp_path / "other").mkdir()
    make_run(tmp_path / "broken", seeds=[])
    main(["ls", str(tmp_path), "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows)[-1] == "old"
    assert rows.keys() == {"old", "new", "broken"}
    assert (rows["new"]["done"], rows["new"]["rounds"]) == (10, 20)
    assert rows["old"]["best_accuracy"] == pytest.approx(0.9)
    assert rows["old"]["algorithms"] == ["FedAvg", "AdaBest"]
    assert "seeds must be" in rows["broken"]["error"]
    main(["ls", str(tmp_path)])
    shown = capsys.readouterr().out
    assert re.search(r"old .* 20/20 +90\.00 % +\d+ d", shown)
    assert re.search(r"new .* 10/20 +65\.00 % +\d+ s", shown)


def test_ls_fits_80_columns_and_says_what_differs(
    tmp_path: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for lr in ("0.03", "0.1"):
        make_run(
            tmp_path / f"a-run-of-some-forty-five-letters-and-digits-{lr}", local=f"Local(lr={lr})"
        )
    short = {key: values[:2] for key, values in ACCURACY.items() if key != (B, 1)}
    one = make_run(tmp_path / "on", short, data="Other()", seeds=[0, 1])
    origin = f"Origin(run='0123', algorithm={B.replace('0.96', '0.5')!r}, round=4)"
    make_run(tmp_path / "fork", {(B, 0): ACCURACY[B, 0]}, origin=origin)
    with closing(Lock(one)):
        main(["ls", str(tmp_path)])
        shown = capsys.readouterr().out
        main(["ls", str(tmp_path), "--json"])
        rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
        entry = next(entry for entry in Folder(tmp_path).facts() if entry["name"] == "on")
    assert max(map(len, shown.splitlines())) <= 80
    assert "  digits: FedAvg, AdaBest; lr=0.03; seeds 0, 1" not in shown  # the same in both
    long = r"\na-run-of-some-forty-five-letters-and-digits-0\.03\n"
    assert re.search(long + r" .*\n  digits: FedAvg, AdaBest; lr=0\.03 *\n", shown)
    assert "fork of 0123 after round 4: AdaBest(beta=0.5) → AdaBest(beta=0.96)" in shown
    assert re.search(
        r"on +running +0/4 +7/20 .*\n  Other: FedAvg, AdaBest; 5 s left", shown
    )  # 50 rounds at 0.1 s
    assert rows["on"]["seconds_left"] == pytest.approx(5)
    assert (entry["trials"], entry["left"]) == ("0 of 4 trials", "5 s left")
    assert entry["about"] == "Other: FedAvg, AdaBest"
    assert (rows["fork"]["trials_done"], rows["fork"]["seconds_left"]) == (1, None)


def test_show_tells_where_a_fork_started(tmp_path: Path, capsys: Shown) -> None:
    origin = f"Origin(run='0123', algorithm={A!r}, round=4, fresh=True)"
    main(["show", str(make_run(tmp_path, {(B, 0): ACCURACY[B, 0]}, origin=origin))])
    said = " ".join(capsys.readouterr().out.split())
    assert "origin fork of 0123 after round 4, the model alone: FedAvg → AdaBest" in said


@pytest.mark.usefixtures("without_figures")
def test_a_fork_is_called_by_the_folder_beside_it(tmp_path: Path, capsys: Shown) -> None:
    origin = f"Origin(run='0123', algorithm={B!r}, round=4)"
    make_run(tmp_path / "first", hash="0123")
    fork = make_run(tmp_path / "then", {(A, 0): ACCURACY[A, 0]}, origin=origin, hash="4567")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "experiment.json").write_text("{")
    for command in (["show", str(fork)], ["ls", str(tmp_path)], ["report", str(fork)]):
        main(command)
        said = " ".join(capsys.readouterr().out.split())
        assert "fork of first after round 4: AdaBest → FedAvg" in said
    assert "fork of first after" in (fork / "report.html").read_text()
    about = [entry.get("about", "") for entry in Folder(tmp_path).facts()]
    assert any("fork of first after" in text for text in about)


def test_a_folder_that_is_not_there_is_called_so(tmp_path: Path, capsys: Shown) -> None:
    gone = str(tmp_path / "gone")
    for line in (["resume", gone], ["fork", gone, "--at", "1", "--algorithm", "fedavg"]):
        fails(*line, code=2)
        assert f"there is no folder '{gone}'" in capsys.readouterr().err


def test_the_state_of_a_run_is_the_same_everywhere(tmp_path: Path, capsys: Shown) -> None:
    half = {key: values[:2] for key, values in ACCURACY.items()}
    make_run(tmp_path / "finished")
    make_run(tmp_path / "interrupted", half)
    make_run(tmp_path / "broken", seeds=[])
    make_run(tmp_path / "running", seeds=[])
    with closing(Lock(tmp_path / "running")):
        main(["ls", str(tmp_path), "--json"])
        listed = {row["name"]: row["state"] for row in json.loads(capsys.readouterr().out)}
        watched = {entry.name: entry.state for entry in Folder(tmp_path).entries()}
    assert listed == watched == {name: name for name in listed}
    for name in ("finished", "interrupted"):
        main(["show", str(tmp_path / name)])
        assert re.search(rf"state +{name}", capsys.readouterr().out)
    with closing(Lock(tmp_path / "finished")):
        main(["show", str(tmp_path / "finished")])
    assert re.search("state +running", capsys.readouterr().out)


def test_ls_without_runs(tmp_path: Path, capsys: Shown) -> None:
    main(["ls", str(tmp_path)])
    assert "no runs in" in capsys.readouterr().out
    (tmp_path / "study" / "seed0").mkdir(parents=True)
    (tmp_path / "study" / "seed0" / "experiment.json").write_text("{}")
    main(["ls", str(tmp_path)])
    assert f"`undrift ls {tmp_path / 'study'}`" in capsys.readouterr().out.replace("\n", "")
    fails("ls", str(tmp_path / "nowhere"), code=2)
    assert "is not a folder" in capsys.readouterr().err


def test_show(tmp_path: Path, capsys: Shown) -> None:
    failure = {"algorithm": A, "seed": 1, "round": 15, "reason": "the [b]model[/b] is not finite"}
    main(["show", str(make_run(tmp_path, failures=[failure]))])
    shown = capsys.readouterr().out
    assert "Dirichlet(clients=4, alpha=0.1, sigma=0)" in shown  # with its defaults
    assert re.search(r"FedAvg +10/20 +45\.00 ± 7\.07", shown)  # where both seeds still were
    assert re.search(r"AdaBest +20/20 +85\.00 ± 7\.07 +0\.05 +21 +0\.5 +0\.2 +30\.0 kB", shown)
    assert "FedAvg, seed 1, ended in round 15: the [b]model[/b] is not finite" in shown
    assert f"in {tmp_path}:" in shown
    assert re.search(r"metrics\.jsonl +one row per algorithm", shown)


def test_show_leaves_out_columns_rather_than_cutting_names(
    tmp_path: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(make_run(tmp_path, labels={A: "FedAvg", B: "AdaBest(mu=0.02)"}))
    monkeypatch.setenv("COLUMNS", "40")
    main(["show", folder])
    out = capsys.readouterr().out
    assert "AdaBest(mu=0.02)   85.00 ± 7.07" in out
    assert "Not shown at this width:" in out


def test_verify_says_what_is_no_run(tmp_path: Path, capsys: Shown) -> None:
    (tmp_path / "models").mkdir()
    for place in (tmp_path, tmp_path / "nowhere"):
        fails("verify", str(place), code=1)
        said = f"{place}: is not a run directory; `undrift ls` lists them\n"
        assert capsys.readouterr().out == said


def test_files_are_told_by_their_names(tmp_path: Path, capsys: Shown) -> None:
    table = "Table(path='far/away/patients.csv', target='readmitted', client='hospital')"
    code = {"./mine/nets.py": "e56ac3" + "0" * 58, "./b.py": "123456" + "0" * 58}
    folder = make_run(tmp_path / "a", data=table, code=code)
    main(["ls", str(tmp_path)])
    assert "  patients.csv: FedAvg, AdaBest " in capsys.readouterr().out
    assert "<span>patients.csv</span>" in (page := page_of(folder))
    assert "<code>./mine/nets.py e56ac3…</code><br><code>./b.py 123456…</code>" in page
    main(["show", str(folder)])
    shown = capsys.readouterr().out
    assert re.search(r"^code +\./mine/nets\.py e56ac3…\s*\n +\./b\.py 123456…", shown, re.M)
    assert table[:30] in shown


def test_show_a_run_that_has_only_begun(tmp_path: Path, capsys: Shown) -> None:
    (make_run(tmp_path) / "metrics.jsonl").write_text("")
    main(["show", str(tmp_path)])
    assert re.search(r"FedAvg +0/20, 0/2 seeds +-", capsys.readouterr().out)


def test_equal_runs_do_not_differ(tmp_path: Path, capsys: Shown) -> None:
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b", name="b", version="9", hash="x")
    for line in range(16):
        change(b, line, seconds=line)
    main(["diff", str(a), str(b)])
    shown = capsys.readouterr().out
    assert "the same settings, the same results" in shown
    assert "undrift 0.1.0 and 9" in shown


def test_diff_names_the_parameters_that_differ(tmp_path: Path, capsys: Shown) -> None:
    a = make_run(tmp_path / "a", local="Local(lr=0.3)", code={"./m.py": "x", "./n.py": "y"})
    b = make_run(tmp_path / "b", local="Local(batch_size=16)", code={"./m.py": "z", "./n.py": "y"})
    fails("diff", str(a), str(b), code=1)
    assert capsys.readouterr().out.splitlines() == [
        *("local.lr: 0.3 | 0.1", "local.batch_size: 32 | 16", "code../m.py: 'x' | 'z'")
    ]


def test_diff_names_settings_rounds_and_quantities(tmp_path: Path, capsys: Shown) -> None:
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b", partition="IID()", every=4)
    change(b, 2, loss=1 / 15 + 1e-16, new_quantity=1)  # FedAvg, seed 0, round 15
    change(b, 5, accuracy=None, drift=7)  # FedAvg, seed 1, round 10
    text = (b / "metrics.jsonl").read_text().splitlines()
    (b / "metrics.jsonl").write_text("\n".join(text[:-1]) + "\n")
    fails("diff", str(a), str(b), code=1)
    assert capsys.readouterr().out.splitlines() == [
        "partition: Dirichlet(clients=4, alpha=0.1) | IID()",
        "every: 5 | 4",
        f"FedAvg, seed 0: round 15, loss: {1 / 15!r} | {1 / 15 + 1e-16!r}",
        "FedAvg, seed 1: round 10, accuracy: 0.4 | nan, and 1 quantities more",
        "AdaBest, seed 1: round 20 is only in the first",
        "largest relative difference: inf, FedAvg, seed 1, round 10, accuracy",
    ]


def record(folder: Path, *arithmetic: Any) -> None:
    """Write what each session of a run computed with."""
    here = {"began": "now", "rounding": "compiled"}
    sessions = [here | ({"arithmetic": one} if one else {}) for one in arithmetic]
    (folder / "environment.json").write_text(json.dumps(sessions))


AVX2 = {"cpu": "AVX2", "engine": "compiled"}
PLAIN = {"cpu": "DEFAULT", "engine": "compiled"}
FLUSHED = {"subnormals": "0"}


@pytest.mark.parametrize(
    ("one", "other", "loss", "says"),
    [
        (
            [AVX2],
            [AVX2],
            1e-6,
            ["the same arithmetic (cpu AVX2, engine compiled, subnormals kept): a real"],
        ),
        ([AVX2], [PLAIN], 1e-6, ["other arithmetic: cpu: AVX2 | DEFAULT", "as rounding does"]),
        ([AVX2], [PLAIN], 0.5, ["other arithmetic: cpu: AVX2 | DEFAULT", "more than rounding"]),
        ([AVX2, PLAIN], [AVX2, PLAIN], 1e-6, ["cpu: AVX2, DEFAULT | AVX2, DEFAULT", "as rounding"]),
        ([AVX2], [{"cpu": "AVX2"}], 1e-6, ["engine: compiled | none", "as rounding does"]),
        (
            [AVX2, AVX2 | FLUSHED],
            [AVX2 | FLUSHED],
            1e-6,
            ["subnormals: kept, 0 | 0", "as rounding does"],
        ),
        ([AVX2, None], [AVX2], 1e-6, ["of the first was is not recorded", "as rounding does"]),
        ([], [], 0.5, ["of both was is not recorded", "more than rounding does"]),
    ],
)
def test_diff_tells_rounding_from_real_differences(
    tmp_path: Path, capsys: Shown, one: Any, other: Any, loss: float, says: list[str]
) -> None:
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    record(a, *one)
    record(b, *other)
    change(b, 1, loss=0.1 * (1 + loss), accuracy=0.502)  # FedAvg, seed 0, round 10
    change(b, 3, drift=0.4)  # round 20: small differences grow
    fails("diff", str(a), str(b), code=1)
    first, where, largest, *cause = capsys.readouterr().out.splitlines()
    assert first == "the same settings, other results:"
    assert where.startswith("FedAvg, seed 0: round 10, accuracy: 0.5 | 0.502, and 1 quant")
    assert largest == "largest relative difference: 0.5, FedAvg, seed 0, round 20, drift"
    assert len(cause) == len(says)
    for line, expected in zip(cause, says, strict=True):
        assert expected in line


def test_diff_of_accuracies_alone(tmp_path: Path, capsys: Shown) -> None:
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    record(a, AVX2)
    record(b, PLAIN)
    change(b, 1, accuracy=0.25)
    fails("diff", str(a), str(b), code=1)
    assert "they differ by 0.5, which is more than rounding does" in capsys.readouterr().out


def test_diff_of_failures_and_algorithms(tmp_path: Path, capsys: Shown) -> None:
    failure = {"algorithm": A, "seed": 0, "round": 25, "reason": "not finite"}
    only = {key: values for key, values in ACCURACY.items() if key[0] == A}
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b", only, [failure])
    fails("diff", str(a), str(b), code=1)
    assert capsys.readouterr().out.splitlines() == [
        f"algorithms only in the first: {B}",
        "FedAvg, seed 0: no failure | ended in round 25: not finite",
    ]
    turned = dict(reversed(ACCURACY.items()))
    fails("diff", str(a), str(make_run(tmp_path / "c", turned)), code=1)
    assert capsys.readouterr().out == "algorithms: the same in another order\n"


def test_the_target_is_no_difference(tmp_path: Path, capsys: Shown) -> None:
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b", target=0.7)
    main(["diff", str(a), str(b)])
    assert capsys.readouterr().out.splitlines() == [
        "the same settings, the same results",
        "target: 0.6 | 0.7, which concerns reports only",
    ]


def test_cite(tmp_path: Path, capsys: Shown) -> None:
    main(["cite", str(make_run(tmp_path, data="Shakespeare(first=10)", sampler="MD(clients=3)"))])
    shown = capsys.readouterr().out
    keys = re.findall(r"^@\w+\{(\w+),$", shown, flags=re.MULTILINE)
    assert keys == ["undrift", "mcmahan2017", "varno2022", "caldas2018", "acar2021", "fraboni2021"]
    assert "version = {0.1.0}" in shown


def documented() -> dict[str, str]:
    """Class → the reference in its docstring, for all that can be named."""
    made = {m.__name__: inspect.unwrap(m) for kind in KINDS for m in known(kind).values()}
    found = {
        name: re.search(r"(?i)references?: (.*)", one.__doc__ or "", re.DOTALL)
        for name, one in made.items()
        if isinstance(one, type)
    }
    return {name: " ".join(match[1].split()) for name, match in found.items() if match}


def test_every_reference_can_be_cited_and_agrees() -> None:
    for name, reference in documented().items():
        assert name in WORKS, f"report/cite.py lacks {name}: {reference}"
        if other := re.match(r"as (\w+)[.,]", reference):
            assert WORKS[name] == WORKS[other[1]]
            continue
        for work in re.split(r"; (?=[A-Z])", reference):
            first = re.match(r"\w+", work)
            assert first
            lacking = [key for key in WORKS[name] if key not in ENTRIES]
            assert lacking == [], f"report/references.bib has no entry {lacking}, of {name}"
            entries = [ENTRIES[key] for key in WORKS[name]]
            found = any(re.search(rf"author += \{{{first[0]},", entry) for entry in entries)
            assert found, f"{name}: no entry of {WORKS[name]} has the first author {first[0]}"


def test_entries_are_bibtex() -> None:
    assert set(ENTRIES) == {key for keys in WORKS.values() for key in keys}
    for key, entry in ENTRIES.items():
        assert re.match(rf"@\w+\{{{key},\n", entry)
        assert entry.count("{") == entry.count("}")
        fields = re.findall(r"^  (\w+) += \{", entry, flags=re.MULTILINE)
        assert {"title", "author", "year"} <= set(fields)
        assert fields[-1] == "year", f"references.bib, {key}: year must be the last field"
        assert key.endswith(re.search(r"year +=.*(\d{4})", entry)[1])  # type: ignore[index]
    assert cite([], "} @evil{1").count("@") == 1


ODD = "\x1b[31m[bold]:smile:[/x]\x07\u202e"
SEEN = r"\x1b[31m[bold]:smile:[/x]\x07\u202e"


def test_what_others_wrote_is_printed_as_text(tmp_path: Path, capsys: Shown) -> None:
    failure = {"algorithm": A, "seed": 1, "round": 15, "reason": ODD}
    folder = tmp_path / "[bold]:smile:[/y]"
    settings = {"data": ODD, ODD: "value", "name": ODD}
    make_run(folder, labels={A: ODD, B: ODD + "2"}, failures=[failure], **settings)
    make_run(other := tmp_path / "other", data=ODD + "3")
    main(["show", str(folder)])
    main(["ls", str(folder.parent)])
    main(["report", str(folder), "--formats", "svg"])
    fails("diff", str(folder), str(other), code=1)
    shown = capsys.readouterr().out
    assert not set(shown) & set("\x1b\x07\u202e")
    said = "".join(shown.split())
    assert f"seed1,endedinround15:{SEEN}" in said
    assert f"{SEEN}2" in said
    assert f"data:{SEEN}|{SEEN}3" in said
    assert f"report: {folder / 'report.html'}\n" in shown
    assert f"in {folder}:" in shown


def test_one_bad_entry_hides_no_run(
    tmp_path: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "good")
    make_run(tmp_path / "closed")
    make_run(tmp_path / os.fsdecode(b"\xff"))
    (tmp_path / "loop").symlink_to("loop")
    real = Path.stat

    def stat(self: Path, **options: Any) -> os.stat_result:
        if self.parent.name == "closed":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, **options)

    monkeypatch.setattr(Path, "stat", stat)  # root may read anything
    main(["ls", str(tmp_path), "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows.keys() == {"good", "closed", "\udcff"}
    assert "Permission denied" in rows["closed"]["error"]
    main(["ls", str(tmp_path)])
    shown = capsys.readouterr().out
    assert r"\udcff" in shown
    assert "broken" in shown


@pytest.mark.parametrize("command", ["show", "report", "ls", "watch", "diff", "out"])
def test_paths_too_long_for_any_folder(tmp_path: Path, capsys: Shown, command: str) -> None:
    long = "x" * 5000
    run = str(make_run(tmp_path))
    arguments = {"diff": ["diff", long, run], "out": ["report", run, "--out", long]}
    fails(*arguments.get(command, [command, long]), code=2)
    said = capsys.readouterr().err
    assert "..." in said
    assert len(said) < 300


def test_a_report_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path)
    written: list[Path] = []
    monkeypatch.setattr(Path, "replace", lambda self, to: written.append(to))
    main(["report", str(tmp_path), "--formats", "svg"])
    assert {"report.html", "table.md", "seeds.csv", "accuracy.svg"} <= {p.name for p in written}
    assert not (tmp_path / "report.html").exists()
    assert not list(tmp_path.glob("figures/accuracy.svg"))


def test_regression_in_show_and_ls(tmp_path: Path, capsys: Shown) -> None:
    make_run(tmp_path / "run", empty=("accuracy", "cloud_accuracy", "aggregate_accuracy"))
    main(["show", str(tmp_path / "run")])
    assert re.search(r"FedAvg +20/20 +0\.2236 ± 0 ", capsys.readouterr().out)  # root of 1 / 20
    main(["ls", str(tmp_path)])
    assert re.search(r"finished +4/4 +20/20 +RMSE 0\.2236\b", capsys.readouterr().out)
    fails("report", str(tmp_path / "run"), "--target", "0.5", code=2)
    assert "no accuracies" in capsys.readouterr().err
