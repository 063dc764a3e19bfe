"""The commands that take models out of a run: export, predict."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.errors import CoveyError

if TYPE_CHECKING:
    from covey.results.models import Models

Folder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run, or a silo's --state folder.")]
Cluster = Annotated[int | None, typer.Option(metavar="N", min=0, help="The model of this cluster.")]
Client = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The model that this client predicts with: its name, or its number from 0."),
]


def export(
    folder: Folder,
    to: Annotated[str, typer.Option(metavar="FORM", help="safetensors, onnx or state_dict.")] = "safetensors",
    cluster: Cluster = None,
    client: Client = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the files; default `RUN/export`.")] = None,
) -> None:
    """The models of a run as files for other tools.

    All clusters' models, or the one that is named; export.json says what they read and give.

    Example:

        covey export runs/ifca-digits-1 --to onnx --cluster 2
    """
    models, own = opened(folder)

    from covey.results.export import export as write

    for path in write(
        models, to, out or folder / "export", cluster, own if cluster is None and client is None else client
    ):
        print(path)


def predict(
    folder: Folder,
    samples: Annotated[Path, typer.Argument(help="New samples: .npz with x, .npy, .csv, .parquet.")],
    cluster: Cluster = None,
    client: Client = None,
    labelled: Annotated[
        Path | None,
        typer.Option(help="Samples of the same source with labels: the cluster that fits them best predicts."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; default: standard output.")] = None,
) -> None:
    """What a run's models say of new samples.

    Whose model? A client's or a cluster's that you name, else the one that fits labelled samples, else the only one there is.

    Example:

        covey predict runs/ifca-digits-1 new.npz --client 3
    """
    models, own = opened(folder)

    from covey.data.own.new import by_own_rows, read_samples

    if own is not None and client is None and cluster is None and labelled is None:
        client = own
    label = _label(folder, models) if own is None else ()
    x, _ = read_samples(samples, models.network.input_shape, models.columns, label)
    if by_own_rows(models.columns):
        print(
            f"covey: numbers are standardised with mean and deviation of these {len(x)} rows, as each client's were with its own: "
            "among other rows the same sample may be predicted otherwise",
            file=sys.stderr,
        )
    known = None
    if labelled is not None:
        given, labels = read_samples(labelled, models.network.input_shape, models.columns, label, labelled=True)
        if labels is None:
            wanted = " and ".join(label) or "label"
            raise CoveyError(f"{labelled} holds no labels: add y to an .npz, or the column {wanted} to a table")
        known = (given, labels)
        print(f"covey: cluster {models.nearest(*known)} fits the labelled samples best", file=sys.stderr)
    shares = models.probabilities(x, client=client, cluster=cluster, labelled=known)
    _write(models, shares, out)


def _label(folder: Path, models: Models) -> tuple[str, ...]:
    """The columns that a run's table had its labels in; none: a usual name, or the data were arrays."""
    from covey.metrics.totals import CLASSES
    from covey.results.folder import RunFolder

    if models.columns and models.network.task != CLASSES:
        return tuple(models.kept.classes)
    return RunFolder(folder).experiment().data.labels


def opened(folder: Path) -> tuple[Models, str | None]:
    """(the models of a run or of a silo, the client that a silo's folder is for)."""
    if not folder.is_dir():
        raise CoveyError(f"{folder} is no folder: give that of a finished run, or a silo's --state folder")

    from covey.deploy.model import MODEL, load_model
    from covey.results.folder import RunFolder

    if (folder / MODEL).is_file():
        return load_model(folder).trained(), "0"
    return RunFolder(folder).read_models(), None


def _write(models: Models, shares: Any, out: Path | None) -> None:
    said = models.words(shares)
    columns = ["sample", "prediction", *models.kept.classes]
    rows = [[i, word, *(f"{share:.6g}" for share in row)] for i, (word, row) in enumerate(zip(said, shares))]
    if out is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows([columns, *rows])
        return
    with out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
    print(out)
