"""What ends when, and who is told."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from covey.deploy import keys
from covey.deploy.membership import certificates
from covey.deploy.membership.certificates import Pair
from covey.deploy.membership.standing import DAY, Reminder, validities
from covey.errors import CoveyError
from support.deployment import rehearsal


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("standing") / "keys"
    keys.make(rehearsal("ifca", model="softmax"), ["north", "south"], [], out)
    return out


def test_an_owner_is_reminded_thirty_days_ahead_and_once_a_day(made: Path) -> None:
    server = made / "server"
    end = {one.what: one.until for one in validities(server)}["the server's certificate"]
    said: list[str] = []
    moment = end - 40 * DAY
    reminder = Reminder(said.append, lambda: moment)
    for after, expected in [(0, 0), (5, 0), (10.5, 1), (10.6, 1), (11.6, 2), (41, 3)]:
        moment = end + (after - 40) * DAY
        reminder.look(lambda: validities(server))
        assert len(said) == expected, said
    assert "the server's certificate ends on 20" in said[0] and "in 30 days: `covey keys renew`" in said[0]
    assert "has ended on" in said[2]


def test_certificates_hold_for_two_and_ten_years(made: Path) -> None:
    assert [round(one.days(time.time())) for one in validities(made / "server")] == [730, 3650]
    assert [one.what for one in validities(made / "silos" / "north")] == ["the authority's certificate"]
    (made / "server" / "server.crt").write_text("nothing")
    with pytest.raises(CoveyError, match="is no certificate"):
        validities(made / "server")


def test_a_servers_certificate_that_does_not_fit_is_refused() -> None:
    authority, other = certificates.make_authority(), certificates.make_authority()
    pair, second = (certificates.issue_server(authority, []) for _ in range(2))
    certificates.check_server(pair.public, pair.private, authority.public)
    for wrong in (Pair(pair.public, second.private), certificates.issue_server(other, []), Pair(b"", b"")):
        with pytest.raises(CoveyError, match="the server's certificate"):
            certificates.check_server(wrong.public, wrong.private, authority.public)
