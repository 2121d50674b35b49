"""Short federated runs on the real files learn something clearly above chance."""

from pathlib import Path

import pytest

from benchmarks.learning import SETTINGS, Setting, run
from tests.data.real import FOLDER, real
from tests.data.test_images import cifar100, write
from tests.data.test_real_images import labelled100
from undrift.config import UndriftError
from undrift.data.files.fetch import use_data_dir

HALVES = ("train", "test")


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.data.split("(")[0])
def test_learns(setting: Setting, tmp_path: Path) -> None:
    folder = FOLDER
    if setting.data == "cifar100":  # the real images, written out in the published layout
        folder = tmp_path
        zips = {half: real("cifar100") / f"cifar100/cifar100-{half}.zip" for half in HALVES}
        write(folder, cifar100("bin", {half: labelled100(zips[half]) for half in HALVES}))
    try:
        row = run(setting, folder)
    except UndriftError as error:
        pytest.skip(str(error))
    finally:
        use_data_dir(None)
    assert row["accuracy"] > setting.above * row["chance"]
