"""Runs in a library's own environment: all its adapters, one line of JSON for each."""

from __future__ import annotations

import importlib
import json
import sys
from importlib.metadata import version

from undrift.checks.conform import conform


def main(name: str) -> None:
    module = importlib.import_module(name)
    for method, adapter in module.ADAPTERS.items():
        text, _, setting = method.partition(": ")
        report = conform(adapter, text).to_dict()
        facts = {"library": module.LIBRARY, "version": version(module.PACKAGE), "setting": setting}
        print(json.dumps(facts | report), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
