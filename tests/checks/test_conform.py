"""`conform`: right implementations pass, and every known mistake is called by its name."""

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undrift
from benchmarks.conform import __main__ as matrix
from benchmarks.conform import ours
from undrift import NonConforming, UndriftError, conform
from undrift.checks.conform import METHODS, PROBES
from undrift.checks.conform.frame import Rule
from undrift.checks.conform.guess import gap, pairs
from undrift.checks.conform.mistakes import Mistake, made, mistakes
from undrift.checks.conform.probes import CHANGING, LATE, problem
from undrift.checks.conform.problem import play
from undrift.checks.conform.rules import method
from undrift.cli.app import main

MISTAKES = [(name, one) for name, rule in METHODS.items() for one in mistakes(rule)]
COMMON = set(mistakes(METHODS["fedavg"]))


def row(name: str, mistake: Mistake) -> Any:
    """A mistake in a method; those that all methods share are tried with all in slow tests only."""
    again = mistake in COMMON and name not in ("fedavg", "feddyn")
    marks = [pytest.mark.slow] if again else []
    return pytest.param(name, mistake, id=f"{name}-{mistake.__name__}", marks=marks)


@pytest.mark.parametrize("text", ours.ADAPTERS)
def test_our_own_algorithms_conform(text: str) -> None:
    """On a problem in which all that probes change is changed at once.

    This is also the check of the reference: two accounts of each method agree.
    """
    rule = method(text)
    everything = replace(
        problem((9, 3, 24, 6, 12)),
        cohorts=CHANGING,
        dropped=LATE,
        decay=0.6,
        settings={**rule.settings, **rule.optional},
    )
    played = play(ours.ADAPTERS[text](), everything)
    for found, wanted in zip(played, play(rule(), everything), strict=True):
        assert set(found.states) == set(wanted.states) == set(rule.state_names())
        for states in (False, True):
            for name, a, b in pairs(found, wanted, states):
                assert gap(a, b) < 1e-12, name


@pytest.mark.parametrize("name", METHODS)
def test_the_reference_keeps_the_invariances(name: str) -> None:
    assert conform(METHODS[name], name).ok


@pytest.mark.parametrize(("name", "mistake"), [row(*one) for one in MISTAKES])
def test_every_mistake_is_named_and_no_other(name: str, mistake: Mistake) -> None:
    with np.errstate(all="ignore"):  # some of them diverge
        report = conform(functools.partial(made, METHODS[name], [mistake]), name)
    assert not report.ok
    assert [guess.mistakes for guess in report.guesses] == [(mistake.__name__,)]
    assert report.guesses[0].scope == "all"


def test_every_mistake_says_what_it_is() -> None:
    assert all(one.__doc__ and one.__doc__[-1] == "." for _, one in MISTAKES)
    assert all(
        one.__doc__[0].islower() or one.__doc__[0] in "Δη√μ−(|KFANxΣ⌈" for _, one in MISTAKES
    )


class Plain:
    """SCAFFOLD, FedDyn and FedAdam as somebody else may write them, right or wrong."""

    def __init__(self, kind: str, wrong: str = "") -> None:
        self.kind, self.wrong = kind, wrong

    def start(self, x0: Any, clients: Any, **settings: float) -> None:
        self.x, self.clients, self.settings = x0, clients, settings
        self.h = x0 * 0 if self.wrong != "controls at the model" else x0.copy()
        self.hs = {i: self.h.copy() for i in range(len(clients))}
        self.m, self.v, self.t = x0 * 0, x0 * 0 + settings.get("eps", 0) ** 2, 0

    def round(self, cohort: Any, batches: Any, lr: float, epochs: int, dropped: Any = ()) -> Any:
        self.t += 1
        present = [i for i in cohort if i not in dropped]
        mu, x = self.settings.get("mu", 0.0), self.x
        results, moves = [], []
        for i in present:
            client, y = self.clients[i], x
            for rows in list(batches[i]) * epochs:
                d = client.grad(y, rows)
                if self.kind == "scaffold":
                    d = d + (self.h - self.hs[i])
                if self.kind == "feddyn":
                    pull = y - x
                    if self.wrong == "no square":
                        pull = pull / max(2 * np.sqrt(pull @ pull), 1e-300)
                    d = d - mu * self.hs[i] + mu * pull
                y = y - lr * d
            results.append(y)
            K = len(batches[i]) * epochs
            if self.wrong == "epochs":
                K = epochs
            if self.wrong == "samples":
                K = client.n * epochs
            if self.kind == "scaffold":
                new = self.hs[i] - self.h + (x - y) / (K * lr)
                if self.wrong == "sign":
                    new = self.hs[i] - self.h - (x - y) / (K * lr)
                moves.append(new - self.hs[i])
                self.hs[i] = new
            if self.kind == "feddyn":
                moves.append(x - y)
                self.hs[i] = self.hs[i] + (x - y)
        mean = np.mean(results, axis=0)
        if self.wrong == "planned":
            mean = np.sum(results, axis=0) / len(cohort)
        if self.kind == "scaffold":
            everybody = len(present) if self.wrong == "cohort" else len(self.clients)
            self.h = self.h + np.sum(moves, axis=0) / everybody
            self.x = mean
        elif self.kind == "feddyn":
            self.h = self.h + np.sum(moves, axis=0) / len(self.clients)
            self.x = mean - self.h
        else:
            sizes = [self.clients[i].n for i in present]
            g = x - np.average(results, axis=0, weights=sizes)
            b1, b2 = self.settings["beta1"], self.settings["beta2"]
            self.m = b1 * self.m + (1 - b1) * g
            self.v = b2 * self.v + (1 - b2) * (self.m if self.wrong == "from m" else g) ** 2
            self.x = x - self.settings["server_lr"] * self.m / (
                np.sqrt(self.v) + self.settings["eps"]
            )
        return self.x


class Stateless(Plain):
    def __init__(self, wrong: str = "") -> None:
        super().__init__("scaffold", wrong)

    def start(self, x0: Any, clients: Any) -> None:
        super().start(x0, clients)


class PlainScaffold(Stateless):
    def states(self) -> Any:
        return {"c": self.h, "c_i": list(self.hs.values())}


@pytest.mark.parametrize(
    ("kind", "wrong", "named"),
    [
        ("scaffold", "sign", "PathSign"),
        ("scaffold", "epochs", "Epochs"),
        ("scaffold", "samples", "Samples"),
        ("scaffold", "cohort", "CohortForN"),
        ("scaffold", "planned", "PlannedModels"),
        ("scaffold", "controls at the model", "ControlsAtModel"),
        ("feddyn", "no square", "PullNotSquared"),
        ("feddyn", "planned", "PlannedModels"),
        ("fedadam", "from m", "VFromM"),
    ],
)
def test_somebody_else_s_code(kind: str, wrong: str, named: str) -> None:
    def make(wrong: str) -> Plain:
        return PlainScaffold(wrong) if kind == "scaffold" else Plain(kind, wrong)

    assert conform(lambda: make(""), kind).ok
    report = conform(lambda: make(wrong), kind)
    assert [guess.mistakes for guess in report.guesses] == [(named,)]


def test_mistakes_that_give_the_same_models_are_all_named() -> None:
    """With −c for c and −c_i for c_i, one is the other; states tell them apart."""
    report = conform(lambda: Stateless("sign"), "scaffold")
    assert [one.mistakes for one in report.guesses] == [("CorrectionSign",), ("PathSign",)]
    assert str(report).splitlines()[-1].startswith("or with the opposite sign, y − x for x − y")


def test_two_mistakes_at_once_are_both_named() -> None:
    both = [one for one in mistakes(METHODS["feddyn"]) if one.__name__ in ("NoPull", "SumMinusX")]
    report = conform(functools.partial(made, METHODS["feddyn"], both), "feddyn")
    assert [guess.mistakes for guess in report.guesses] == [("NoPull", "SumMinusX")]


def test_unknown_mistakes_are_not_guessed() -> None:
    class Odd(Rule):
        def server(self) -> Any:
            return super().server() * 1.01

    report = conform(Odd, "fedavg")
    assert not report.ok
    assert report.guesses == ()
    assert "no known mistake" in str(report)


def test_a_deviation_has_round_quantity_equation_and_numbers() -> None:
    report = conform(lambda: PlainScaffold("sign"), "scaffold")
    found = {one.probe: one for one in report.findings}
    assert found["identical clients"].outcome == "passes"  # where controls cancel
    states = found["states"]
    assert (states.round, states.quantity) == (1, "c_i of client 0")
    assert states.equation == "c_i ← c_i − c + (x − y_i) / (K_i η)"
    np.testing.assert_allclose(states.found, -np.array(states.expected))
    assert found["changing cohorts"].round == 2
    with pytest.raises(NonConforming, match="y − x for x − y, in the new control variate"):
        report.check()


def test_what_is_not_finite_deviates_and_is_valid_json() -> None:
    class Nothing(PlainScaffold):
        def round(self, *given: Any, **more: Any) -> Any:
            return super().round(*given, **more) * np.nan

    report = conform(Nothing, "scaffold", probes=["permutation", "unequal steps"])
    assert [one.outcome for one in report.findings] == ["deviates"] * 2
    shown = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert shown["findings"][1]["found"] == [None] * 3
    assert "off by inf" in str(report)


def test_an_adapter_may_lack_states_and_dropouts_or_decline() -> None:
    class Small:
        def start(self, x0: Any, clients: Any) -> None:
            self.inner = METHODS["scaffold"]()
            self.inner.start(x0, clients)

        def round(self, cohort: Any, batches: Any, lr: float, epochs: int) -> Any:
            if lr < 0.1:
                raise NotImplementedError("The step size is fixed.")
            return self.inner.round(cohort, batches, lr, epochs)

    report = conform(Small, "scaffold")
    assert report.ok
    notes = {one.probe: one.note for one in report.findings if one.outcome == "not applicable"}
    assert set(notes) == {"step size decay", "dropped clients", "states"}
    assert notes["step size decay"] == "The step size is fixed."


def test_an_error_in_an_adapter_is_told_with_its_line() -> None:
    class Broken(PlainScaffold):
        def round(self, *given: Any, **more: Any) -> Any:
            raise KeyError("weight")

    report = conform(Broken, "scaffold", probes=["unequal steps"])
    assert not report.ok
    assert "KeyError in line" in (report.findings[0].note or "")


@pytest.mark.parametrize(
    ("adapter", "text", "message"),
    [
        (PlainScaffold, "scafold", "did you mean 'scaffold'?"),
        (PlainScaffold, "scaffold(option=3)", "scaffold(option=3): choose one of (2, 1)"),
        (PlainScaffold, "scaffold(options=1)", "did you mean 'option'?"),
        (PlainScaffold, "feddyn", "start does not take mu, which feddyn needs"),
        (object, "fedavg", "object has no method 'start'"),
    ],
)
def test_a_user_s_mistakes(adapter: Any, text: str, message: str) -> None:
    with pytest.raises(UndriftError) as error:
        conform(adapter, text)
    assert message in str(error.value)


def test_a_wrong_shape_and_an_unknown_state_are_told() -> None:
    class Short(PlainScaffold):
        def round(self, *given: Any, **more: Any) -> Any:
            return super().round(*given, **more)[:2]

    class Named(PlainScaffold):
        def states(self) -> Any:
            return {"control": self.h}

    with pytest.raises(UndriftError, match=r"Short.round returned 2 numbers; the model has 3"):
        conform(Short, "scaffold")
    with pytest.raises(UndriftError, match="no state is called 'control'"):
        conform(Named, "scaffold")
    with pytest.raises(UndriftError, match="no probe is called 'shift'"):
        conform(PlainScaffold, "scaffold", probes=["shift"])


def test_variants_are_methods_of_their_own() -> None:
    rule = type("Uniform", (METHODS["fedavg"],), {"weights": "uniform"})
    assert conform(rule, "fedavg(weights='uniform')").ok
    assert [one.mistakes for one in conform(rule, "fedavg").guesses] == [("EqualWeights",)]
    assert conform(type("One", (METHODS["scaffold"],), {"option": 1}), "scaffold(option=1)").ok


def test_the_optional_setting_is_given_to_those_who_take_it() -> None:
    assert conform(PlainScaffold, "scaffold").settings == {}
    assert conform(Rule, "fedavg", probes=["unequal steps"]).settings == {"server_lr": 0.7}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    main(["new", "adapter", "Mine"])
    return tmp_path


def test_the_command_prints_a_table_and_its_exit_code(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["conform", "./mine.py:Mine"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "conforms: all 9 probes that apply pass"
    assert [line[16:39].strip() for line in lines if line[:1] in "pn"] == list(PROBES)
    with pytest.raises(SystemExit) as exit:
        main(["conform", "./mine.py:Mine", "--method", "scaffold", "--json"])
    assert exit.value.code == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["adapter"] == "./mine.py:Mine"
    assert shown["guesses"][0]["mistakes"] == ["SampleWeights", "NoCorrection"]


def test_the_command_lists_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    main(["conform", "--methods"])
    text = capsys.readouterr().out
    assert "feddyn      start(x0, clients, mu)" in text
    main(["conform", "--methods", "--json"])
    assert set(json.loads(capsys.readouterr().out)) == set(METHODS)


@pytest.mark.parametrize("name", ["mine", "./mine.py"])
def test_what_is_no_adapter(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["conform", name])
    assert exit.value.code == 2
    assert "is no adapter" in capsys.readouterr().err


def test_the_public_name() -> None:
    assert undrift.conform is conform


def test_the_page_shows_the_committed_results() -> None:
    results = json.loads((Path(matrix.__file__).parent / "results.json").read_text("utf-8"))
    libraries = {some[0]["library"]: some for some in results["reports"].values()}
    assert len(libraries) >= 5
    assert all(report["ok"] for report in libraries["undrift"])
    assert {report["method"] for report in libraries["undrift"]} == set(ours.ADAPTERS)
    assert f"\n{matrix.page(results)}\n<!-- end of results -->" in matrix.PAGE.read_text("utf-8")


def test_results_of_libraries_that_did_not_run_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, shown = tmp_path / "results.json", tmp_path / "conform.md"
    shown.write_text("<!-- results -->\n<!-- end of results -->", "utf-8")
    monkeypatch.setattr(matrix, "PAGE", shown)
    report = conform(lambda: PlainScaffold("sign"), "scaffold").to_dict()
    for script, setting in (("flower", "one"), ("ours", "two"), ("ours", "three")):
        facts = {"library": script, "version": "1", "setting": setting}
        monkeypatch.setattr(matrix, "run", lambda *_, facts=facts: [report | facts])
        monkeypatch.setattr("benchmarks.peers.__main__.install", lambda *_: None)
        monkeypatch.setattr("sys.argv", ["conform", "--only", script, "--out", str(out)])
        matrix.main()
    assert list(json.loads(out.read_text("utf-8"))["reports"]) == ["ours", "flower"]
    text = shown.read_text("utf-8")
    assert "| ours 1 | scaffold (three) | ✓ |" in text
    assert "All numbers are those of the reference with the opposite sign" in text
