"""Pages for a browser: links lead to what stands on the page or are no links, and verdicts are counted in full."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from covey.papers.cells import cell
from covey.papers.claims import rows
from covey.papers.harness import Reproduction
from covey.papers.pages.content import PaperPage, about_of, drawn, paper_page
from covey.papers.pages.html import paper_html, table_html, verdicts_in_words
from covey.papers.verdict import FAILS, HOLDS, UNDECIDED, UNMEASURED, Claim


def made(**more: Any) -> Reproduction:
    values: dict[str, Any] = {"paper": "someone", "table": "table1", "title": "A title", "dataset": "mnist"}
    values |= {"settings": {}, "cells": [cell("a", "b", [0.5, 0.6])], "claims": [Claim("It is so.", HOLDS, "")]}
    return Reproduction(**(values | more))


def page_of(*sentences: str) -> str:
    page = paper_page("someone", [made(), made(table="fig8")])
    about = replace(about_of("someone"), breaks=sentences)
    return paper_html(PaperPage(page.paper, about, page.exhibits), rows(made()))


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("It costs ten points ([Table 1](table1.md)).", 'ten points (<a href="#table1">Table 1</a>).'),
        ("At 62 with T = 3 ([Fig. 8](fig8.md#x)) and", 'T = 3 (<a href="#fig8">Fig. 8</a>) and'),
        ("Of [*many*](fig8.md) two", 'Of <a href="#fig8">many</a> two'),
        ("It guesses better ([preference profiling](../../attacks/p.md)).", "It guesses better.</li>"),
        ("A spread is magnified ([as built here](a.md)); so", "A spread is magnified; so"),
        ("At the end ([Fig. 9](fig9.md)).", "At the end.</li>"),  # which is not on this page
        (
            "[Threshold opening](../x.md) takes it; who [changes](../x.md#y).",
            "Threshold opening takes it; who changes.",
        ),
        ("Rows ([linkage](../l.md), with its price).", "Rows (linkage, with its price)."),
        ("Of `n` < 3, 1 [.5 to 2] (as ever).", "Of n &lt; 3, 1 [.5 to 2] (as ever)."),
    ],
)
def test_a_link_leads_to_the_same_page_or_is_none(markdown: str, shown: str) -> None:
    page = page_of(markdown)
    assert shown in page
    anchors = re.findall(r'href="#([^"]+)"', page)
    assert set(anchors) <= set(re.findall(r'id="([^"]+)"', page))


def test_figures_come_before_the_long_list_of_claims() -> None:
    sections = re.findall(r'<section id="([^"]+)"', page_of("A sentence."))
    assert sections == ["broke", "table1", "fig8", "claims", "differs"]


def test_a_headline_counts_every_verdict() -> None:
    claims = [Claim("", verdict, "") for verdict in (FAILS, UNDECIDED, FAILS, UNDECIDED, UNDECIDED)]
    assert "0 hold, 2 do not hold, 3 undecided of 5 claims." in table_html(made(claims=claims), [])
    assert "1 holds of 1 claim." in table_html(made(), [])
    assert verdicts_in_words({HOLDS: 1, FAILS: 1, UNMEASURED: 2}) == "1 holds, 1 does not hold, 2 not measured"
    assert "1 judgement: 1 holds." in page_of()


def test_a_title_names_its_dataset_once() -> None:
    on_cifar = made(title="Profiling accuracy on CIFAR-10", dataset="cifar10")
    here = paper_html(paper_page("someone", [made(), on_cifar, made(table="fig8", quick=True)]), [])
    heads = re.findall(r"<h3>([^<]+)</h3>", here)
    assert heads == ["Profiling accuracy on CIFAR-10", "A title (MNIST)", "A title (MNIST), quick variant"]


def test_seeds_are_spoken_of_where_there_are_several() -> None:
    several, one = made(), made(cells=[cell("a", "b", [0.5])])
    pages = [table_html(each, drawn(each)) for each in (several, one)]
    for words in ("Whiskers are", "over how many seeds"):
        assert [words in page for page in pages] == [True, False]
