"""Products of layers by the library: torch's, and oneDNN's where torch's use half of the processor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from covey.learn.kernels import products
from covey.learn.kernels.products import WORTH, WORTH_UPDATE, Plain, Wide, library, operations

IN, OUT = 130, 90
SAMPLES = WORTH_UPDATE // (2 * IN * OUT) + 2
needs_onednn = pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch without oneDNN")


def clients(samples: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights and biases as views of rows of models, which begin where they will; x, δ."""
    torch.manual_seed(samples)
    models = torch.randn(3, IN * OUT + OUT + 7)
    weight, bias = models[:, 3 : 3 + IN * OUT].unflatten(1, (OUT, IN)), models[:, 3 + IN * OUT : 3 + IN * OUT + OUT]
    return weight, bias, torch.randn(3, samples, IN), torch.randn(3, samples, OUT)


@needs_onednn
@pytest.mark.parametrize("samples", [0, 1, 50, SAMPLES])
@pytest.mark.parametrize("leak", [None, 0.0, 0.1])
def test_wide_products_lose_no_more_than_float32(samples: int, leak: float | None) -> None:
    weight, bias, x, delta = clients(samples)
    wide, plain = Wide(), Plain()
    exact = plain.layer(x.double(), weight.double(), bias.double(), leak)
    allowed = 3 * (plain.layer(x, weight, bias, leak) - exact).abs().amax() + 1e-6 if samples else 0
    assert ((wide.layer(x, weight, bias, leak) - exact).abs() <= allowed).all()
    for one, each in zip(exact, zip(x, weight, bias, strict=True), strict=True):
        assert ((wide.one(*each, leak) - one).abs() <= allowed).all()
    for beta in (1.0, 0.9):
        updated = []
        for way, kind in ((plain, torch.float64), (plain, torch.float32), (wide, torch.float32)):
            w, b = weight.to(kind).clone(), bias.to(kind).clone()
            way.update(w, b, delta.to(kind), x.to(kind), beta, -0.1)
            updated.append(torch.cat([w.flatten(1), b], 1).double())
        truth, single, ours = updated
        assert (ours - truth).abs().max() <= 3 * (single - truth).abs().max() + 1e-6


@needs_onednn
def test_wide_products_write_into_the_models_that_they_are_given_alone() -> None:
    models = torch.randn(2, IN * OUT + OUT + 4)
    before = models.clone()
    weight, bias = models[:, 2 : 2 + IN * OUT].unflatten(1, (OUT, IN)), models[:, 2 + IN * OUT : -2]
    Wide().update(weight, bias, torch.randn(2, SAMPLES, OUT), torch.randn(2, SAMPLES, IN), 1.0, -0.1)
    assert torch.equal(models[:, :2], before[:, :2]) and torch.equal(models[:, -2:], before[:, -2:])
    assert not torch.equal(models, before)


@needs_onednn
def test_a_lost_model_is_seen_in_wide_products() -> None:
    weight, bias, x, _ = clients(SAMPLES)
    assert operations(weight[0], SAMPLES) >= WORTH
    weight[1, 5, 5] = torch.nan
    out = Wide().layer(x, weight, bias, 0.0)
    assert out[1, :, 5].isnan().all()
    assert not out[[0, 2]].isnan().any()


@pytest.mark.parametrize("halves", [True, False])
def test_the_processor_decides_and_a_switched_off_library_is_heeded(
    monkeypatch: pytest.MonkeyPatch, halves: bool
) -> None:
    monkeypatch.setattr(products, "halves_its_registers", lambda: halves)
    assert isinstance(library(torch.device("cpu")), Wide) is halves
    assert type(library(torch.device("cuda"))) is Plain
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert type(library(torch.device("cpu"))) is Plain
