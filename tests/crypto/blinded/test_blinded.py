"""Blinded rows: the same whole numbers under every scheme, and what a blind leaves of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.crypto.blinded import blinded
from covey.crypto.blinded.integers import ModularRows, Sketch, gram, moved, moved_back, rounded, to_floats, to_integers
from covey.errors import CoveyError

UNIT = 2.0**-24


@pytest.fixture(scope="module", params=["none", "bfv", "paillier"])
def keys(request: pytest.FixtureRequest) -> dict[str, bytes]:
    """(opening, sealing) of the key holder and of the participants, with room for sums of 16."""
    scheme = str(request.param)
    (opening, sealing), (other_opening, other_sealing) = (blinded.issue(scheme, 2048, 16) for _ in range(2))
    return {
        "scheme": scheme.encode(),
        "opening": opening,
        "sealing": sealing,
        "to": other_sealing,
        "end": other_opening,
    }


def models(n: int, d: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(0, 0.3, (n, d))
    rows[0, 0], rows[1, 0] = 63.9, -63.9  # the largest difference that must not wrap around
    return rows


@pytest.mark.parametrize("rearranged", [False, True])
def test_a_mean_of_covered_rows_comes_back_under_the_other_key(keys: dict[str, bytes], rearranged: bool) -> None:
    rows = models(5, 700)
    under, out = blinded.sealer(keys["sealing"]), blinded.sealer(keys["to"])
    sealed = [under.seal(row) for row in rows]
    cover = blinded.draw_cover(under, 700, rearranged, None)
    opened = blinded.opener(keys["opening"]).open_covered(under.cover(sealed, cover))
    chosen = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 1, 0]])
    for members, mean in zip(chosen, opened.means(chosen), strict=True):
        model = out.uncover(out.seal_mean(mean, opened.length), cover, 700)
        found = blinded.opener(keys["end"]).open(model)
        # Half a unit from encoding, half from rounding the mean. Subtracting μ/|C| would be off by the blind's size.
        assert np.abs(found - rows[members > 0].mean(0)).max() <= 1.001 * UNIT


@pytest.mark.parametrize("rearranged", [False, True])
def test_distances_survive_and_coordinates_do_not(keys: dict[str, bytes], rearranged: bool) -> None:
    rows = models(4, 30_000 if keys["scheme"] == b"bfv" else 700)
    under = blinded.sealer(keys["sealing"])
    cover = blinded.draw_cover(under, rows.shape[1], rearranged, np.random.default_rng(3))
    covered = under.cover([under.seal(row) for row in rows], cover)
    seen = blinded.differences(blinded.opener(keys["opening"]).open_covered(covered))
    apart = np.linalg.norm(rows - rows[0], axis=1)
    assert np.allclose(np.linalg.norm(seen, axis=1), apart, atol=1e-3)
    same = np.allclose(seen[:, : rows.shape[1]], rows - rows[0], atol=1e-6)
    assert same != rearranged


def test_whole_numbers_are_sealed_as_the_weights_that_they_come_from(keys: dict[str, bytes]) -> None:
    row = models(2, 300)[0].astype(np.float32)
    under, opener = blinded.sealer(keys["sealing"]), blinded.opener(keys["opening"])
    whole = rounded(row).astype(np.int32)
    assert np.array_equal(opener.open(under.seal_whole(whole)), opener.open(under.seal(row)))
    assert np.array_equal(opener.open(under.seal_whole(whole)), to_floats(whole))


def test_numbers_are_rounded_alike_in_any_precision_one_by_one_or_together() -> None:
    halves = (np.arange(-50, 50) + 0.5) * UNIT  # a half goes to the even number
    rows = np.stack([models(2, 300)[0], np.resize([*halves, 1e-42, -0.0, 63.999996], 300)]).astype(np.float32)
    expected = np.stack([np.rint(row.astype(np.float64) * 2.0**24).astype(np.int64) for row in rows])
    assert np.array_equal(np.stack([to_integers(row) for row in rows]), expected)
    for weights in (rows, rows.astype(np.float64), torch.from_numpy(rows), torch.from_numpy(rows).double()):
        assert np.array_equal(np.asarray(rounded(weights)), expected)
    assert np.array_equal(rounded(torch.from_numpy(rows)).to(torch.int32).numpy(), expected)


@pytest.mark.parametrize("bad", [64.0, -64.0, float("nan"), float("inf")])
def test_one_weight_of_many_rows_that_cannot_be_carried_is_refused(bad: float) -> None:
    rows = torch.zeros(3, 5)
    rows[1, 4] = bad
    with pytest.raises(CoveyError, match="5 weights"):
        rounded(rows)


def test_a_gpu_compares_and_averages_rows_as_numpy_does() -> None:
    """In torch, which here computes on the CPU: sums are in another order, and a mean may be rounded the other way."""
    offsets = np.random.default_rng(1).integers(-(2**25), 2**25, (7, 70_000)).astype(np.int32)
    first = offsets[0] + 5
    plain, other = ModularRows(first, offsets), ModularRows(first, torch.from_numpy(offsets))
    assert np.allclose(gram(other.offsets), gram(offsets), rtol=1e-12)
    assert np.allclose(blinded.points(other) @ blinded.points(other).T, gram(offsets) * UNIT**2, rtol=1e-9)
    weights = [[1, 1, 1, 0, 0, 0, 1], [0, 1, 0, 1, 1, 0, 0]]
    for one, two in zip(plain.means(weights), other.means(weights), strict=True):
        assert one.dtype == two.dtype and np.abs(one - two).max() <= 1 and (one == two).mean() > 0.5
    assert plain.on(torch.device("cpu")) is plain


def test_two_covers_of_one_row_have_nothing_in_common(keys: dict[str, bytes]) -> None:
    """Opened, a covered row is the blind's size; the same row under two blinds differs as much as two random numbers."""
    if keys["scheme"] == b"paillier":
        pytest.skip("its opened integers are looked at in test_paillier_vectors")
    under, opener = blinded.sealer(keys["sealing"]), blinded.opener(keys["opening"])
    row = under.seal(np.zeros(2000))
    first = [
        np.asarray(
            opener.open_covered(under.cover([row], blinded.draw_cover(under, 2000, False, None))).means([[1]])[0]
        )
        for _ in range(2)
    ]
    half = 2.0**31 if keys["scheme"] == b"none" else 2.0**39
    for values in (first[0], first[1], first[0] - first[1]):  # the last may wrap around
        assert abs(np.mean(values / half)) < 0.08 and np.mean(np.abs(values) / half) > 0.3


def test_sums_under_a_blind_of_their_own(keys: dict[str, bytes]) -> None:
    rows = models(6, 300)
    under, out = blinded.sealer(keys["sealing"]), blinded.sealer(keys["to"])
    members = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0]])
    for chosen, total in zip(members, under.sums(members, [under.seal(row) for row in rows]), strict=True):
        cover = blinded.draw_cover(under, 300, False, None)
        opened = blinded.opener(keys["opening"]).open_covered(under.cover([total], cover))
        resealed = out.seal_mean(opened.means([[1.0]])[0], opened.length)
        found = blinded.opener(keys["end"]).open(out.uncover(resealed, cover, 300))
        assert np.abs(found - chosen @ rows).max() <= chosen.sum() * UNIT


@pytest.mark.parametrize("last_kept", [True, False])
def test_a_sketch_is_some_of_the_signed_sum_of_blocks_and_nothing_else(keys: dict[str, bytes], last_kept: bool) -> None:
    under, opener = blinded.sealer(keys["sealing"]), blinded.opener(keys["opening"])
    rows = models(3, 5 * under.block - 7)
    signs, kept = np.array([1, -1, -1, 1, 1]), np.array([1, 4, under.block - 1 if last_kept else 7])
    plan = Sketch(signs, kept, under.block)
    noise = np.zeros((3, 3))
    noise[2, 1] = 0.25
    cover = blinded.draw_cover(under, under.block, False, None)
    covered = under.cover([under.sketch(under.seal(row), plan, one) for row, one in zip(rows, noise)], cover)
    expected = np.einsum("nbs,b->ns", np.pad(rows, ((0, 0), (0, 7))).reshape(3, 5, -1), signs)
    wanted = expected[:, kept] + noise
    scale = (under.block / 3) ** 0.5
    assert np.allclose(
        blinded.sketch_points(opener, covered, kept), scale * (wanted - wanted[0]), atol=scale * 12 * UNIT
    )
    others = np.setdiff1d(np.arange(under.block), kept)
    seen, width = opener.open_sketches(covered, others)
    assert width == under.block  # and what is not kept is far from what it was
    assert np.median(np.abs(to_floats(seen[1:]) - (expected - expected[0])[1:, others])) > 1e3


def test_a_sketch_of_a_row_shorter_than_a_block(keys: dict[str, bytes]) -> None:
    under, opener = blinded.sealer(keys["sealing"]), blinded.opener(keys["opening"])
    rows = models(3, 11)
    plan = blinded.draw_sketch(under, 11, 11, None)
    assert plan.kept.tolist() == list(range(11)) and (plan.width, len(plan.signs)) == (11, 1)
    cover = blinded.draw_cover(under, 11, False, None)
    covered = under.cover([under.sketch(under.seal(row), plan, np.zeros(11)) for row in rows], cover)
    seen = blinded.sketch_points(opener, covered, plan.kept)
    assert np.allclose(seen * plan.signs[0], rows - rows[0], atol=4 * UNIT)
    few = Sketch(np.array([1]), np.array([2, 5]), 11)
    covered = under.cover([under.sketch(under.seal(row), few, np.zeros(2)) for row in rows], cover)
    seen = blinded.sketch_points(opener, covered, few.kept) / (11 / 2) ** 0.5
    assert np.allclose(seen, (rows - rows[0])[:, [2, 5]], atol=4 * UNIT)


def test_what_is_no_row_is_refused(keys: dict[str, bytes]) -> None:
    under = blinded.sealer(keys["sealing"])
    sealed = under.seal(np.zeros(100))
    under.check(sealed, 100)
    for bad in (sealed[:-1], sealed + b"\0", b"", b"no row at all"):
        with pytest.raises(CoveyError):
            under.check(bad, 100)
    with pytest.raises(CoveyError):
        under.check(under.seal(np.zeros(101)), 100)
    for weights in ([np.nan], [64.0], [-np.inf], []):
        with pytest.raises(CoveyError):
            under.seal(np.array(weights))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.integers(0, 2**32))
def test_moving_blocks_back_undoes_moving_them(length: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    row = random.integers(-(2**30), 2**30, (1, length))
    cover = blinded.draw_cover(blinded.sealer(b"none\n"), length, True, random)
    away = moved(row, 64, cover)
    assert np.array_equal(moved_back(away[0], 64, cover, length), row[0])
    assert np.array_equal(
        np.sort(np.abs(away[0]))[-length:], np.sort(np.abs(np.pad(row[0], (0, away.shape[1] - length))))[-length:]
    )


def test_sketches_keep_distances_on_average() -> None:
    """E‖point‖² = ‖row‖²: over many plans the mean of the squared norm is right within five standard errors."""
    row = np.random.default_rng(0).normal(0, 1, 64 * 40)
    clear, opener = blinded.sealer(b"none\n"), blinded.opener(b"none\n")
    sealed = [clear.seal(np.zeros_like(row)), clear.seal(row)]
    squares = []
    for seed in range(300):
        plan = blinded.draw_sketch(clear, len(row), 4, np.random.default_rng(seed))
        covered = [clear.sketch(one, plan, np.zeros(4)) for one in sealed]
        squares.append(np.sum(blinded.sketch_points(opener, covered, plan.kept)[1] ** 2))
    error = np.std(squares) / len(squares) ** 0.5
    assert abs(np.mean(squares) - np.sum(row**2)) < 5 * error


@pytest.mark.parametrize("random", [None, np.random.default_rng(0)])
def test_noise_is_normal_wherever_it_comes_from(random: np.random.Generator | None) -> None:
    drawn = blinded.draw_noise((50, 4000), 0.3, random) / 0.3
    assert abs(drawn.mean()) < 0.02 and abs(drawn.std() - 1) < 0.02 and abs((drawn**4).mean() - 3) < 0.1


def test_unknown_schemes_are_named() -> None:
    with pytest.raises(CoveyError, match="did you mean 'paillier'"):
        blinded.issue("pailier", 2048)
