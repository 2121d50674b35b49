"""MNIST and Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from undrift.config import UndriftError, flag
from undrift.data.files.fetch import File, digest, find, locate
from undrift.data.files.formats import read_idx
from undrift.data.source import Source
from undrift.data.sources.images import ImageSet, flat, grey, idx_names
from undrift.data.transforms import Normalise

NAMES = idx_names("", ("train", "t10k"))
PUBLISHED = (60_000, 10_000)


def _files(base: str, *checksums_and_sizes: tuple[str, str, int]) -> tuple[File, ...]:
    return tuple(
        File(name, f"{base}/{name}", *facts)
        for name, facts in zip(NAMES, checksums_and_sizes, strict=True)
    )


@dataclass(frozen=True)
class MNIST(ImageSet):
    """Handwritten digits: 60,000 images of 28 x 28 pixels to train on, 10,000 to test on.

    normalised  whether pixels are normalised by the mean and deviation of all training pixels,
                .1307 and .3081; else they are from 0 to 1, as in FedGLAD's code

    Reference: LeCun et al., Gradient-based learning applied to document recognition, 1998.
    """

    class_names = tuple("0123456789")
    folder = "mnist"
    layouts = ("MNIST/raw",)
    files = _files(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            9_912_422,
        ),
        (
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "d53e105ee54ea40749a09fcbcd1e9432",
            28_881,
        ),
        (
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "9fb629c4189551a2d022fa330f9573f3",
            1_648_877,
        ),
        (
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ec29112dd5afa0611ce80d1b7f02629c",
            4_542,
        ),
    )

    _: KW_ONLY
    normalised: bool = flag(True)

    def instead(self, file: File) -> Sequence[Sequence[str]]:
        return [[file.name.removesuffix(".gz")]]

    def read(self) -> Source:
        unpacked = find(self.folder, [name.removesuffix(".gz") for name in NAMES], self.layouts)
        paths = list((unpacked or locate(self.folder, self.files, self.layouts)).values())
        for other in (MNIST, FashionMNIST):  # their files have the same names
            if other is not type(self) and digest(paths[0]) == other.files[0].md5:
                raise UndriftError(
                    f"{paths[0]}: this is {other.__name__}, not {type(self).__name__}; put them "
                    f"into separate folders, {other.folder} and {self.folder}"
                )
        x, y, test_x, test_y = (read_idx(path, sum(PUBLISHED) * 28 * 28) for path in paths)
        train = grey(x, 28, paths[0]), flat(y, paths[1])
        test = grey(test_x, 28, paths[2]), flat(test_y, paths[3])
        plain = None if self.normalised else Normalise((0.0,), (1.0,))
        return self.assemble(train, test, 10, PUBLISHED, plain, class_names=self.class_names)


@dataclass(frozen=True)
class FashionMNIST(MNIST):
    """Clothes in ten classes, in the shape of MNIST: 60,000 images to train on, 10,000 to test on.

    normalised  whether pixels are normalised by the mean and deviation of all training pixels,
                .2860 and .3530; else they are from 0 to 1

    Reference: Xiao, Rasul and Vollgraf, Fashion-MNIST, arXiv:1708.07747, 2017.
    """

    class_names = (
        *("t-shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    )
    folder = "fashion-mnist"
    layouts = ("FashionMNIST/raw",)
    files = _files(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            26_421_880,
        ),
        (
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "25c81989df183df01b3e8a0aad5dffbe",
            29_515,
        ),
        (
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "bef4ecab320f06d8554ea6380940ec79",
            4_422_102,
        ),
        (
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            "bb300cfdad3c16e7a12a480ee83cd310",
            5_148,
        ),
    )
