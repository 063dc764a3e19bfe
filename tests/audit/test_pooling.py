"""Scores of several seeds as one, and what luck among many explains: by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from covey.attacks.finding import NOT_MEASURED, NOTHING_SEEN, Finding
from covey.audit.card import card, plain_words
from covey.audit.matrix import LEAKING, SUSPECTED, UNKNOWN, verdict_of
from covey.audit.pooling import beyond_luck, pooled
from covey.leaks import CLIENT, COALITION, EAVESDROPPER, SERVER
from covey.statistics import Z
from support.audits import finding, matrix, small


def test_runs_that_agree_halve_the_interval() -> None:
    """Four runs with one value: nothing between them, and a standard error of a half of one run's."""
    one = finding(0.7, 0.5, 0.9, controls={"a": 0.4})
    four = pooled([one] * 4)
    assert (four.value, four.low, four.high) == pytest.approx((0.7, 0.6, 0.8)) and four.controls == {"a": 0.4}
    assert "in each of 4 runs" in four.used


def test_runs_that_differ_widen_it() -> None:
    """Values 0.5 and 0.9, each known exactly: their variance is 0.08, the error of their mean 0.2."""
    both = pooled([finding(0.5, 0.5, 0.5), finding(0.9, 0.9, 0.9)])
    assert (both.value, both.low) == pytest.approx((0.7, 0.7 - Z * 0.2)) and both.high == 1.0


def test_runs_that_saw_nothing_are_left_out_and_variants_are_pooled_by_name() -> None:
    blind = finding(0.5, 0.0, 1.0)
    seen = finding(0.7, 0.6, 0.8, variants=[finding(0.8, 0.7, 0.9, attack="strong")], note="The first.")
    assert pooled([blind, seen]) == seen and pooled([blind, blind]).verdict == NOT_MEASURED
    both = pooled([seen, replace(seen, variants=[])])
    assert [v.attack for v in both.variants] == ["strong"] and both.note == "In the first run: the first."


def test_luck_among_many_by_hand() -> None:
    """A score 2.2 errors beyond its bar has a chance of 0.028: certain alone, luck among two of the kind (0.025)."""
    error = 0.05
    odd = finding(0.5 + 2.2 * error, 0.5 + (2.2 - Z) * error, 0.9)
    sure = finding(0.9, 0.85, 0.95)
    assert math.erfc(2.2 / math.sqrt(2)) == pytest.approx(0.0278, abs=1e-3)
    assert beyond_luck([odd]) == [True] and beyond_luck([odd, odd]) == [False, False]
    assert beyond_luck([odd, sure]) == [True, True]  # the sure one is set aside first: Holm
    assert beyond_luck([odd, finding(0.4, 0.3, 0.6)]) == [False, False]  # one that found nothing was looked at, too
    assert beyond_luck([finding(1.0, 1.0, 1.0)]) == [True] and beyond_luck([]) == []


def test_what_luck_explains_is_suspected_and_never_nothing() -> None:
    odd = finding(0.61, 0.51, 0.71)
    hidden = small(algorithm="mingledpie")  # whose replies name no cluster
    made = matrix(hidden, {("a1", SERVER): odd, ("a1_bayes", SERVER): odd, ("a1", EAVESDROPPER): odd})
    cell = made.cell("cluster identity", SERVER)
    assert cell.verdict == SUSPECTED == verdict_of(cell.tried[0]) and "2 scores" in cell.why
    assert made.cell("cluster identity", EAVESDROPPER).verdict == "leaks"  # one attack was tried there


def test_a_cell_says_how_many_attacks_did_not_show_it() -> None:
    calm = finding(0.5, 0.4, 0.6)
    scores = {("a1", SERVER): calm, ("a1_bayes", SERVER): calm}
    cell = matrix(small(algorithm="mingledpie"), scores).cell("cluster identity", SERVER)
    assert cell.verdict == NOTHING_SEEN and cell.said == "not shown by 2 attacks"


def test_empty_cells_say_what_is_known_elsewhere() -> None:
    cell = matrix(small(), {}).cell("cluster identity", CLIENT)
    assert "known elsewhere" in cell.why and "Melis" in cell.why


def test_the_last_sentence_is_for_everybody() -> None:
    tried = matrix(small(algorithm="fedavg"), {("label_shares", SERVER): finding(0.5, 0.4, 0.6)})
    none_given = tuple(replace(c, verdict=UNKNOWN) if c.verdict in LEAKING else c for c in tried.cells)
    calm = plain_words(replace(tried, cells=none_given))
    assert "no proof of safety" in calm and "1 attack did not show" in calm
    untried = tuple(replace(c, verdict=UNKNOWN, tried=()) for c in tried.cells)
    assert "no attack was run, so nothing is known" in plain_words(replace(tried, cells=untried))
    made = matrix(small(), {("a1", SERVER): finding(1.0, 0.9, 1.0)})
    said = plain_words(made)
    assert "Whoever runs the server" in said and "can learn which cluster a client chose" in said
    assert "may still be learned" in said and "safe" not in said
    assert "Not measured, or no attack known: " in said and "Tried, not shown" not in said
    shown = plain_words(
        matrix(small(), {("a1", SERVER): finding(1.0, 0.9, 1.0), ("lira", SERVER): finding(0.5, 0.4, 0.6)})
    )
    assert "Tried, not shown and not excluded: membership." in shown
    page = card(made)
    assert "ε claimed by the ledger: none" in page and "| Cluster identity | broken | server" in page


def test_plain_words_say_what_a_coalition_knows_for_certain_and_its_members_do_not() -> None:
    half, whole = finding(0.7, 0.6, 0.8), finding(1.0, 0.9, 1.0)
    scores = {("a1", SERVER): half, ("isolation", CLIENT): half, ("coalition", COALITION): whole}
    said = plain_words(matrix(small(algorithm="mingledpie", encryption="ckks"), scores))
    assert "can do what both can, and more surely than either alone learn which cluster a client chose" in said
    calm = plain_words(matrix(small(algorithm="mingledpie", encryption="ckks"), {**scores, ("a1", SERVER): whole}))
    assert "no more was shown" in calm


def test_where_guessing_is_perfect_nothing_can_be_shown() -> None:
    """Four hospitals in one cluster: naming the largest cluster is right of all, and says nothing of what the server sees."""
    alike = Finding("a1", "server", "accuracy", 1.0, 0.5, 0.51, 1.0, {"largest cluster": 1.0})
    assert alike.verdict == NOT_MEASURED and "guessing alone" in alike.why
    error = Finding("e", "server", "error", 0.0, 1.0, 0.0, 0.0, {"mean": 0.01}, perfect=0.0)
    assert error.verdict == NOT_MEASURED
    made = matrix(small(algorithm="mingledpie"), {("a1", SERVER): alike})
    cell = made.cell("cluster identity", SERVER)
    assert cell.verdict == NOT_MEASURED and "guessing alone scores 1.00" in cell.why


def test_what_is_suspected_is_said_in_plain_words() -> None:
    unsure = finding(0.55, 0.501, 0.599)
    made = matrix(small(), {("lira", SERVER): unsure, ("rmia", SERVER): finding(0.5, 0.45, 0.55)})
    assert made.cell("membership", SERVER).verdict == SUSPECTED
    assert "A leak is suspected, and not certain, of membership" in plain_words(made)
    together = made.cell("membership", COALITION)
    assert together.verdict == SUSPECTED and together.carried == SERVER  # who sees more may suspect as much


def test_who_sees_more_knows_as_much_whatever_its_own_attacks_found() -> None:
    leak, nothing = finding(0.8, 0.7, 0.9), finding(0.55, 0.4, 0.7)
    scores = {("client_membership", SERVER): leak, ("client_membership", COALITION): nothing}
    made = matrix(small(), {**scores, ("client_membership", CLIENT): nothing})
    together = made.cell("client membership", COALITION)
    assert (together.verdict, together.carried) == ("leaks", SERVER) and "by its own attacks: not shown" in together.why
    line = made.cell("client membership", EAVESDROPPER)  # the models pass it in the clear, too
    assert line.verdict == "leaks" and "it is shown just what the server is" in line.why
    assert made.cell("client membership", CLIENT).verdict == NOTHING_SEEN  # it sees less


def test_the_same_clients_again_are_no_further_evidence_about_clients() -> None:
    """Four runs of the same four hospitals: the error within a run stays; what draws add, here nothing, is averaged."""
    one = finding(0.7, 0.5, 0.9, variants=[finding(0.8, 0.6, 1.0, attack="strong")])
    four = pooled([one] * 4, same_clients=True)
    assert (four.low, four.high) == pytest.approx((0.5, 0.9)) and "with the same clients" in four.used
    assert (four.variants[0].low, four.variants[0].high) == pytest.approx((0.6, 1.0))
    both = pooled([finding(0.5, 0.5, 0.5), finding(0.9, 0.9, 0.9)], same_clients=True)
    assert both.low == pytest.approx(0.7 - Z * 0.2)  # each known exactly: the spread of draws alone
