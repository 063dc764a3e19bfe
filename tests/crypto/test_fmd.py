"""Identity sets: group algebra by hand, rates by counting, thresholds in both readings, memory."""

import hashlib
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import rbcl
from hypothesis import given
from hypothesis import strategies as st

from covey.crypto import fmd
from covey.crypto.fmd import (
    check_keys,
    draw_set,
    generate_keys,
    key_length,
    matches,
    no_memory,
    shown_set,
)
from covey.crypto.identity_math import (
    acceptance,
    effective_rate,
    false_counts,
    guess_accuracy,
    least_false,
)
from covey.errors import CoveyError


@pytest.mark.parametrize(
    ("reading", "accuracy", "rate"),
    # M ~ Bin(4, 1/2): 1 4 6 4 1 of 16. members: (4/2 + 6/3 + 4/4 + 1/5) / 15; false: (6/3 + 4/4 + 1/5) / 11
    [("members", 5.2 / 15, 32 / 60), ("false", 3.2 / 11, 28 / 44)],
)
def test_closed_forms_at_the_default(reading, accuracy, rate):
    assert guess_accuracy(5, 0.5, 2, reading) == pytest.approx(accuracy)
    assert effective_rate(5, 0.5, 2, reading) == pytest.approx(rate)


def test_closed_forms_match_the_specs_figures():
    assert round(100 * guess_accuracy(5, 0.5, 2), 2) == 34.67
    assert round(100 * guess_accuracy(5, 0.5, 2, "false"), 2) == 29.09
    assert round(effective_rate(5, 0.5, 2), 4) == 0.5333
    assert round(effective_rate(5, 0.5, 2, "false"), 4) == 0.6364


@given(st.integers(1, 12), st.floats(0.05, 0.95), st.data())
def test_closed_form_properties(k, p, data):
    T = data.draw(st.integers(0, k - 1))
    for reading in ("members", "false"):
        mass = false_counts(k, p, T, reading)
        assert sum(mass) == pytest.approx(1)
        assert 1 / k - 1e-12 <= guess_accuracy(k, p, T, reading) <= 1 / (1 + least_false(k, T, reading)) + 1e-12
        assert k == 1 or effective_rate(k, p, T, reading) >= p - 1e-12
    assert guess_accuracy(k, p, T, "false") == pytest.approx(guess_accuracy(k, p, T + 1, "members"))


def test_thresholds_that_no_set_can_meet_are_refused():
    keys = generate_keys(5, 0.5)
    assert draw_set(keys, 2, 5) == [0, 1, 2, 3, 4]
    assert draw_set(keys, 2, 4, "false") == [0, 1, 2, 3, 4]
    for T, reading in ((6, "members"), (5, "false"), (-1, "members")):
        with pytest.raises(CoveyError, match="allows 0 to"):
            draw_set(keys, 2, T, reading)
    with pytest.raises(CoveyError, match="did you mean 'members'"):
        draw_set(keys, 2, 2, "member")
    with pytest.raises(CoveyError, match="True cluster 5"):
        draw_set(keys, 5, 2)


def test_a_threshold_that_takes_forever_is_refused():
    with pytest.raises(CoveyError, match="one draw in"):
        draw_set(generate_keys(5, 2.0**-5), 0, 5)  # 2^-20 per draw
    assert acceptance(5, 2.0**-5, 5) == pytest.approx(2.0**-20)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.5, math.nan])
def test_rates_outside_the_open_interval_are_refused(rate):
    with pytest.raises(CoveyError, match="False positive rate"):
        generate_keys(3, rate)


def test_key_length_is_n_for_powers_of_two_and_one_otherwise():
    assert [key_length(p) for p in (0.5, 0.25, 2.0**-7, 0.3, 0.75)] == [1, 2, 7, 1, 1]


@pytest.mark.parametrize("rate", [0.5, 0.25, 0.3])
def test_the_left_side_uses_the_true_clusters_key(rate):
    """Trap 1: with h_j on both sides every cluster matches, always. Both sides are equal for j = ĵ only."""
    keys = generate_keys(4, rate)
    r = rbcl.crypto_core_ristretto255_scalar_random()
    u = rbcl.crypto_scalarmult_ristretto255_base(r)
    for x, h in zip(keys.addresses[1], keys.publics[1], strict=True):
        assert rbcl.crypto_scalarmult_ristretto255(r, h) == rbcl.crypto_scalarmult_ristretto255(x, u)
    sets = [matches(keys, 1, rbcl.crypto_core_ristretto255_scalar_random()) for _ in range(60)]
    assert all(1 in s for s in sets)
    assert any(len(s) < 4 for s in sets)


@pytest.mark.parametrize("rate", [0.5, 0.25, 0.3, 0.8])
def test_false_positive_rate(rate):
    """Every other cluster matches with p, and independently of the others: counts are Binomial(k - 1, p)."""
    rng = np.random.default_rng(17)  # keyed: the test is the same in every run
    draws, k = 700, 6
    counts = np.zeros(k)
    sizes = np.zeros(k)
    for i in range(draws):
        if i % 100 == 0:  # fresh keys too: with fixed keys the rate is an average over r alone
            keys = generate_keys(k, rate, rng.bytes)
        found = matches(keys, 2, rbcl.crypto_core_ristretto255_scalar_reduce(rng.bytes(64)))
        counts[found] += 1
        sizes[len(found) - 1] += 1
    assert counts[2] == draws
    others = np.delete(counts, 2) / draws
    assert np.abs(others - rate).max() < 4 * math.sqrt(rate * (1 - rate) / draws)
    expected = draws * np.array(false_counts(k, rate))
    chi2 = float(((sizes - expected) ** 2 / np.maximum(expected, 1e-9))[expected >= 5].sum())
    assert chi2 < 22  # 5 degrees of freedom: 1 in 2000


@pytest.mark.parametrize(("reading", "rate"), [("members", 0.5), ("false", 0.5), ("members", 0.35)])
def test_uniform_guessing_in_drawn_sets_equals_the_closed_form(reading, rate):
    rng = np.random.default_rng(5)
    keys = generate_keys(5, rate, rng.bytes)
    sizes = np.array([len(draw_set(keys, 0, 2, reading, rng.bytes)) for _ in range(600)])
    assert sizes.min() >= (2 if reading == "members" else 3)
    assert abs((1 / sizes).mean() - guess_accuracy(5, rate, 2, reading)) < 4 * (1 / sizes).std() / math.sqrt(600)


def test_memory_survives_flips_and_storage():
    keys = generate_keys(8, 0.5)
    first, memory = shown_set(keys, 3, 2, no_memory(8))
    other, memory = shown_set(keys, 5, 2, memory)
    memory = json.loads(json.dumps(memory))  # any codec of lists of integers
    again, memory = shown_set(keys, 3, 2, memory)
    assert again == first and memory[5] == other and 5 in other
    assert sum(map(bool, memory)) == 2


def test_shown_set_does_not_change_the_memory_it_is_given():
    keys, memory = generate_keys(4, 0.5), no_memory(4)
    shown_set(keys, 1, 2, memory)
    assert memory == no_memory(4)


def test_memory_of_other_settings_is_refused():
    keys = generate_keys(4, 0.5)
    with pytest.raises(CoveyError, match="expected 4"):
        shown_set(keys, 1, 2, no_memory(3))
    with pytest.raises(CoveyError, match="too small"):
        shown_set(keys, 1, 3, [[], [1, 2], [], []])
    with pytest.raises(CoveyError, match="lacks the cluster"):
        shown_set(keys, 1, 2, [[], [0, 2], [], []])


def test_keyed_draws_repeat_and_fresh_draws_differ():
    def run(seed):
        rng = np.random.default_rng(seed)
        keys = generate_keys(10, 0.5, rng.bytes)
        return [draw_set(keys, 4, 2, draw=rng.bytes) for _ in range(5)]

    assert run(1) == run(1) != run(2)
    assert generate_keys(2, 0.5) != generate_keys(2, 0.5)


def test_inconsistent_keys_are_refused():
    keys = generate_keys(3, 0.25)
    check_keys(keys)
    swapped = type(keys)(keys.rate, keys.addresses, (keys.publics[1], keys.publics[0], keys.publics[2]))
    with pytest.raises(CoveyError, match="cluster 0"):
        check_keys(swapped)
    with pytest.raises(CoveyError, match="2 address"):
        check_keys(type(keys)(keys.rate, keys.addresses, keys.publics[:2]))
    x = keys.addresses[0][0]
    same = x[:31] + bytes([x[31] | 128])  # powers do not read the highest bit, products do
    assert rbcl.crypto_scalarmult_ristretto255_base(same) == keys.publics[0][0]
    with pytest.raises(CoveyError, match="cluster 0"):
        check_keys(type(keys)(keys.rate, ((same, *keys.addresses[0][1:]), *keys.addresses[1:]), keys.publics))


@pytest.mark.parametrize("rate", [0.5, 0.125, 0.3])
def test_a_set_is_what_the_paper_compares(rate):
    """H(h^r) and H(u^x), as they stand there."""
    keys = generate_keys(6, rate, np.random.default_rng(0).bytes)
    for true in range(6):
        r = rbcl.crypto_core_ristretto255_scalar_reduce(np.random.default_rng(true).bytes(64))
        u = rbcl.crypto_scalarmult_ristretto255_base(r)

        def words(pairs):
            powers = [rbcl.crypto_scalarmult_ristretto255(*pair) for pair in pairs]
            return [int.from_bytes(hashlib.sha256(power).digest()[:8], "little") for power in powers]

        own = words((r, h) for h in keys.publics[true])
        others = [words((x, u) for x in row) for row in keys.addresses]
        if rate == 0.3:
            shown = [j for j, (word,) in enumerate(others) if (word - own[0]) % 2**64 < round(rate * 2**64)]
        else:
            shown = [j for j, row in enumerate(others) if all((a ^ b) & 1 == 0 for a, b in zip(own, row))]
        assert matches(keys, true, r) == shown


def test_an_identity_set_takes_two_milliseconds_at_most():
    keys = generate_keys(10, 0.5)
    draw_set(keys, 0, 2)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        draw_set(keys, 0, 2)
        times.append(time.perf_counter() - start)
    assert min(times) < 2e-3


@pytest.mark.skipif(os.name != "posix", reason="a loaded library cannot be removed on Windows")
def test_a_process_leaves_no_copy_of_libsodium_behind(tmp_path: Path) -> None:
    code = "from covey.crypto import fmd; print(len(fmd._scalar(bytes)))"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "32", done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_is_no_copy_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libsodium.so"
    library.touch()
    monkeypatch.setitem(sys.modules, "rbcl._sodium", SimpleNamespace(lib_path=str(library)))
    fmd._remove_copy()
    assert library.exists()
