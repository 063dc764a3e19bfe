"""Pictures from uploads: recovered from small batches, not from large ones, and not through noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.attacks.finding import BROKEN, LEAKS, NOT_MEASURED, NOTHING_SEEN, Finding
from covey.attacks.reconstruction.first_layer import FirstLayer, agreed
from covey.attacks.reconstruction.gradients import GradientInversion, label_counts, whole_counts
from covey.attacks.reconstruction.images import Match, nearest, psnr, ssim
from covey.attacks.reconstruction.inversion import NEAREST
from covey.audit.questions import Questions
from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.leaks import EAVESDROPPER, RECONSTRUCTION, SERVER
from covey.report.draw.bitmap import is_picture, png
from covey.report.sections.pictures import pictures_of
from covey.rounds.loop import run

ONE_STEP = {"rounds": 1, "lr": 0.1, "epochs": 0, "steps": 1, "batch_size": 0}


def experiment(attack: Any, samples: int, **more: Any) -> Experiment:
    partition = {"name": "label_sets", "samples": samples, "public": 60}
    usual = {"algorithm": "fedavg", "clients": 4, "clusters": 1, "partition": partition, "training": ONE_STEP}
    return Experiment.of({**usual, "attacks": [attack], "engine": {"workers": 1}, **more})


def found(attack: Any, samples: int, out: Path, **more: Any) -> Finding:
    return run(experiment(attack, samples, **more), out=out, quiet=True).findings[0]


# ---------------------------------------------------------------- pictures by hand


def test_similarity_by_hand() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((3, 8, 8, 1))
    assert ssim(x, x) == pytest.approx(np.ones(3)) and psnr(x, x) == pytest.approx(100 * np.ones(3))
    # One window, constant pictures: (2 a b + C1) / (a² + b² + C1), as variances are 0.
    a, b = np.full((1, 7, 7, 1), 0.5), np.full((1, 7, 7, 1), 0.25)
    assert ssim(a, b) == pytest.approx((2 * 0.125 + 1e-4) / (0.25 + 0.0625 + 1e-4))
    assert psnr(a, b) == pytest.approx(-10 * np.log10(0.0625))
    assert abs(ssim(x, rng.random((3, 8, 8, 1))).mean()) < 0.3
    assert nearest(x, x[[2, 0, 1]]).tolist() == [1, 2, 0]


def test_counts_of_labels() -> None:
    assert whole_counts(np.array([0.5, 0.26, 0.24]), 4).tolist() == [2, 1, 1]
    assert whole_counts(np.zeros(2), 3).sum() == 3


def test_small_pictures_are_drawn_and_broken_ones_left_out() -> None:
    grey = [[[0], [255]], [[128], [7]]]
    assert is_picture(grey) and is_picture([[[1, 2, 3]]])
    assert not any(map(is_picture, ([], [[]], [[[1, 2]]], [[[300]]], [[[1]], [[1], [2]]], "x", [[1]])))
    assert png(grey).startswith(b"\x89PNG") and png([[[1, 2, 3]]])[25] == 2  # in colours
    match = Match(np.zeros((2, 8, 8, 1)), np.ones((2, 8, 8, 1)))
    drawn = pictures_of({"pictures": [match.picture("True and recovered")]})
    assert drawn.count("data:image/png") == 4
    assert "data:image" not in pictures_of({"pictures": [{"kind": "images", "rows": [{"pictures": [[[[999]]]]}]}]})


# ---------------------------------------------------------------- closed form


def test_the_first_layer_gives_small_batches_back(tmp_path: Path) -> None:
    seen = found(FirstLayer(), 4, tmp_path)
    assert seen.verdict == BROKEN and seen.variants[0].value == 1.0
    assert seen.value > 0.99 > seen.controls[NEAREST] > (seen.chance or 1.0)
    assert "data:image/png" in (tmp_path / "report.html").read_text()


def test_over_real_local_steps(tmp_path: Path) -> None:
    plan = {"rounds": 1, "lr": 0.1, "epochs": 5, "batch_size": 4}
    seen = found(FirstLayer(vantage="eavesdropper"), 16, tmp_path, training=plan, algorithm="ifca")
    assert seen.verdict in (BROKEN, LEAKS) and 0.3 < seen.variants[0].value < 1


def test_large_batches_come_back_in_part_only(tmp_path: Path) -> None:
    assert found(FirstLayer(), 64, tmp_path).variants[0].value < 0.3


@pytest.mark.parametrize("defence", [{"name": "ldp"}, {"name": "dp_sgd"}], ids=lambda d: d["name"])
def test_noise_stops_it(defence: dict[str, Any], tmp_path: Path) -> None:
    seen = found(FirstLayer(), 4, tmp_path, defence=defence)
    assert seen.verdict == NOTHING_SEEN and seen.variants[0].value == 0


def test_what_it_cannot_read(tmp_path: Path) -> None:
    seen = found(FirstLayer(), 4, tmp_path, model="cnn")
    assert seen.verdict == NOT_MEASURED and "first layer is not linear" in seen.used


# ---------------------------------------------------------------- by optimisation


def test_optimised_pictures(tmp_path: Path) -> None:
    plan = {"rounds": 1, "lr": 0.1, "epochs": 2, "batch_size": 2}
    attack = GradientInversion(iterations=120, restarts=1, clients=2)
    seen = found(attack, 3, tmp_path, training=plan)
    assert seen.verdict in (BROKEN, LEAKS) and seen.value > 0.8 > seen.controls[NEAREST]


def test_noise_stops_that_too(tmp_path: Path) -> None:
    attack = GradientInversion(iterations=40, restarts=1, clients=2)
    assert found(attack, 3, tmp_path, defence={"name": "ldp"}).verdict == NOTHING_SEEN


def test_it_says_what_is_too_much(tmp_path: Path) -> None:
    seen = found(GradientInversion(), 64, tmp_path)
    assert seen.verdict == NOT_MEASURED and "clients of 64 samples: it tries up to 8" in seen.used


@pytest.mark.slow
def test_a_convolutional_network_gives_single_samples_back(tmp_path: Path) -> None:
    seen = found(GradientInversion(clients=4), 1, tmp_path, model="cnn")
    assert seen.details["psnr"] > 20 and seen.value > seen.controls[NEAREST]


def test_labels_are_restored_from_biases() -> None:
    """Δb = −η (p − shares) over two steps of η = 0.1: with the model's own p the shares come back."""
    predicted, shares = np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.0, 0.5])
    assert label_counts(-0.2 * (predicted - shares), predicted, 0.2, 4).tolist() == [2, 0, 2]


# ---------------------------------------------------------------- declarations


def test_they_stand_in_the_audit_by_declaration() -> None:
    questions = Questions(experiment("first_layer", 4))
    assert RECONSTRUCTION in questions.rows
    watched = {(watch.attack, watch.column) for watch in questions.watches()}
    for name in ("first_layer", "gradient_inversion"):
        assert (name, SERVER) in watched
        there = questions.scored_at(name, EAVESDROPPER)  # who is shown the same
        assert (there.attack, there.column) == (name, SERVER)
    bare = experiment("first_layer", 4, partition={"name": "label_sets", "public": 0})
    assert "partition.public" in FirstLayer.lacks(bare)


def test_settings_that_cannot_be() -> None:
    for wrong in (lambda: FirstLayer(clients=0), lambda: GradientInversion(most=0), lambda: GradientInversion(lr=0.0)):
        with pytest.raises(CoveyError, match="attack"):
            wrong()


# ---------------------------------------------------------------- several rounds


def test_pictures_on_which_two_rounds_agree_are_chosen_each_once() -> None:
    rng = np.random.default_rng(0)
    samples, mixtures = rng.random((3, 4, 4, 1)), rng.random((8, 4, 4, 1))
    first = np.concatenate([samples[:2], mixtures[:3]])
    second = np.concatenate([samples[[1, 0]] + 1e-4, mixtures[3:6], samples[2:]])
    third = np.concatenate([mixtures[6:], samples[2:] + 1e-4])
    chosen = agreed([first, second, third])
    assert len(chosen) == len(first)
    assert psnr(samples, chosen[nearest(samples, chosen)]).min() > 60  # all three, the third from later rounds
    assert agreed([first]).shape == first.shape


def test_several_rounds_bring_more_back_than_one(tmp_path: Path) -> None:
    training = {"rounds": 4, "lr": 0.1, "epochs": 2, "batch_size": 10}
    both = found("first_layer", 32, tmp_path, training=training)
    share, agreeing = both.variants
    assert (
        agreeing.attack == "first_layer_rounds"
        and agreeing.value >= share.value
        and agreeing.verdict in (LEAKS, BROKEN)
    )
    alone = found({"name": "first_layer", "rounds": 1}, 32, tmp_path / "one", training=training)
    assert [v.attack for v in alone.variants] == ["first_layer_share"] and alone.variants[0].value == share.value


@pytest.mark.parametrize("attack", ["gradient_inversion", "singular_pictures"])
def test_without_public_pictures_there_is_nothing_to_compare_with(attack: str) -> None:
    x, y = np.arange(12 * 64).reshape(12, 8, 8).astype(np.uint8), np.arange(12) % 3
    data = Federation.from_arrays(x, y, clients=np.arange(12) // 4)
    chosen = Experiment.of(model="cnn", clusters=1, training={"rounds": 1}, attacks=[attack], engine={"workers": 1})
    with pytest.raises(CoveyError, match=f"'{attack}' compares with pictures that no client holds"):
        run(chosen, federation=data, quiet=True)
