"""LoRA: low-rank adapters of a frozen base (Hu et al., ICLR 2022). Only the adapters and the output layer are trained and sent.

A linear layer W of the base becomes W + (alpha / rank) · B A, with A [rank, in] drawn at random and B [out, rank] zero, so that
training begins at the base. The base is a folder in the layout of `transformers` (config.json, model.safetensors), of which
nothing is fetched from anywhere, or any module of your own by its path. Its weights never leave a party and are in no vector:
every party must hold the same, which a deployment checks by their fingerprint.

Why not peft: docs/decisions.
"""

from __future__ import annotations

import copy
import fnmatch
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covey.errors import CoveyError
from covey.models.own import Own, as_torch_reads, first_line
from covey.names import import_path

ADAPTED = (nn.Linear,)


class Adapted(nn.Module):
    """A frozen linear layer with an adapter beside it."""

    def __init__(self, base: Any, rank: int, alpha: float, transposed: bool = False) -> None:
        super().__init__()
        self.base, self.scale = base, alpha / rank
        out, into = base.weight.shape[::-1] if transposed else base.weight.shape
        self.a = nn.Parameter(torch.empty(rank, into))
        self.b = nn.Parameter(torch.zeros(out, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + F.linear(F.linear(x, self.a), self.b) * self.scale
        return out


class Outputs(nn.Module):
    """A model of `transformers`, called with token ids alone; gives its scores alone. Padding (0) is not looked at."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.model(input_ids=tokens, attention_mask=(tokens != 0).to(torch.int64)).logits
        return scores


@dataclass(frozen=True)
class Lora:
    name: ClassVar[str] = "lora"
    title: ClassVar[str] = "low-rank adapters of a frozen base: set model.base"
    layout: ClassVar[str] = "own"
    given: ClassVar[bool] = False

    base: str = ""  # folder in the layout of transformers, or package.module:Net
    rank: int = 8
    alpha: float = 16.0  # adapters count alpha / rank
    targets: tuple[str, ...] = ()  # layers to adapt, by name or pattern; empty: every linear layer but the outputs
    train: tuple[str, ...] = ()  # layers that are trained whole; empty: the output layer

    def __post_init__(self) -> None:
        if not self.base:
            raise CoveyError(
                "model 'lora' needs model.base: a folder with config.json and model.safetensors, or package.module:Net"
            )
        if self.rank < 1 or not (math.isfinite(self.alpha) and self.alpha > 0):
            raise CoveyError(f"model.rank is {self.rank} and model.alpha {self.alpha}: both must be above 0")

    def read_shape(self, input_shape: tuple[int, ...], kind: str) -> tuple[int, ...]:
        return as_torch_reads(input_shape, kind)

    def build(self, input_shape: tuple[int, ...], classes: int, kind: str = "image", vocabulary: int = 0) -> nn.Module:
        module, fresh = self._base(input_shape, classes, kind, vocabulary)
        layers = {n: m for n, m in module.named_modules() if _width(m)}
        whole = self._whole(module, layers)
        chosen = [n for n in layers if n not in whole and (not self.targets or _matches(n, self.targets))]
        if not chosen:
            examples = ", ".join(list(layers)[:6]) or "none"
            raise CoveyError(
                f"model.targets {list(self.targets)} match no linear layer of the base: it has {examples} …"
            )
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        for name in whole:
            layer = module.get_submodule(name).requires_grad_(True)
            if any(f"{name}.{own}" in fresh for own, _ in layer.named_parameters()):
                _draw_anew(layer)
        for name in chosen:
            parent, _, own = name.rpartition(".")
            setattr(
                module.get_submodule(parent), own, Adapted(layers[name], self.rank, self.alpha, _turned(layers[name]))
            )
        return module

    def _whole(self, module: nn.Module, layers: dict[str, nn.Module]) -> list[str]:
        """The layers that are trained whole: as named, else those that come last."""
        if not self.train:
            return list(layers)[-1:]
        named = [n for n, m in module.named_modules() if n and _matches(n, self.train) and list(m.parameters())]
        if not named:
            raise CoveyError(f"model.train {list(self.train)} matches no layer of the base: it has {', '.join(layers)}")
        return named

    def _base(
        self, input_shape: tuple[int, ...], classes: int, kind: str, vocabulary: int
    ) -> tuple[nn.Module, frozenset[str]]:
        """The base, and which of its parameters it has no values for."""
        if ":" in self.base and not Path(self.base).exists():
            own = Own(self.base, import_path(self.base, "model"))
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)  # one base for all: its own code may read weights from a file
                return own.build(input_shape, classes, kind, vocabulary), frozenset()
        if not (Path(self.base) / "config.json").is_file():
            raise CoveyError(
                f"model.base is '{self.base}': expected a folder with config.json and model.safetensors, or package.module:Net"
            )
        if kind != "tokens":
            raise CoveyError(f"model.base '{self.base}' reads token ids, and the data is of kind '{kind}'")
        base, fresh = _from_folder(self.base, classes, _changed(self.base))
        model: Any = base.model
        rows = model.get_input_embeddings().weight.shape[0]
        if vocabulary > rows:
            raise CoveyError(
                f"the data has {vocabulary} token ids, the base in {self.base} knows {rows}: encode the texts with the "
                "base's own tokenizer"
            )
        return copy.deepcopy(base), fresh


def _changed(folder: str) -> float:
    """When a file of the folder was last written: then it is read again."""
    return max((file.stat().st_mtime for file in Path(folder).glob("*")), default=0.0)


@lru_cache(maxsize=2)
def _from_folder(folder: str, classes: int, changed: float) -> tuple[Outputs, frozenset[str]]:
    try:
        transformers: Any = import_module("transformers")
    except ModuleNotFoundError as e:
        raise CoveyError(
            "model.base is a folder of transformers, which is not installed: pip install 'covey[lora]'"
        ) from e
    logging = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # it warns that the output layer is new, which it is meant to be
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # what the folder lacks is the same for all parties
            model, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
                folder,
                num_labels=classes,
                local_files_only=True,
                use_safetensors=True,
                attn_implementation="eager",
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as e:
        raise CoveyError(f"the base in {folder} cannot be read: {type(e).__name__}: {first_line(e)}") from e
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
    lacking = {*loading["missing_keys"], *(one[0] for one in loading["mismatched_keys"])}
    return Outputs(model), frozenset(f"model.{name}" for name in lacking)


def _width(layer: nn.Module) -> bool:
    return isinstance(layer, ADAPTED) or _turned(layer)


def _turned(layer: nn.Module) -> bool:
    """Whether it is the linear layer of GPT-2, whose weights are [in, out]."""
    return type(layer).__name__ == "Conv1D" and hasattr(layer, "nf")


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, p) or name == p or name.endswith("." + p) for p in patterns)


def _draw_anew(layer: nn.Module) -> None:
    """What the base has no values for starts from the run's own key."""
    for inner in layer.modules():
        reset: Any = getattr(inner, "reset_parameters", None)
        if reset is not None:
            reset()
