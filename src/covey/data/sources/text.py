"""Reviews as word numbers: our tokenizer and vocabulary, and the Yelp reviews of the most prolific authors."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import Dataset
from covey.data.sources.class_names import STARS
from covey.data.sources.files import Form, WantedFile, damaged, held_out, reading

PADDING, UNKNOWN_WORD = 0, 1
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[.!?,]")

LENGTH = 100  # words kept of a review
WORDS = 5_000  # in the vocabulary
AUTHORS = 10  # the property-inference papers use the ten most prolific


@dataclass(frozen=True)
class Review:
    text: str
    stars: int  # 1 to 5
    author: str


def tokens(text: str) -> list[str]:
    """Lower-case words, numbers and the marks that end or part a sentence."""
    return WORD.findall(text.lower())


def vocabulary(texts: Iterable[Sequence[str]], size: int) -> tuple[str, ...]:
    """The most frequent words, ties in alphabetical order; 0 is padding and 1 any other word."""
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return ("<padding>", "<unknown>", *ranked[: size - 2])


def encode(texts: Sequence[Sequence[str]], words: tuple[str, ...], length: int) -> NDArray[np.int32]:
    """[m, length]: the first words of each text, padded at the end."""
    number = {word: i for i, word in enumerate(words)}
    ids = np.full((len(texts), length), PADDING, np.int32)
    for row, text in zip(ids, texts):
        kept = [number.get(word, UNKNOWN_WORD) for word in text[:length]]
        row[: len(kept)] = kept
    return ids


def dataset(name: str, reviews: Sequence[Review], stand_in: str = "", note: str = "") -> Dataset:
    """Stars as the label; attribute `author` is 1 for the most prolific author, 2 for the next, ..."""
    counts = Counter(review.author for review in reviews)
    rank = {author: i + 1 for i, author in enumerate(sorted(counts, key=lambda a: (-counts[a], a)))}
    stars = np.array([review.stars - 1 for review in reviews], np.int64)
    authors = np.array([rank[review.author] for review in reviews], np.int32)
    test = held_out(stars * len(rank) + authors, key=6)
    texts = [tokens(review.text) for review in reviews]
    words = vocabulary((text for text, held in zip(texts, test) if not held), WORDS)  # never from test rows
    x = encode(texts, words, LENGTH)
    return Dataset(
        name,
        x[~test],
        stars[~test],
        x[test],
        stars[test],
        STARS,
        kind="tokens",
        attributes={"author": authors[~test]},
        stand_in=stand_in,
        note=note,
        vocabulary=words,
    )


def lines(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError(f"line {number} is not an object")
                yield number, record


def read(paths: tuple[Path, ...], label: str) -> Dataset:
    """Two passes over the JSON lines: count the authors, then keep the reviews of the most prolific ones."""
    (path,) = paths
    with reading(path):
        counts = Counter(str(record["user_id"]) for _, record in lines(path))
        ranked = sorted(counts, key=lambda author: (-counts[author], author))
        kept = set(ranked[:AUTHORS])
        reviews = []
        for number, record in lines(path):
            if str(record["user_id"]) in kept:
                stars = float(str(record["stars"]))
                if stars not in (1.0, 2.0, 3.0, 4.0, 5.0):
                    raise ValueError(f"line {number} has {stars} stars")
                reviews.append(Review(str(record["text"]), int(stars), str(record["user_id"])))
    if not reviews:
        raise damaged(path, "holds no reviews")
    return dataset("yelp", reviews, note=f"the {len(kept)} most prolific of {len(counts):,} authors")


FORMS = tuple(
    Form((WantedFile(name),), read, ("yelp", ""))
    for name in ("yelp_academic_dataset_review.json", "review.json", "yelp.jsonl")
)
