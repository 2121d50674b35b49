"""Compares implementations of other libraries, and ours, with the methods they are named after.

    python -m benchmarks.conform            # everything; environments are installed first
    python -m benchmarks.conform --only flower ours
    python -m benchmarks.conform --draw     # the page from the results alone

Each library runs in an environment of its own, those of `benchmarks.peers`. Adapters drive the
library's own code on the probes of `undrift conform`. Results go to results.json, and from there
into docs/conform.md. What a session does not run stays in the results.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import io
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.tables import between

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "conform.md"
SCRIPTS = {
    # script of this folder → the environment it runs in (None: ours)
    "ours": None,
    "flower": "flower",
    "pfl_research": "pfl",
    "fedlab_": "fedlab",
    "fedsim_": "fedsim",
    "fedjax_": "fedjax",
    "fluke_": "fluke",
}
SIGNS = {"passes": "✓", "deviates": "**✗**", "fails": "**!**", "not applicable": "–"}


def probe(script: str) -> None:
    """Run all adapters of a script in this process and print one line of JSON for each."""
    from undrift.checks.conform import conform

    sys.path[:0] = [str(HERE), str(HERE.parent / "peers")]
    module = importlib.import_module(script)
    for name, adapter in module.ADAPTERS.items():
        method, _, setting = name.partition(": ")
        with contextlib.redirect_stdout(io.StringIO()):  # what libraries tell
            report = conform(adapter, method).to_dict()
        facts = {
            "library": module.LIBRARY,
            "version": version(module.PACKAGE),
            "setting": setting,
            "adapter": f"{script}:{getattr(adapter, '__name__', module.LIBRARY)}",
        }
        report["findings"] = [
            {key: value for key, value in one.items() if value is not None}
            for one in report["findings"]
        ]
        print(json.dumps(facts | report), flush=True)


def run(script: str, python: str | Path) -> list[dict[str, Any]]:
    """The reports of a script, in the environment of this interpreter."""
    outside = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    command = [python, "-W", "ignore", "-m", "benchmarks.conform", "--probe", script]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | outside, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"library"')]


def shown(text: str) -> str:
    """For a cell of a table."""
    return text.replace("|", "\\|")


def made(results: dict[str, Any]) -> str:
    """Which libraries were run when."""
    days: dict[str, list[str]] = {}
    for script, some in results["reports"].items():
        days.setdefault(results["dates"][script], []).append(some[0]["library"])
    return "; ".join(f"{', '.join(names)} on {day}" for day, names in sorted(days.items()))


def page(results: dict[str, Any]) -> str:
    """Tables of all results, in Markdown."""
    reports = [one for some in results["reports"].values() for one in some]
    probes = [one["probe"] for one in reports[0]["findings"]]
    lines = [
        f"Made by `{results['command']}`: {made(results)}.",
        "",
        "| library | method | " + " | ".join(str(k) for k in range(1, len(probes) + 1)) + " |",
        "|:--|:--|" + ":-:|" * len(probes),
    ]
    for one in reports:
        signs = " | ".join(SIGNS[finding["outcome"]] for finding in one["findings"])
        setting = f" ({one['setting']})" if one["setting"] else ""
        name = f"{one['library']} {one['version']}"
        lines.append(f"| {name} | {shown(one['method'] + setting)} | {signs} |")
    legend = ", ".join(f"{k} {name}" for k, name in enumerate(probes, 1))
    lines += ["", f"✓ passes, ✗ deviates, – does not apply. Probes: {legend}.", ""]
    for one in reports:
        deviating = [f for f in one["findings"] if f["outcome"] in ("deviates", "fails")]
        if not deviating:
            continue
        first = next((f for f in deviating if f["probe"] != "states"), deviating[0])
        told = first.get("note") or (
            f"in round {first['round']}, {first['quantity']} is off by {first['gap']:.2g}. "
            f"By definition: {first['equation']}"
        )
        lines += [
            f"**{one['library']} {one['version']}, {one['method']}**"
            + (f" ({one['setting']})" if one["setting"] else ""),
            "",
            f"- {first['probe']}: {told}",
        ]
        if not one["guesses"]:
            lines.append("- No known difference reproduces the numbers.")
        for guess in one["guesses"]:
            what = "All numbers" if guess["states"] else "All models"
            what = what if guess["scope"] == "all" else f"The models in {guess['scope']}"
            lines.append(f"- {what} are those of the reference with {guess['says']}.")
        lines.append("")
    return "\n".join(lines).rstrip()


def draw(results: dict[str, Any]) -> None:
    """Put the tables into the page."""
    text = between(PAGE.read_text(encoding="utf-8"), "results", page(results))
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=list(SCRIPTS))
    parser.add_argument("--envs", type=Path, default=HERE.parent / "peers" / ".envs")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--draw", action="store_true", help="run nothing, draw the page")
    parser.add_argument("--probe", choices=SCRIPTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.probe:
        probe(given.probe)
        return
    results: dict[str, Any] = {"reports": {}, "dates": {}}
    if given.out.exists():
        results = json.loads(given.out.read_text(encoding="utf-8"))
    if not given.draw:
        from benchmarks.peers.__main__ import ENVIRONMENTS, install, say

        for script in given.only:
            name = SCRIPTS[script]
            if name and (reason := install(name, given.envs.absolute())):
                say(f"{script}: {reason}")
                continue
            python = given.envs.absolute() / name / "bin" / "python" if name else sys.executable
            results["reports"][script] = run(script, python)
            results["dates"][script] = datetime.datetime.now(datetime.UTC).date().isoformat()
            results["environments"] = {k: ENVIRONMENTS[k] for k in SCRIPTS.values() if k}
            good = [one["method"] for one in results["reports"][script] if one["ok"]]
            say(f"{script}: {len(good)} of {len(results['reports'][script])} conform")
        results["command"] = "make conform"
        results["reports"] = {k: results["reports"][k] for k in SCRIPTS if k in results["reports"]}
        text = json.dumps(results, indent=1, ensure_ascii=False)
        given.out.write_text(text + "\n", encoding="utf-8")
    draw(results)


if __name__ == "__main__":
    main()
