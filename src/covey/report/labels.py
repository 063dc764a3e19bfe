"""Names as their authors write them: asked of the registries. What nobody registered stays as it was written."""

from __future__ import annotations

import re
from functools import lru_cache

from covey.algorithms import ALGORITHMS
from covey.attacks import ATTACKS
from covey.crypto import blinded, openings, sealing
from covey.data.sources import SOURCES
from covey.defences import DEFENCES
from covey.models import MODELS
from covey.names import Registry
from covey.report.format import sentence_case

KINDS: dict[str, tuple[Registry, ...]] = {
    "algorithm": (ALGORITHMS,),
    "dataset": (SOURCES,),
    "model": (MODELS,),
    "defence": (DEFENCES,),
    "encryption": (sealing.SCHEMES, openings.SCHEMES, blinded.SCHEMES),
}


def label(kind: str, name: object) -> str:
    """'mingledpie' -> 'MingledPie'. A privacy ledger names its mechanisms as defences are named."""
    text = str(name)
    owner = next((one for one in KINDS[kind] if text in one), KINDS[kind][0])
    return owner.label(text)


def attack_label(name: str) -> str:
    """What nobody registered is made readable, as a title: attacks are spoken of, not configured, where they are shown."""
    return ATTACKS.label(name) if name in ATTACKS else sentence_case(name)


def protection_label(defence: str, encryption: str) -> str:
    """'LDP and CKKS'; "" where nothing protects."""
    named = {"defence": defence, "encryption": encryption}
    return " and ".join(label(kind, name) for kind, name in named.items() if name != "none")


def as_written(row: str) -> str:
    """'Dir(0.8) fedavg' -> 'Dir(0.8) FedAvg': what a table or a claim says, with algorithms named as their authors do."""
    names, words = _names()
    named = names.sub(lambda found: ALGORITHMS.label(found[0]), row)
    before, _, last = named.rpartition(" ")
    alone = last in words and (not before or before.endswith(")"))
    return f"{before} {ALGORITHMS.label(last)}".strip() if alone else named


@lru_cache(maxsize=1)
def _names() -> tuple[re.Pattern[str], frozenset[str]]:
    """What finds names in a text, and names that are words of their label ('local': 'Local training'), meant at its end alone."""
    labels = {name: ALGORITHMS.label(name).lower() for name in ALGORITHMS}
    words = frozenset(name for name, label in labels.items() if label != name and name in label.split())
    longest_first = sorted(labels.keys() - words, key=len, reverse=True)
    return re.compile(rf"(?<![\w./`-])({'|'.join(longest_first)})(?![\w./`-])"), words
