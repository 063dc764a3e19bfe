"""Generated stand-ins for sets that cannot be fetched freely. Never the real thing: the name ends in `-like`."""

from __future__ import annotations

import numpy as np

from covey.data.dataset import Dataset
from covey.data.sources.class_names import numbered
from covey.data.sources.files import held_out
from covey.data.sources.text import Review
from covey.data.sources.text import dataset as review_dataset


def table_like(name: str, rows: int, features: int, classes: int, rate: float, spread: float, key: int) -> Dataset:
    """0/1 features: each class has its own probabilities, log-odds normal around a rate that differs by feature.

    `spread` is the deviation of a class from the base: the larger, the easier the classes are to tell apart.
    """
    rng = np.random.default_rng([0x11CE, key])
    base = np.log(rate / (1 - rate)) + rng.standard_normal(features)
    prototype = base + spread * rng.standard_normal((classes, features))  # [classes, features] log-odds
    chance = (1 / (1 + np.exp(-prototype))).astype(np.float32)
    y = rng.permutation(np.arange(rows) % classes).astype(np.int64)
    x = np.empty((rows, features), np.uint8)
    for start in range(0, rows, 1_000):
        block = y[start : start + 1_000]
        x[start : start + 1_000] = rng.random((len(block), features), np.float32) < chance[block]
    test = held_out(y, key)
    real = name.removesuffix("-like")
    note = f"generated stand-in for {real}: independent 0/1 features with class-dependent probabilities"
    return Dataset(name, x[~test], y[~test], x[test], y[test], numbered(classes), kind="binary", stand_in=note)


def purchase100_like() -> Dataset:
    return table_like("purchase100-like", 25_000, features=600, classes=100, rate=0.2, spread=0.5, key=11)


def texas100_like() -> Dataset:
    return table_like("texas100-like", 12_500, features=6_169, classes=100, rate=0.03, spread=0.4, key=12)


PRAISE = ("great", "lovely", "fresh", "friendly", "perfect", "delicious", "quick", "charming", "superb")
BLAME = ("cold", "slow", "rude", "stale", "dirty", "bland", "noisy", "greasy", "awful")
MIDDLING = ("decent", "average", "ordinary", "passable", "plain", "mixed")
THINGS = ("pizza", "coffee", "service", "staff", "room", "view", "soup", "salad", "waiter", "parking", "music")
FRAMES = (
    "the {thing} was {word}",
    "we found the {thing} {word}",
    "their {thing} is always {word}",
    "{word} {thing} as usual",
    "i thought the {thing} seemed {word}",
    "my friends called the {thing} {word}",
)
HABITS = (  # two for each author
    ("long story short", "to be fair"),
    ("truth be told", "at the end of the day"),
    ("hands down", "needless to say"),
    ("in a nutshell", "you know what"),
    ("bottom line", "mark my words"),
    ("believe it or not", "for what it's worth"),
    ("let me tell you", "all things considered"),
    ("rest assured", "no doubt about it"),
    ("pro tip", "fun fact"),
    ("note to self", "as they say"),
)


def yelp_like() -> Dataset:
    """3,000 small reviews by 10 authors, whose habits (two stock phrases each, a way to end a sentence) are
    planted.
    """
    rng = np.random.default_rng([0x11CE, 13])
    shares = 1.0 / np.arange(2, 12)  # the first author writes most, as on the real site
    reviews = []
    for author in rng.choice(len(HABITS), 3_000, p=shares / shares.sum()):
        stars = int(rng.integers(1, 6))
        sentences = []
        for _ in range(int(rng.integers(3, 8))):
            kind = PRAISE if rng.random() < (stars - 1) / 4 else BLAME
            words = MIDDLING if rng.random() < 0.25 else kind
            frame, thing, word = (pool[int(rng.integers(len(pool)))] for pool in (FRAMES, THINGS, words))
            sentence = frame.format(thing=thing, word=word)
            if rng.random() < 0.4:
                sentence = f"{HABITS[author][int(rng.integers(2))]}, {sentence}"
            sentences.append(sentence + ("!" if author % 3 == 0 and rng.random() < 0.5 else "."))
        reviews.append(Review(" ".join(sentences), stars, f"author-{author}"))
    note = "generated stand-in for yelp: templates with planted author habits"
    return review_dataset("yelp-like", reviews, stand_in=note)
