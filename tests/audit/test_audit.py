"""The audit: which attacks are run where, what a matrix says of them, and that it never says more than was measured."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as sampled
from hypothesis import settings
from hypothesis import strategies as st

from covey import leaks
from covey.algorithms import ALGORITHMS
from covey.attacks import ATTACKS
from covey.attacks.declaration import declaration
from covey.attacks.finding import NOT_MEASURED, NOTHING_SEEN, Finding, Scale
from covey.attacks.membership.loss import LossMembership
from covey.audit import runs as auditing
from covey.audit.matrix import GIVEN, LEAKING, NOBODY, UNKNOWN, VERDICTS, Audit
from covey.audit.questions import Questions, Watch
from covey.audit.runs import audit, write
from covey.audit.surveys import combinations, protecting, survey, surveyed
from covey.audit.text import lines
from covey.cli.main import main
from covey.errors import CoveyError
from covey.experiment import encryptions
from covey.experiment.experiment import Experiment
from covey.leaks import CLIENT, COALITION, EAVESDROPPER, PARTIES, SECOND, SERVER, SERVERS
from covey.report.findings import read_findings
from covey.results.contents import Run
from covey.rounds import completion
from covey.rounds.loop import run as run_once
from support.audits import SMALL, finding, matrix, small

(
    IDENTITY,
    LABELS,
    PROPERTY,
    CATEGORY,
    MEMBERSHIP,
    CLIENTS,
    RECONSTRUCTION,
    MODELS,
    ISOLATION,
    LINKAGE,
    INTEGRITY,
) = ROWS = [row.name for row in leaks.LEAKS]


def batches(experiment: Experiment) -> list[list[tuple[str, str]]]:
    return [[(watch.attack, watch.column) for watch in batch] for batch in Questions(experiment).batches()]


def test_every_row_has_an_attack_and_every_place_is_looked_from() -> None:
    declared = [declaration(kind) for kind in ATTACKS.values()]
    assert {said.row for said in declared} == set(leaks.LEAKS)
    assert [row.name for row in Questions(small()).rows] == ROWS
    assert {column for said in declared for column in said.seen_from} == set(PARTIES) - {
        SERVERS
    }  # asked by declaration


def test_who_watches_together() -> None:
    first, second, third = batches(small(algorithm="ifca"))
    assert third == [("client_membership", SERVER)]  # what it reads, three parties get
    assert second == [("client_membership", COALITION)]
    assert ("a1", SERVER) in first and ("coalition", COALITION) in first
    assert {("category", CLIENT), ("loss_membership", CLIENT), ("a2", SERVER)} <= set(first)
    join = {"initial": 6, "join": 2, "join_every": 1}
    loss = ("loss_membership", CLIENT)
    *shared, active = batches(small(algorithm="sattler", participation=join))
    assert loss in shared[0] and active == [("acquisition", CLIENT)]
    assert active not in batches(small(algorithm="sattler"))  # nobody joins: nothing to acquire
    assert batches(small(algorithm="local")) == [[]]  # no attack has anything to read; still a run, for the accuracy
    cloud, again, *_ = batches(small(algorithm="fedcaprivacy"))
    by_models = ("loss_membership", "isolation", "client_membership")
    others = [c for name, c in cloud if c != SERVERS and name not in by_models]
    assert others == [SECOND] * 6 and {loss, ("isolation", CLIENT), ("label_shares", SERVERS)} <= set(cloud)
    assert ("client_membership", CLIENT) in cloud and again == [("client_membership", COALITION)]


def test_one_run_scores_the_server_and_an_eavesdropper_who_is_shown_the_same() -> None:
    ifca = matrix(small(algorithm="ifca"), {("lira", SERVER): finding(0.5, 0.4, 0.6)})
    server, line = ifca.cell(MEMBERSHIP, SERVER), ifca.cell(MEMBERSHIP, EAVESDROPPER)
    assert (line.verdict, line.carried) == (server.verdict, "") and line.tried[0].vantage == EAVESDROPPER
    assert "just what the server is" in line.why and "just what" not in server.why
    for secretive in (
        small(algorithm="ifca", encryption="secagg"),  # masked
        small(algorithm="mingledpie", clusters=4),  # its server holds parameters of the blind
        small(algorithm="fedcaprivacy"),  # two servers: messages between them
    ):
        questions = Questions(secretive)
        assert not questions.server_overheard
        assert questions.scored_at("a1", EAVESDROPPER).column == EAVESDROPPER
    rdpcfl = Questions(small(algorithm="rdpcfl"))  # its server groups the clients; the line must be asked
    assert rdpcfl.given(leaks.IDENTITY, SERVER) and rdpcfl.scored_at("a1", EAVESDROPPER).column == EAVESDROPPER


def test_a_cluster_that_every_reply_names_is_given_however_few_clients_there_are() -> None:
    unclear = {("a1", SERVER): finding(0.36, 0.1, 0.6)}
    for experiment, verdict in (
        (small(algorithm="ifca"), "given by design"),
        (small(algorithm="ifca", encryption="secagg"), "given by design"),  # models are masked, clusters are not
        (small(algorithm="ifca", defence="randomised_response"), "no leak seen"),  # what it names may be another
        (small(algorithm="mingledpie", clusters=4), "no leak seen"),  # names a set
    ):
        cell = matrix(experiment, unclear).cell(IDENTITY, SERVER)
        assert cell.verdict == verdict and ("names its client's cluster" in cell.why) == (verdict == "given by design")
    clear = matrix(small(algorithm="ifca"), {("a1", SERVER): finding(1.0, 0.96, 1.0)}).cell(IDENTITY, SERVER)
    assert clear.verdict == "broken" and clear.tried  # a score that proves it stands


def test_who_sees_the_models_in_the_clear_learns_what_a_client_learns_of_them() -> None:
    leak = {("loss_membership", CLIENT): finding(0.8, 0.7, 0.9)}
    for algorithm, encryption, plain in (
        ("scaffold", "none", True),
        ("mingledpie", "none", True),
        ("mingledpie", "ckks", False),
        ("fedcaprivacy", "none", False),
    ):
        made = matrix(small(algorithm=algorithm, encryption=encryption, clusters=4), leak)
        assert made.cell(MEMBERSHIP, COALITION).carried == CLIENT  # the client is one of them
        for column in (SERVER, EAVESDROPPER):
            assert (made.cell(MEMBERSHIP, column).carried == CLIENT) == plain


@sampled(st.sampled_from(sorted(ALGORITHMS)), st.sampled_from(["label_sets", "iid"]), st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_cell_has_a_verdict_and_a_reason(name: str, partition: str, rounds: int, sealed: bool) -> None:
    encryption = encryptions.able(ALGORITHMS[name])[-1 if sealed else 0]
    experiment = Experiment.of(
        SMALL, algorithm=name, partition={"name": partition}, training={"rounds": rounds}, encryption=encryption
    )
    for batch in batches(experiment):
        names = [attack for attack, _ in batch]
        assert len(set(names)) == len(names)
        assert len(names) == 1 or not any(declaration(ATTACKS[n]).active for n in names)
    made = matrix(experiment, {})
    assert [(c.row, c.column) for c in made.cells] == [(r, c) for r in ROWS for c in PARTIES]
    for cell in made.cells:
        assert cell.verdict in VERDICTS and cell.why
        assert cell.verdict not in (NOTHING_SEEN, "leaks", "broken")  # nothing was run, so nothing was seen
        assert (cell.verdict == NOBODY) == (cell.column in (SECOND, SERVERS) and name != "fedcaprivacy")


def test_a_cell_shows_its_worst_attack_first() -> None:
    none, leak = finding(0.6, 0.4, 0.8), finding(0.8, 0.7, 0.9)
    beaten = finding(0.9, 0.85, 0.95, controls={"largest": 0.9})  # a higher score, which its control reaches too
    made = matrix(small(), {("a1", SERVER): none, ("a1_prior", SERVER): beaten, ("a1_bayes", SERVER): leak})
    cell = made.cell(IDENTITY, SERVER)
    assert cell.verdict == "leaks" and [t.attack for t in cell.tried] == ["a1_bayes", "a1", "a1_prior"]
    assert cell.tried[2].best_control == ("largest", 0.9) and cell.tried[1].excess == pytest.approx(0.2)
    assert made.worst(IDENTITY) is cell  # the coalition has the same verdict, but only carried over


def test_leaks_carry_over_to_who_sees_more_and_nothing_else_does() -> None:
    leaks = matrix(small(), {("category", CLIENT): finding(0.8, 0.7, 0.9)})
    for column in (SERVER, COALITION, EAVESDROPPER):
        assert leaks.cell(CATEGORY, column).verdict == "leaks" and leaks.cell(CATEGORY, column).carried == CLIENT
    calm = matrix(small(), {("category", CLIENT): finding(0.5, 0.4, 0.6)})
    for column in (SERVER, COALITION, EAVESDROPPER):
        assert calm.cell(CATEGORY, column).verdict == UNKNOWN and "who sees less" in calm.cell(CATEGORY, column).why
    # What the server learns of a client's labels, another client does not.
    labels = matrix(small(), {("a2", SERVER): finding(1.0, 0.8, 1.0)})
    assert labels.cell(LABELS, CLIENT).verdict == UNKNOWN and labels.cell(LABELS, COALITION).carried == SERVER


def test_an_attack_that_saw_nothing_is_not_no_leak() -> None:
    blind = finding(0.5, 0.0, 1.0, used="no model was seen in the clear")
    cell = matrix(small(), {("loss_membership", CLIENT): blind}).cell(MEMBERSHIP, CLIENT)
    assert cell.verdict == NOT_MEASURED and "no model was seen" in cell.why and not cell.tried


def test_what_an_interval_leaves_open_is_said() -> None:
    wide = finding(0.36, 0.19, 0.57, chance=0.2)
    cell = matrix(small(algorithm="mingledpie"), {("a1", SERVER): wide}).cell(IDENTITY, SERVER)
    assert cell.verdict == NOTHING_SEEN and "up to 0.57 is not excluded" in cell.why


def test_known_clusters_spoil_sealed_labels() -> None:
    done = {("coalition", COALITION): finding(1.0, 0.9, 1.0), ("a2", SERVER): finding(0.5, 0.2, 0.8)}
    made = matrix(small(algorithm="mingledpie", encryption="ckks"), done)
    assert "cluster identity is broken here" in made.cell(LABELS, COALITION).why
    assert "cluster identity" not in made.cell(LABELS, SERVER).why
    told = matrix(small(algorithm="fedem"), {("a2", SERVER): finding(1.0, 0.9, 1.0)})
    assert "label distribution is broken here" in told.cell(IDENTITY, SERVER).why
    assert "label distribution is" not in told.cell(IDENTITY, CLIENT).why


def test_a_score_below_one_half_is_said_to_be() -> None:
    made = matrix(small(), {("loss_membership", CLIENT): finding(0.2, 0.1, 0.3)})
    cell = made.cell(MEMBERSHIP, CLIENT)
    assert cell.verdict == NOTHING_SEEN and "other way round it would score 0.800" in cell.why


def test_a_stronger_attacker_scored_beside_counts() -> None:
    aware = finding(0.8, 0.7, 0.9, chance=0.3, controls={"its null query": 0.6}, attack="category_noise_aware")
    plain = finding(0.4, 0.3, 0.5, chance=0.3, controls={"all present": 0.6}, variants=[aware])
    cell = matrix(small(), {("category", CLIENT): plain}).cell(CATEGORY, CLIENT)
    assert cell.verdict == "leaks" and [t.attack for t in cell.tried] == ["category_noise_aware", "category"]
    assert cell.tried[0].best_control == ("its null query", 0.6) and set(cell.reports) == {
        "category",
        "category_noise_aware",
    }


def test_combinations_keep_what_the_experiment_says() -> None:
    base = small(algorithm={"name": "mingledpie", "rate": 0.3}, defence={"name": "ldp", "epsilon": 3.0})
    every = combinations(base, ["ifca", "mingledpie"], ["none", "ldp", "ckks", "ldp+ckks"])
    made = [one for one in every if isinstance(one, Experiment)]
    named = [(e.algorithm.name, e.defence.name if e.defence else "", e.encryption) for e in made]
    assert named == [
        ("ifca", "", "none"),
        ("ifca", "ldp", "none"),
        ("mingledpie", "", "none"),
        ("mingledpie", "ldp", "none"),
        ("mingledpie", "", "ckks"),
        ("mingledpie", "ldp", "ckks"),
    ]
    assert made[2].algorithm.rate == 0.3 and made[3].defence.epsilon == 3.0
    with pytest.raises(CoveyError, match="did you mean 'ldp'"):
        combinations(base, ["ifca"], ["lpd"])
    with pytest.raises(CoveyError, match="did you mean 'ifca'"):
        combinations(base, ["ifac"], ["none"])
    with pytest.raises(CoveyError, match="add 'none'"):
        combinations(base, ["ifca"], ["ckks"])


def test_a_combination_that_no_experiment_can_have_costs_its_own_line(tmp_path: Path) -> None:
    (line,) = survey(small(algorithm="fedavg"), tmp_path, ["fedavg"], ["client_dp"], quiet=True)
    assert (line.algorithm, line.protection, line.cells) == ("fedavg", "client_dp", ())
    assert "weighting" in line.problem and not list(tmp_path.rglob("result.json"))


def test_what_a_survey_compares_unless_told_otherwise_says_so_itself() -> None:
    listed = {"fedavg", "ifca", "fedsoft", "sattler", "mingledpie", "routing", "fedcaprivacy"}
    assert set(surveyed()) == listed and len(surveyed()) == len(listed)
    assert protecting()[0] == "none" and set(protecting()) == {"none", "dp_sgd", "ldp", "afc", "ckks", "bfv"}


class Links(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.hrefs: set[str] = set()
        self.ids: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hrefs |= {v for k, v in attrs if k == "href" and v}
        self.ids |= {v for k, v in attrs if k == "id" and v}


def test_ifca_from_run_to_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = audit(small(), tmp_path, quiet=True)
    assert made.cell(IDENTITY, SERVER).verdict == "broken"  # IFCA's replies say the cluster
    assert {t.attack for t in made.cell(IDENTITY, EAVESDROPPER).tried} == {n for n in ATTACKS if n.startswith("a1")}
    assert made.cell(MODELS, CLIENT).verdict == GIVEN and made.cell(PROPERTY, CLIENT).verdict == NOT_MEASURED
    assert "rejoining" in {t.attack for t in made.cell(LINKAGE, SERVER).tried}
    categories = made.cell(CATEGORY, CLIENT)
    assert {t.attack for t in categories.tried} > {"category", "category_single_samples"}
    assert all(set(t.controls) == {"all present"} for t in categories.tried)
    assert "never reads the update" in categories.why  # the footnote is not dropped
    assert all(0 <= t.low <= t.value <= t.high <= 1 for t in categories.tried)  # type: ignore[operator]
    assert made.accuracy is not None and made.accuracy > 0.5
    monkeypatch.setattr(completion, "run", lambda *a, **k: pytest.fail("a finished run was run again"))
    assert audit(small(), tmp_path, quiet=True) == made
    json_path, page_path = write([made], tmp_path, "covey audit <b>x</b>")
    content = json.loads(json_path.read_text())
    assert content["schema"] == 1 and Audit.of(content["audits"][0]) == made
    page = page_path.read_text()
    links = Links(page)
    assert {h[1:] for h in links.hrefs if h.startswith("#")} <= links.ids
    reports = {h for h in links.hrefs if not h.startswith(("#", "data:"))}
    assert len(reports) == 3 and all((tmp_path / h).is_file() for h in reports)
    assert not re.search(r"https?://(?!www\.w3\.org)", page) and "<b>x</b>" not in page
    text = " ".join(" ".join(lines([made])).split())
    assert "server: a1 1.000" in text and "which proves nothing" in text and "secure" not in text + page


def test_hidden_identities_fall_to_one_client(tmp_path: Path) -> None:
    made = audit(small(algorithm="mingledpie", encryption="ckks", clients=12, clusters=4), tmp_path, quiet=True)
    assert made.cell(IDENTITY, COALITION).verdict == "broken"
    sealed = made.cell(LABELS, SERVER)
    assert sealed.verdict == NOT_MEASURED and "a2: could use nothing: no plain model, only ciphertext" in sealed.why
    assert "broken here" in made.cell(LABELS, COALITION).why


def test_one_failing_attack_costs_its_own_cell_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: LossMembership, truth: Any) -> Any:
        raise CoveyError("it lost its way")

    monkeypatch.setattr(LossMembership, "finding", fails)
    made = audit(small(algorithm="fedavg"), tmp_path, quiet=True)
    assert made.cell(MEMBERSHIP, CLIENT).verdict == NOT_MEASURED and "lost its way" in made.cell(MEMBERSHIP, CLIENT).why
    assert {t.attack for t in made.cell(LABELS, SERVER).tried} == {"a2", "label_shares", "label_shares_dominant"}


def test_rows_of_older_audits_are_read_by_their_new_names() -> None:
    content = matrix(small(), {("a2", SERVER): finding(1.0, 0.8, 1.0)}).json()
    older = json.loads(json.dumps(content).replace('"label distribution"', '"label preference"'))
    assert Audit.of(older) == Audit.of(content) and Audit.of(older).cell(LABELS, SERVER).verdict == "broken"


def test_a_survey_says_what_cannot_be_run(tmp_path: Path) -> None:
    shared_layers = small(layers={"personal": 1})
    fedavg, cloud = survey(shared_layers, tmp_path, ["fedavg", "fedcaprivacy"], ["none"], quiet=True)
    assert not fedavg.problem and "layers.personal" in cloud.problem and not cloud.cells
    links = Links(write([fedavg, cloud], tmp_path)[1].read_text())
    assert {h[1:] for h in links.hrefs if h.startswith("#")} <= links.ids
    assert any("refused" in line for line in lines([fedavg, cloud]))
    assert [c for c in fedavg.cells if c.verdict in LEAKING]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text(small(algorithm="fedavg").toml())  # the folder of a run
    words = ["--set", "training.rounds=2", "--seeds", "1", "--out", str(tmp_path / "a"), "--json"]
    assert main(["audit", str(tmp_path), *words]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["audits"][0]["rounds"] == 2 and (tmp_path / "a" / "audit.html").is_file()
    assert main(["audit", "ifca-digits", "--defences", "ldp"]) == 2
    wrong = capsys.readouterr().err
    assert "add --matrix" in wrong and "Traceback" not in wrong


def test_an_error_is_worse_the_smaller_it_is_by_hand() -> None:
    """Guessing errs by 2.0, the best control by 1.6; who knows everything errs by 0."""

    def verdict(value: float, low: float, high: float) -> str:
        return Finding("x", "server", "error", value, 2.0, low, high, {"mean": 1.6}, perfect=0.0).verdict

    assert verdict(1.2, 1.0, 1.5) == "leaks"
    assert verdict(1.2, 1.0, 1.7) == "no leak seen"  # the control lies within
    assert verdict(1.8, 1.7, 1.9) == "no leak seen"  # better than guessing, but not than the control
    assert verdict(5.0, 4.0, 6.0) == "no leak seen"  # a large error is no leak
    assert verdict(0.1, 0.0, 0.2) == "broken" and verdict(0.11, 0.0, 0.2) == "leaks"  # a twentieth of 2.0
    assert Scale(2.0, (1.6,), 0.0).excess(0.4) == pytest.approx(0.75)
    share = Scale(0.2, (0.3,))
    assert share.excess(0.65) == pytest.approx(0.5) and share.broken(0.95) and not share.broken(0.949)


def test_a_matrix_of_errors_reads_them_downwards() -> None:
    def error(value: float, low: float, high: float) -> Finding:
        return Finding("a1", "server", "error", value, 2.0, low, high, {"mean": 1.6, "last": 1.9}, "all", {}, 0.0)

    found = {("a1", SERVER): error(1.5, 1.4, 1.58), ("a1_bayes", SERVER): error(0.5, 0.4, 0.6)}
    cell = matrix(small(), found).cell(IDENTITY, SERVER)
    assert cell.verdict == "leaks" and [t.attack for t in cell.tried] == ["a1_bayes", "a1"]
    assert cell.tried[0].best_control == ("mean", 1.6) == ("mean", cell.tried[0].bar)
    hidden = small(algorithm="mingledpie")  # whose replies name no cluster
    calm = matrix(hidden, {("a1", SERVER): error(1.5, 1.2, 1.8)}).cell(IDENTITY, SERVER)
    assert calm.verdict == NOTHING_SEEN and "down to 1.20 is not excluded" in calm.why
    high = matrix(hidden, {("a1", SERVER): error(9.0, 8.0, 10.0)}).cell(IDENTITY, SERVER)
    assert high.verdict == NOTHING_SEEN and "not excluded" not in high.why


def test_the_report_reads_an_error_as_the_attack_does() -> None:
    for value, low, high in ((1.2, 1.0, 1.5), (1.8, 1.7, 1.9), (5.0, 4.0, 6.0)):
        made = Finding("x", "server", "error", value, 2.0, low, high, {"mean": 1.6}, perfect=0.0)
        run_ = Run("r", {"attacks": {"x": made.json()}}, (), {}, {}, "")
        (read,) = read_findings(run_)
        assert read.verdict == made.verdict
        assert read.excess == pytest.approx(Scale(2.0, (1.6,), 0.0).excess(value))


@pytest.mark.parametrize(
    ("vantage", "said"),
    [
        ("sever", "ifca has no party 'sever', did you mean 'server'"),
        ("csp", "ifca has no party 'csp'; known: server, eavesdropper, client:0"),
        ("server+eavesdroper", "did you mean 'eavesdropper'"),
        ("", "has no party ''"),
    ],
)
def test_a_place_that_the_protocol_lacks_is_refused(vantage: str, said: str, tmp_path: Path) -> None:
    experiment = small(attacks=[{"name": "a1", "vantage": vantage}])
    with pytest.raises(CoveyError, match=re.escape(said)):
        next(survey(experiment, tmp_path, ["fedcaprivacy"], ["none"], quiet=True))  # said of the experiment as it is
    with pytest.raises(CoveyError, match=re.escape(said)):
        audit(experiment, tmp_path, quiet=True)
    with pytest.raises(CoveyError, match=re.escape(said)):
        run_once(experiment, quiet=True)


def test_seeds_are_run_one_after_another_and_pooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def complete(experiment: Experiment, folder: Any, **rest: Any) -> None:
        seeds.append(experiment.seed)
        score = {**finding(0.7 + 0.1 * (experiment.seed == 3), 0.6, 0.9).json()}
        ledger = {"ldp": {"epsilon": float(experiment.seed)}}
        accuracy = {"client_mean": 0.1 * experiment.seed}
        folder.write_result({"attacks": {"a1": score}, "accuracy": accuracy, "stand_in": "", "privacy": ledger})

    monkeypatch.setattr(Questions, "batches", lambda self, chosen=None: [(Watch("a1", SERVER),)])
    monkeypatch.setattr(auditing, "complete", complete)
    made = audit(small(seeds=3, seed=2), tmp_path)
    assert seeds == [2, 3, 4] and made.seeds == 3 and [run["seed"] for run in made.runs] == seeds
    assert made.cell(IDENTITY, SERVER).tried[0].value == pytest.approx(2.2 / 3)
    assert made.accuracy == pytest.approx(0.3) and made.claimed == {"ldp": 4.0}
    assert "seeds 2 to 4" in lines([made])[0]
    paths = write([made], tmp_path)
    assert "3 seeds" in paths[1].read_text() and Audit.of(json.loads(paths[0].read_text())["audits"][0]) == made
    assert "3 seeds" in (tmp_path / "card.md").read_text()


def test_an_interrupted_survey_goes_on_where_it_stopped_and_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []

    def counted(experiment: Experiment, **options: Any) -> Any:
        made.append(experiment.defence.name if experiment.defence else "none")
        return run_once(experiment, **options)

    monkeypatch.setattr(completion, "run", counted)
    asked: dict[str, Any] = {"algorithms": ["fedavg"], "protections": ["none", "ldp"]}
    begun = survey(small(), tmp_path, **asked)
    first = next(begun)
    begun.close()  # Ctrl-C after the first combination
    runs = len(made)
    said = capsys.readouterr().err
    assert made == ["none"] * runs and said.startswith(f"audit: 0/{2 * runs} runs (fedavg, no defence, seed 0, run 1:")
    again = list(survey(small(), tmp_path, **asked))
    assert again[0] == first and made[runs:] == ["ldp"] * runs
    said = capsys.readouterr().err
    assert said.startswith(f"audit: {runs}/{2 * runs} runs (fedavg, ldp") and f"{2 * runs}/{2 * runs} runs" in said


def test_a_kept_audit_points_at_no_run(tmp_path: Path) -> None:
    made = matrix(small(), {("a1", SERVER): finding(1.0, 0.9, 1.0)})
    assert "runs/x/report.html" in write([made], tmp_path / "here")[1].read_text()
    folder = auditing.store([made, made], tmp_path / "docs", "audit-x", "covey audit x")
    assert folder == tmp_path / "docs/results/audit-x"
    page = folder / "README.md"
    for path in (folder / "audit.json", folder / "card.md", page):
        assert "report.html" not in path.read_text() and "covey audit x" in path.read_text()
    lines_ = page.read_text().splitlines()
    assert (
        lines_[4] == "![the matrix as a picture](matrix.svg)" and (page.parent / "matrix.svg").read_text()[:4] == "<svg"
    )
    assert lines_[6].startswith("|  | accuracy | cluster identity | label distribution |")
    assert lines_[8].startswith("| , + | 50.0 % | broken 1.00 S,S+C")
    assert not (folder / "audit.html").exists()  # the site makes it of audit.json


def test_a_comparison_says_who_breaks_it_and_who_only_learns_something() -> None:
    found = {
        ("coalition", COALITION): finding(1.0, 0.9, 1.0),
        ("a1", SERVER): finding(0.7, 0.6, 0.8),
        ("a1", EAVESDROPPER): finding(0.5, 0.4, 0.6),
    }
    made = matrix(small(algorithm="mingledpie", clusters=4), found)
    assert made.leaks(IDENTITY) == [("broken", [COALITION]), ("leaks", [SERVER])]
    (line,) = [one for one in lines([made, made]) if "broken" in one and one.startswith(", ")][:1]
    assert "broken 1.00 S+C; leaks S " in line


def test_the_usual_place_of_an_attack_is_no_mistake_where_an_algorithm_lacks_it(tmp_path: Path) -> None:
    """FedCAPrivacy's servers have other names; A1 looks from "server" unless told otherwise."""
    quick = small(algorithm="fedcaprivacy", attacks=["a1"], training={"rounds": 2})
    assert audit(quick, tmp_path, quiet=True).problem == ""


def test_stored_audits_of_before_still_open(tmp_path: Path) -> None:
    """They name the best control only, have no questions of their own, and their verdicts on scores are judged anew."""
    stored = Path(__file__).parents[2] / "docs/results/audit-matrix-digits/audit.json"
    content = json.loads(stored.read_text(encoding="utf-8"))["audits"]
    audits = [Audit.of(entry) for entry in content]
    before = [row for row in ROWS if row not in (ISOLATION, RECONSTRUCTION, INTEGRITY, CLIENTS)]  # which came later
    assert len(audits) == 49 and all(list(audit.rows) == before for audit in audits if not audit.problem)
    entries = [{(leaks.CURRENT.get(e["row"], e["row"]), e["column"]): e for e in one["cells"]} for one in content]
    scored = [(c, one[c.row, c.column]) for a, one in zip(audits, entries) for c in a.cells if c.tried]
    for cell, entry in scored:
        assert cell.verdict == entry["verdict"] and [f.verdict for f in cell.tried] == [
            t["verdict"] for t in entry["tried"]
        ]
        assert [f.value for f in cell.tried] == [t["value"] for t in entry["tried"]]
    assert len(scored) == 233 and [Audit.of(json.loads(json.dumps(audit.json()))) for audit in audits] == audits
    assert write(audits, tmp_path)[1].stat().st_size > 1e5 and lines(audits)
