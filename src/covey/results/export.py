"""Models out of a run's folder, in the forms of other tools: a file for each model, and export.json about them.

safetensors and state_dict hold named tensors; onnx also holds the computation, from samples as the network reads them (pixels
from 0 to 1, channels first; see export.json) to its raw outputs: scores before softmax or sigmoid, or numbers.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from covey import files
from covey.errors import CoveyError, nearest
from covey.results.models import Models


def export(
    models: Models, form: str, out: Path, cluster: int | None = None, client: int | str | None = None
) -> list[Path]:
    """Writes the models of all clusters (of all clients, where each has its own), or the one that is named."""
    if form not in FORMS:
        raise CoveyError(f"models cannot be exported to '{form}'{nearest(form, list(FORMS))}")
    suffix, write = FORMS[form]
    modules = {name: models.module(**which) for name, which in _wanted(models, cluster, client).items()}
    if not modules:
        raise CoveyError(f"there is nothing to export: {models.there()}")
    paths = {name: out / f"{name}{suffix}" for name in modules}
    for name, module in modules.items():
        files.write_atomically(paths[name], write(models, module))
    files.write_json(out / "export.json", _about(models, form, paths))
    return list(paths.values())


def _wanted(models: Models, cluster: int | None, client: int | str | None) -> dict[str, dict[str, Any]]:
    if client is not None or cluster is not None:
        name = f"client-{_plain(str(client))}" if client is not None else f"cluster-{cluster}"
        models.choose(client, cluster)  # refuses what is not there
        return {name: {"client": client} if client is not None else {"cluster": cluster or 0}}
    if models.kept.clusters:
        return {f"cluster-{j}": {"cluster": j} for j in range(models.kept.clusters)}
    return {f"client-{_plain(models.called(i))}": {"client": models.called(i)} for i in sorted(models.kept.rows)}


def _plain(name: str) -> str:
    """A client's name as part of a file's."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def _about(models: Models, form: str, paths: dict[str, Path]) -> dict[str, Any]:
    network = models.network
    reads = {
        "shape": list(network.read_shape),
        "kind": network.kind,
        "pixels": "divided by 255" if network.kind == "image" else None,
        "task": network.task,
    }
    clients = {models.called(i): row for i, row in sorted(models.kept.rows.items())}
    return {
        "model": str(network.name),
        "form": form,
        "files": {name: path.name for name, path in paths.items()},
        "reads": {key: value for key, value in reads.items() if value is not None},
        "columns": models.kept.columns,  # of a table: how its columns become the sample, one after the other
        "outputs": models.kept.classes,
        "clients": clients if models.kept.clusters else {},  # client -> the cluster's model that it uses
    }


def _safetensors(models: Models, module: nn.Module) -> bytes:
    save = _needs("safetensors.torch").save
    tensors = {name: tensor.contiguous().clone() for name, tensor in module.state_dict().items()}
    data: bytes = save(tensors, metadata={"format": "pt", "model": str(models.network.name)})
    return data


def _state_dict(models: Models, module: nn.Module) -> bytes:
    held = io.BytesIO()
    torch.save(module.state_dict(), held)
    return held.getvalue()


def _onnx(models: Models, module: nn.Module) -> bytes:
    _needs("onnx")
    _needs("onnxscript")
    network = models.network
    example = torch.zeros(3, *network.read_shape, dtype=torch.int64 if network.kind == "tokens" else torch.float32)
    # The exporter tells its steps to whoever listens; what matters is whether it failed.
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        _quiet("torch.onnx._internal.exporter._registration"),
    ):
        warnings.simplefilter("ignore")
        try:
            program = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                input_names=["x"],
                output_names=["outputs"],
                dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),  # or it fails: never a fixed number of samples
            )
            data: bytes = cast(Any, program).model_proto.SerializeToString()
        except Exception as e:
            lines = str(e).strip().splitlines() or [""]
            raise CoveyError(
                f"model '{network.name}' cannot be written as ONNX ({type(e).__name__}: {lines[0][:200]}): "
                "export it to safetensors or state_dict"
            ) from e
    return data


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _needs(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        package = module.partition(".")[0]
        raise CoveyError(f"{package} is not installed: `pip install 'covey[export]'` adds it") from e


FORMS: dict[str, tuple[str, Callable[[Models, nn.Module], bytes]]] = {
    "safetensors": (".safetensors", _safetensors),
    "onnx": (".onnx", _onnx),
    "state_dict": (".pt", _state_dict),
}
