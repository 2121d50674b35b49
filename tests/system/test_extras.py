"""Packages that only some purposes need."""

from pathlib import Path

import pytest

import undrift
from undrift.config import UndriftError
from undrift.system.extras import require

PACKAGE = Path(undrift.__file__).parent


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    assert require("json", "data", "this").loads("1") == 1
    with pytest.raises(UndriftError) as told:
        require("no_such_package", "data", "reading x.h5")
    assert str(told.value) == (
        "reading x.h5 needs no_such_package, which is not installed; install it with: "
        'pip install ".[data]" in a clone of undrift, or pip install "no_such_package"'
    )
    with pytest.raises(UndriftError, match='pip install "no_such_package"'):
        require("no_such_package", "", "this")


def test_nobody_else_says_how_to_install_packages() -> None:
    said = [p for p in PACKAGE.rglob("*.py") if "pip install" in p.read_text(encoding="utf-8")]
    assert said == [PACKAGE / "system" / "extras.py"]
