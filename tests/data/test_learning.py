"""Short federated runs on the real files learn something clearly above chance."""

import pytest

from benchmarks.learning import SETTINGS, Setting, run
from tests.data.real import FOLDER
from undrift.config import UndriftError
from undrift.data.fetch import use_data_dir


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.data.split("(")[0])
def test_learns(setting: Setting) -> None:
    try:
        row = run(setting, FOLDER)
    except UndriftError as error:
        pytest.skip(str(error))
    finally:
        use_data_dir(None)
    assert row["accuracy"] > setting.above * row["chance"]
