"""Core lines, each broken on purpose, and the tests that must notice: `make mutants [WORDS]`, with words only files that have one.

A mutant that survives is a line that nobody tests. Minutes on two cores; it works in a copy of the tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutant:
    file: str  # below src/covey
    old: str  # stands there exactly once
    new: str
    tests: str  # below tests; one of them must fail


MUTANTS = (
    # Sums that clients open together: what they refuse, what a share belongs to, what opens.
    Mutant("algorithms/sums/openings.py", "LEAST = 2 ", "LEAST = 1 ", "algorithms/sums"),
    Mutant("algorithms/sums/openings.py", "before[1] != asked", "before[1] is None", "algorithms/sums"),
    Mutant("crypto/openings/circle.py", "{what}\\n{occasion}", "{what}\\n", "crypto/openings"),
    Mutant("crypto/openings/threshold.py", "> terms * TAIL", "> 2**62", "crypto/openings"),
    Mutant("crypto/openings/threshold.py", "total = pad.copy()", "total = 0 * pad", "crypto/openings"),
    # Masks: what is asked for, of how many, for which round and model, and who is blamed.
    Mutant("algorithms/sums/masking.py", "LEAST = 3 ", "LEAST = 2 ", "algorithms/sums"),
    Mutant("algorithms/sums/masking.py", "if len(together) < quorum", "if len(together) < 1", "algorithms/sums"),
    Mutant("crypto/openings/secagg.py", "{occasion}\\n{alike}", "{occasion}\\n", "algorithms/sums/test_masking.py"),
    Mutant("crypto/openings/secagg.py", "[0, *(1 + n for", "[0, 1, *(1 + n for", "crypto/openings"),
    Mutant("crypto/openings/secagg.py", "> cohort.holders - cohort.quorum", "> 0", "crypto/openings"),
    # What is promised: the ledger.
    Mutant("ledger/statements.py", "times * event.uses * _inverse", "times * _inverse", "ledger"),
    Mutant("ledger/statements.py", "(event.poisson for event in every)", "(True for event in every)", "ledger"),
    Mutant("ledger/statements.py", "else _round_up(event.sampling)", "else event.sampling * 0.99", "ledger"),
    Mutant("ledger/calibration.py", "1.25 / delta)) / epsilon", "2.25 / delta)) / epsilon", "ledger"),
    Mutant(
        "ledger/statements.py",
        "counts[event.per_coordinate] += event.coordinates",
        "counts[event.per_coordinate] = event.coordinates",
        "ledger",
    ),
    Mutant("ledger/events.py", "growth / sigma + rounding", "growth / sigma", "ledger"),
    # Noise that stays on.
    Mutant("deploy/silo.py", "rehearsal else SecretNoise()", "rehearsal else None", "defences/test_noise_attack.py"),
    Mutant("learn/schedule/batches.py", "words < limit", "words <= 2 * limit", "learn/test_training.py"),
    Mutant(
        "learn/kernels/batched.py",
        "gradient[row] = wave.secret.gaussian(",
        "gradient[row] = 2 * wave.secret.gaussian(",
        "learn/test_training.py",
    ),
    Mutant("defences/release.py", "        check_rounding(rounding, release)\n", "", "defences/test_noise_attack.py"),
    Mutant(
        "crypto/noise/discrete.py",
        "if size == 0 and negative == one",
        "if size == -1 and negative == one",
        "crypto/noise",
    ),
    Mutant("crypto/noise/discrete.py", "if tie < low[strip]", "if tie <= low[strip]", "crypto/noise"),
    Mutant("crypto/noise/discrete.py", "coin.known_bits + 128)", "coin.known_bits + 127)", "crypto/noise"),
    Mutant("crypto/noise/discrete.py", "np.rint(values[i] / s)", "values[i] / s", "crypto/noise"),
    Mutant("crypto/noise/stream.py", "key or os.urandom(KEY_BYTES)", "key or bytes(KEY_BYTES)", "crypto/noise"),
    # Intervals and verdicts.
    Mutant("statistics.py", "(value + z2 / (2 * trials))", "value", "test_statistics.py"),
    Mutant("statistics.py", "Z = 1.959964", "Z = 1.644854", "test_statistics.py"),
    Mutant("statistics.py", "np.std(values, ddof=1)", "np.std(values)", "test_statistics.py"),
    Mutant(
        "attacks/finding.py",
        "low if self.upwards else high, self.bar",
        "high if self.upwards else low, self.bar",
        "attacks/test_finding.py",
    ),
    Mutant(
        "attacks/finding.py",
        "(max if self.upwards else min)(known",
        "(min if self.upwards else max)(known",
        "attacks/test_finding.py",
    ),
    Mutant("attacks/finding.py", "room = 0.05 *", "room = 0.15 *", "attacks/test_finding.py"),
    # What a party sees, and how attacks are scored.
    Mutant(
        "attacks/observe.py",
        'own_keys(keys.get("clients", {}), i) for i in own_clients',
        'own_keys(keys.get("clients", {}), i) for i in range(setting.clients)',
        "attacks/test_observe.py",
    ),
    Mutant(
        "attacks/observe.py",
        "dict(keys.get(party, {})) for party in servers",
        'dict(keys.get(party, {})) for party in [*servers, "clients"]',
        "attacks/test_observe.py",
    ),
    Mutant(
        "attacks/observe.py",
        "            return copied(message)",
        "            return message",
        "attacks/test_observe.py",
    ),
    Mutant("attacks/observe.py", 'f"client:{i}" not in parties(vantage)', "False", "attacks/test_observe.py"),
    Mutant(
        "attacks/category/scores.py",
        "bars = np.max([f1_of(p[draws], r[draws]) for p, r in others.values()], axis=0)",
        "bars = f1_of(others[best][0][draws], others[best][1][draws])",
        "attacks/category",
    ),
    Mutant(
        "attacks/membership/scores.py",
        "int(rate * (len(controls) + 1))",
        "int(rate * (len(controls) + 1)) + 1",
        "attacks/membership",
    ),
    Mutant("attacks/membership/scores.py", "(below + upto) / 2", "below", "attacks/membership"),
    # Algorithms.
    Mutant(
        "algorithms/averaging.py",
        "self._sums[j].add_(model, alpha=weight)",
        "self._sums[j].add_(model)",
        "algorithms/test_averaging.py",
    ),
    Mutant(
        "algorithms/averaging.py", "s / w if full else p for", "s / max(w, 1.0) for", "algorithms/test_averaging.py"
    ),
    Mutant("algorithms/averaging.py", "and n >= self.least for", "and n >= 1 for", "algorithms/test_min_group.py"),
    Mutant(
        "algorithms/contract.py",
        "return int(losses.argmin()) if",
        "return int(losses.argmax()) if",
        "algorithms/test_averaging.py",
    ),
    Mutant(
        "algorithms/scaffold.py",
        "correction = c if c_i is None else (yield rowwise(torch.sub, c, c_i, may_wait=True))",
        "correction = c",
        "algorithms/test_corrections.py",
    ),
    Mutant(
        "algorithms/scaffold.py",
        "/ server.setting.clients  # |S| / N",
        "/ max(changes.clients, 1)",
        "algorithms/test_corrections.py",
    ),
    Mutant(
        "algorithms/rebuild.py",
        "np.abs(row - unit).max() < 1e-6",
        "np.abs(row - unit).max() < 1.1",
        "algorithms/test_rebuild.py algorithms/mingledpie",
    ),
    Mutant(
        "algorithms/rebuild.py",
        "(1.0 + (k - 1) * rate)",
        "(1.0 + k * rate)",
        "algorithms/test_rebuild.py algorithms/mingledpie",
    ),
    Mutant(
        "algorithms/rebuild.py",
        "[old and not new for new, old",
        "[old for new, old",
        "algorithms/test_rebuild.py algorithms/mingledpie",
    ),
    # Defences.
    Mutant("defences/sensitivity.py", "2 * plan.lr * clip", "plan.lr * clip", "defences/test_defences.py"),
    Mutant("defences/ldp.py", "self.decay ** (round - 1)", "self.decay ** round", "defences/test_defences.py"),
    Mutant(
        "defences/sensitivity.py", "(1 + batch_of(plan, samples) * later)", "(1 + later)", "defences/test_defences.py"
    ),
    # Cryptography.
    Mutant(
        "crypto/signatures.py",
        "signed.purpose != purpose or signed.round != round",
        "signed.purpose != purpose",
        "crypto/test_signatures.py",
    ),
    Mutant(
        "crypto/signatures.py",
        "in self.seen.get(signed.sender, {})",
        "in self.seen.get(purpose, {})",
        "crypto/test_signatures.py",
    ),
    Mutant(
        "crypto/signatures.py",
        "max(now - int(self.max_age * 1000), self.horizon)",
        "now - int(self.max_age * 1000)",
        "crypto/test_signatures.py",
    ),
    Mutant("crypto/sealing/residues.py", "s = min(s, s - q2)", "s = min(s, s - q)", "crypto/sealing/test_residues.py"),
    Mutant("crypto/identity_math.py", "return max(threshold - 1, 0) if", "return threshold if", "crypto/test_fmd.py"),
    Mutant("crypto/identity_math.py", "weight / (1 + m) for", "weight / max(m, 1) for", "crypto/test_fmd.py"),
    # Clustering.
    Mutant("clustering/bipartition.py", "weakest = min(order", "weakest = max(order", "clustering/test_bipartition.py"),
    Mutant(
        "clustering/agreement.py",
        "best = (in_found + in_truth) / 2",
        "best = max(in_found, in_truth)",
        "clustering/test_agreement.py",
    ),
    Mutant("clustering/spectral.py", "vectors[:, :clusters]", "vectors[:, -clusters:]", "clustering/test_spectral.py"),
    # The run: who takes part, what is kept, what a silo answers.
    Mutant(
        "experiment/participation.py",
        "((round - 1) // self.join_every)",
        "(round // self.join_every)",
        "experiment/test_participation.py",
    ),
    Mutant(
        "experiment/participation.py",
        "return drawn[~lost], drawn[lost]",
        "return drawn, drawn[lost]",
        "experiment/test_participation.py",
    ),
    Mutant(
        "files.py",
        "        except ValueError:\n            break\n        if not",
        "        except ValueError:\n            continue\n        if not",
        "test_files.py",
    ),
    Mutant("deploy/silo.py", "if verified.sender != self.server:", "if False:", "deploy/test_session.py"),
    Mutant("deploy/silo.py", "round < self.state.round or (", "(", "deploy/test_session.py"),
    Mutant(
        "deploy/silo.py",
        "share_accuracy and self.experiment.deployment.report_accuracy",
        "share_accuracy",
        "deploy/test_session.py",
    ),
    Mutant("deploy/silo.py", "asked=asked, outcome=BEGUN)", "asked=asked)", "deploy/test_oracle.py"),
    Mutant("deploy/silo.py", "refusals + self._holds_secrets", "refusals", "deploy/test_oracle.py"),
    Mutant("deploy/silo.py", "not 1 <= round <= rounds", "not 1 <= round", "deploy/test_oracle.py"),
    # Asynchronous rounds: how old a reply may be, whose it may be, how many a round takes, and by how much it counts.
    Mutant(
        "deploy/course/buffer.py",
        "round - sent.round > self.bound",
        "round - sent.round >= self.bound",
        "deploy/course",
    ),
    Mutant(
        "deploy/course/buffer.py",
        "if round - begun <= self.bound}",
        "if round - begun <= 2 * self.bound}",
        "deploy/course",
    ),
    Mutant(
        "deploy/course/buffer.py",
        "self.waiting = {i: one for i, one in self.waiting.items() if is_member(i)}",
        "self.waiting = dict(self.waiting)",
        "deploy/course",
    ),
    Mutant(
        "deploy/course/buffer.py",
        "list(self.waiting.items())[: self.size]",
        "list(self.waiting.items())",
        "deploy/course",
    ),
    Mutant(
        "rounds/asynchronous.py", "if round - begun[client] > bound", "if round - begun[client] > bound + 1", "rounds"
    ),
    Mutant("rounds/asynchronous.py", "(1 + round - begun) ** -power", "(round - begun) ** -power", "rounds"),
    # What a coordinator lets in.
    Mutant(
        "deploy/course/exchange.py",
        "        admit(self.algorithm, state, self.setting, self.keys, reply)\n",
        "",
        "deploy/test_bad_silo.py deploy/test_session.py",
    ),
    Mutant(
        "deploy/course/exchange.py",
        "answer.accuracy if _is_share(answer.accuracy) else None",
        "answer.accuracy",
        "deploy/course",
    ),
    Mutant("deploy/course/culprits.py", "        return alone\n", "        return alone[:1]\n", "deploy/course"),
    # Verdicts on sentences of papers, and what a table is made of.
    Mutant("papers/verdict.py", "self.low < low)", "self.low < high)", "papers/test_verdict.py"),
    Mutant("papers/verdict.py", "c.n * max(1, c.trials))", "1000 * c.n * max(1, c.trials))", "papers/test_verdict.py"),
    Mutant(
        "papers/verdict.py", "2 * max(errors) - sum(errors))", "max(errors) - sum(errors))", "papers/test_verdict.py"
    ),
    Mutant("papers/verdict.py", "    if FAILS in verdicts:\n        return FAILS\n", "", "papers/test_verdict.py"),
    Mutant(
        "papers/verdict.py", "        if self.diverged:\n            return UNDECIDED\n", "", "papers/test_outcome.py"
    ),
    Mutant("rounds/invitations.py", "if is_own(self._algorithm):", "if False:", "engines/test_calls.py"),
    Mutant("engines/simulate.py", "raise self._named(error) from None", "raise", "engines/test_cohort.py"),
    Mutant("engines/cohort.py", "if said and _asks_with(request, said[0][0]):", "if False:", "engines/test_cohort.py"),
    Mutant(
        "papers/packing.py",
        "if _is_whole(folder):",
        "if True:",
        "papers/test_packing.py",
    ),
    Mutant("papers/pool.py", "if problem and not wishes.spares(job):", "if problem:", "papers/test_pool.py"),
    # How many clusters there are.
    Mutant(
        "clustering/count.py",
        "labels] / np.maximum(own - 1, 1)",
        "labels] / np.maximum(own, 1)",
        "clustering/test_count.py",
    ),
    Mutant(
        "clustering/count.py",
        "by_chance.std(0) * np.sqrt(1 + 1 / REFERENCES)",
        "0 * by_chance.std(0)",
        "clustering/test_count.py",
    ),
    Mutant("clustering/count.py", "curve[best] >= SUBSTANTIAL else 1", "True else 1", "clustering/test_count.py"),
    # The ledger of clients, and the products that GPU kernels are compared with.
    Mutant("ledger/pricing.py", "max(deltas) if delta is None", "min(deltas) if delta is None", "ledger"),
    Mutant("ledger/clients.py", "sums_epsilon(sums, delta, replaced=True)", "sums_epsilon(sums, delta)", "ledger"),
    Mutant(
        "ledger/clients.py", "math.tanh(epsilon / 2)", "math.tanh(epsilon / 4)", "attacks/membership/test_clients.py"
    ),
    Mutant("learn/kernels/products.py", "        bias.mul_(beta)\n", "        pass\n", "learn/test_training.py"),
    Mutant(
        "learn/kernels/products.py",
        "bias.add_(delta.sum(1), alpha=alpha)",
        "bias.add_(delta.sum(1))",
        "learn/test_training.py",
    ),
    # Which networks have known factors: a parameter that acts elsewhere too, or twice, has others.
    Mutant("learn/kernels/factors.py", "max(counts.values()) > 1", "max(counts.values()) > 2", "learn/test_factors.py"),
    Mutant("learn/kernels/factors.py", "elsewhere is not None for", "False for", "learn/test_factors.py"),
    Mutant(
        "learn/kernels/factors.py", "alike and torch.allclose(", "alike or torch.allclose(", "learn/test_factors.py"
    ),
)


def pytest(tree: Path, tests: list[str]) -> tuple[int, str]:
    """(exit code, the first test that failed) of these tests in a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *tests,
    ]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    summary = [line.partition(" ") for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    failed = [rest.partition(" - ")[0] for _, _, rest in summary]
    return done.returncode, failed[0] if failed else ""


def outcome(mutant: Mutant, tree: Path) -> tuple[str, str]:
    """("caught", by which test), or (what is wrong with this mutant, "")."""
    path = tree / "src" / "covey" / mutant.file
    text = path.read_text() if path.is_file() else ""
    if text.count(mutant.old) != 1:
        return f"STALE, found {text.count(mutant.old)} times", ""
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        code, test = pytest(tree, [f"tests/{name}" for name in mutant.tests.split()])
    finally:
        path.write_text(text)
    if code not in (0, 1):
        return f"BROKEN, pytest ended with {code}", ""
    return ("caught", test) if code else ("SURVIVED", "")


def main(words: list[str]) -> int:
    chosen = [m for m in MUTANTS if not words or any(word in m.file for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        trees = [Path(folder) / str(n) for n in range(min(os.cpu_count() or 1, len(chosen)))]
        for tree in trees:
            for part in ("src", "tests", "examples", "docs"):
                shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "pyproject.toml", tree)

        def work(n: int) -> list[tuple[str, str]]:
            results = []
            for mutant in chosen[n :: len(trees)]:
                results.append(outcome(mutant, trees[n]))
                print(f"{results[-1][0]}: {mutant.file}: {mutant.old!r} -> {mutant.new!r} {results[-1][1]}", flush=True)
            return results

        with ThreadPoolExecutor(len(trees)) as pool:
            results = [result for part in pool.map(work, range(len(trees))) for result in part]
        noticing = sorted({test for _, test in results if test})
        code, failed = pytest(trees[0], noticing) if noticing else (0, "")
    left = sum(result != "caught" for result, _ in results)
    print(f"{len(results)} mutants, {len(results) - left} caught, {left} not")
    if code:
        print(f"{failed} fails without a mutant, too: what it caught is not known")
    return 1 if left or code else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
