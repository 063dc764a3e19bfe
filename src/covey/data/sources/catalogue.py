"""Every dataset that covey knows: what it is, in which forms it may lie on disk, under which licence."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from covey.data.dataset import Dataset
from covey.data.sources import cifar, class_names, faces, generated, idx, packed, tabular, text
from covey.data.sources.files import Source, held_out
from covey.errors import CoveyError


def digits() -> Dataset:
    """1,797 real 8 × 8 digits that ship inside scikit-learn, with their 17 grey levels spread over a byte."""
    package = importlib.util.find_spec("sklearn")  # only where it is: importing it takes longer than most runs
    if package is None or package.origin is None:
        raise CoveyError(
            "digits ships inside scikit-learn, which is not installed here; install it or take another dataset."
        )
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not file.is_file():
        raise CoveyError(f"digits ships inside scikit-learn, but {file} is not there: reinstall scikit-learn.")
    rows = np.loadtxt(file, delimiter=",")  # [1797, 65]: the pixels from 0 to 16, then the digit
    x = np.rint(rows[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    y = rows[:, -1].astype(np.int64)
    test = held_out(y, key=0)
    return Dataset("digits", x[~test], y[~test], x[test], y[test], class_names.DIGITS)


# md5 of the published files, as their authors or torchvision give them
MNIST_MD5 = (
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
FASHION_MD5 = (
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)
CIFAR10_MD5 = ("c32a1d4ab5d03f1284b67883e8d87530", "c58f30108f718f92721af3b95e74349a")  # binary, python
CIFAR100_MD5 = ("03b5dce01913d631647c71ecec9e9cb8", "eb9058c3a382ffc7106e4002c42a8d85")

# sha256 of the packed files
PACKED = {
    "mnist": "a7ca5941ed14a4e275a85c70d92dc1ec30216050a9a8efb4cd648939b6ce6b80",
    "fashion_mnist": "26ddcaeea2ffe7bf63a3e81a2bc12a5894bdab7e97a6511bf870f78fa1f3a3d8",
    "emnist_bymerge47": "d6dd05810bb0da99f3ba32455c424537226470e4844fb775c25212bc12227867",
    "cifar10": "8cc9571173e1b93455154af8bfa92778b4455acc55aa22986c861cafffbd3386",
    "cifar10_full": "a44cc18e4ad961b5158c7da062a6232fb65938b615bf013046199b823b75c43d",
    "cifar100": "9fe9d7d539d902d2660384f1abd0d67ba3137a160f7c2ed3174644b52ed56d40",
    "location30": "ef56f2add9b2b3017024e72fa6dbcbda51ce7effc8306c45a870bb6da60d2965",
    "lfw": "ddf9610f2604669450487a51b0fc6dcc7fad3b46615ce0cae10a9fc9c3ff96a6",
    "utkface": "bae6f8efd05cca8041b4a828d52ec3279f7f90e046a034322cd4e4abc07d7231",
}

MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
FASHION_MIRRORS = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
CITE_SHOKRI = "none stated by the authors; cite Shokri et al. 2017"
CITE_KRIZHEVSKY = "none stated by the authors; cite Krizhevsky 2009"
WHOLE = (60_000, 10_000)

DIGITS = Source(
    name="digits",
    title="8x8 handwritten digits, embedded",
    kind="image",
    classes=10,
    licence="CC BY 4.0 (UCI), shipped in scikit-learn (BSD-3-Clause)",
    shape=(8, 8),
    make=digits,
)

MNIST = Source(
    name="mnist",
    label="MNIST",
    title="MNIST handwritten digits",
    kind="image",
    classes=10,
    licence="CC BY-SA 3.0 (LeCun, Cortes, Burges)",
    forms=(
        *idx.forms("mnist", class_names.DIGITS, MNIST_MIRRORS, MNIST_MD5, "MNIST/raw"),
        packed.form("mnist", class_names.DIGITS, PACKED["mnist"], WHOLE),
    ),
    shape=(28, 28),
)

FASHION_MNIST = Source(
    name="fashion_mnist",
    label="Fashion-MNIST",
    title="Fashion-MNIST articles of clothing",
    kind="image",
    classes=10,
    licence="MIT (Zalando)",
    forms=(
        *idx.forms("fashion_mnist", class_names.FASHION, FASHION_MIRRORS, FASHION_MD5, "FashionMNIST/raw"),
        packed.form("fashion_mnist", class_names.FASHION, PACKED["fashion_mnist"], WHOLE),
    ),
    shape=(28, 28),
)

EMNIST = Source(
    name="emnist",
    label="EMNIST",
    title="EMNIST Balanced, digits and letters",
    kind="image",
    classes=47,
    licence="public domain in the US (NIST)",
    forms=idx.emnist_forms(class_names.EMNIST47),
    shape=(28, 28),
)

EMNIST_BYMERGE47 = Source(
    name="emnist_bymerge47",
    label="EMNIST ByMerge",
    title="EMNIST ByMerge: a packed subset with the 47 classes of Balanced",
    kind="image",
    classes=47,
    licence="public domain in the US (NIST)",
    forms=(
        packed.form(
            "emnist_bymerge47",
            class_names.EMNIST47,
            PACKED["emnist_bymerge47"],
            whole=116_323,
            split="of the official test part, with a split of its own",
        ),
    ),
    shape=(28, 28),
    by_hand="whoever gave you this name (it is a packed subset; the published set is `emnist`)",
)

CIFAR10 = Source(
    name="cifar10",
    label="CIFAR-10",
    title="CIFAR-10 small photographs",
    kind="image",
    classes=10,
    licence=CITE_KRIZHEVSKY,
    forms=(
        *cifar.forms("cifar10", "cifar-10", ("cifar-10-batches-bin", "cifar-10-batches-py"), CIFAR10_MD5),
        packed.form("cifar10", class_names.CIFAR10, PACKED["cifar10_full"], (50_000, 10_000), file="cifar10_full"),
        packed.form("cifar10", class_names.CIFAR10, PACKED["cifar10"], None, 60_000, "with the official split"),
    ),
    shape=(32, 32, 3),
)

CIFAR100 = Source(
    name="cifar100",
    label="CIFAR-100",
    title="CIFAR-100 small photographs, fine labels",
    kind="image",
    classes=100,
    licence=CITE_KRIZHEVSKY,
    forms=(
        *cifar.forms("cifar100", "cifar-100", ("cifar-100-binary", "cifar-100-python"), CIFAR100_MD5),
        packed.form("cifar100", class_names.CIFAR100, PACKED["cifar100"], None, 60_000, "with a split of its own"),
    ),
    shape=(32, 32, 3),
)

PURCHASE100 = Source(
    name="purchase100",
    label="Purchase100",
    title="Purchase100 shopping histories, 0/1",
    kind="binary",
    classes=100,
    licence=CITE_SHOKRI,
    forms=tabular.forms(tabular.PURCHASE, "dataset_purchase.tgz"),
    shape=(600,),
)

TEXAS100 = Source(
    name="texas100",
    label="Texas100",
    title="Texas100 hospital stays, 0/1",
    kind="binary",
    classes=100,
    licence=CITE_SHOKRI,
    forms=tabular.forms(tabular.TEXAS, "dataset_texas.tgz"),
    shape=(6_169,),
)

LOCATION30 = Source(
    name="location30",
    label="Location-30",
    title="Location-30 Bangkok check-ins, 0/1",
    kind="binary",
    classes=30,
    licence=CITE_SHOKRI + " and Yang et al. 2016",
    forms=tabular.forms(tabular.LOCATION, "dataset_location.tgz", PACKED["location30"]),
    shape=(446,),
)

LFW = Source(
    name="lfw",
    label="LFW",
    title="Labeled Faces in the Wild with attributes",
    kind="image",
    classes=2,
    licence="research use; the photographs keep their owners' rights",
    forms=faces.lfw_forms(PACKED["lfw"]),
    shape=(62, 47, 3),
    labels=("gender", "smile", "race"),
)

UTKFACE = Source(
    name="utkface",
    label="UTKFace",
    title="UTKFace with age, gender and race",
    kind="image",
    classes=2,
    licence="non-commercial research only",
    forms=faces.utk_forms(PACKED["utkface"]),
    shape=(32, 32, 3),
    labels=("gender", "race"),
    by_hand="https://susanqq.github.io/UTKFace/ (the aligned and cropped faces)",
)

YELP = Source(
    name="yelp",
    label="Yelp",
    title="Yelp reviews of the most prolific authors",
    kind="tokens",
    classes=5,
    licence="Yelp dataset terms: academic use only",
    forms=text.FORMS,
    shape=(text.LENGTH,),
    by_hand="https://www.yelp.com/dataset (its terms are to be accepted first)",
)

PURCHASE100_LIKE = Source(
    name="purchase100-like",
    title="generated stand-in for Purchase100",
    kind="binary",
    classes=100,
    licence="generated by covey",
    shape=(600,),
    make=generated.purchase100_like,
)

TEXAS100_LIKE = Source(
    name="texas100-like",
    title="generated stand-in for Texas100",
    kind="binary",
    classes=100,
    licence="generated by covey",
    shape=(6_169,),
    make=generated.texas100_like,
)

YELP_LIKE = Source(
    name="yelp-like",
    title="generated stand-in for Yelp reviews",
    kind="tokens",
    classes=5,
    licence="generated by covey",
    shape=(text.LENGTH,),
    make=generated.yelp_like,
)
