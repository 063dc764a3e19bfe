"""What two attacks on uploads share: the first upload of some clients, and the score of what was recovered from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from covey import roles
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import Reads, lacks_public
from covey.attacks.reconstruction.images import SHARP, Floats, Match, pixels
from covey.attacks.uploads import PLAIN, Upload, upload
from covey.errors import CoveyError
from covey.leaks import RECONSTRUCTION, WIRE, Leak
from covey.statistics import student, wilson

NEAREST = "nearest of as many public images"
METRIC = "structural similarity (SSIM)"


@dataclass
class Inversion:
    """Keeps what clients first upload; a subclass turns an upload into pictures."""

    name: ClassVar[str]
    row: ClassVar[Leak] = RECONSTRUCTION
    seen_from: ClassVar[tuple[str, ...]] = WIRE
    reads: ClassVar[tuple[Reads, ...]] = PLAIN
    own_rows: ClassVar[bool] = False
    controls: ClassVar[tuple[str, ...]] = (NEAREST,)
    means: ClassVar[str] = (
        "how alike each of a client's pictures and the recovered one nearest to it are: 1 is the same picture, and what the "
        "nearest of as many public ones reaches tells nothing"
    )

    vantage: str = "server"
    clients: int = 3  # that are looked at, at most
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise CoveyError(f"attack '{self.name}' looks at {self.clients} clients: it needs one at least")

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        return lacks_public(experiment)

    def begin(self, knowledge: Knowledge) -> None:
        self.known = knowledge
        self.got: dict[str, Any] = {}
        self.memory.setdefault("uploads", {})  # client -> [start [d], end [d], samples] of its first upload

    def observe(self, view: View) -> None:
        if view.receiver.startswith("client:"):
            self.got[view.receiver] = view.message
            return
        kept, client = self.memory["uploads"], view.sender.removeprefix("client:")
        if client in kept or len(kept) >= self.clients or self.unfit():
            return
        seen = upload(self.got.get(view.sender), view.message, self.known.network.d, self.known.setting)
        if seen is not None:
            most = int((seen.end - seen.start).norm(dim=1).argmax())  # of a mixture, the component that moved most
            kept[client] = [
                seen.start[most].cpu(),
                seen.end[most].cpu(),
                int(roles.first(view.message, roles.Count) or 0),
            ]

    def end_round(self, round: int) -> None:
        self.got.clear()

    def uploads(self) -> Iterator[tuple[int, Upload, int]]:
        """(client, its first upload, the number of its samples or 0)"""
        for client, (start, end, samples) in sorted(self.memory["uploads"].items(), key=lambda item: int(item[0])):
            yield int(client), Upload(start[None], end[None]), samples

    def unfit(self) -> str:
        """Why nothing can be recovered from this network's uploads, whoever sends them; "": something may be."""
        return "" if self.known.network.kind == "image" else "samples that are no pictures"

    def recovered(self, seen: Upload, samples: int) -> Floats:
        """Pictures [n, h, w, c] that one upload holds, as far as this attack can tell."""
        raise NotImplementedError

    def finding(self, truth: Truth) -> Finding:
        if words := self.unfit():
            return self.nothing(words)
        compared = self.compared(truth, lambda client, seen, samples: self.recovered(seen, samples))
        if compared is None:
            return self.nothing("no plain upload that it could invert")
        match, control, blank, counted = compared
        read = f"the first upload of {len(counted)} clients, {sum(counted)} pictures read off"
        used = f"{read}{self.scarce(counted)}; chance is the mean public image"
        mean, sharp = student(match.similarities().tolist()), match.sharpness()
        words = (
            f"{int((sharp >= SHARP).sum())} of {len(sharp)} samples came back at {SHARP:.0f} dB or more; PSNR "
            f"{sharp.mean():.1f} dB, {NEAREST} {control.sharpness().mean():.1f} dB"
        )
        return Finding(
            self.name,
            self.vantage,
            METRIC,
            mean.value,
            float(blank.similarities().mean()),
            max(-1.0, mean.low),
            min(1.0, mean.high),
            {NEAREST: float(control.similarities().mean())},
            used,
            {"in_words": words, "psnr": float(sharp.mean()), "pictures": [match.picture("True and recovered")]},
            variants=[self.recovered_share("share", match, control, blank, used)],
        )

    def _public(self) -> Floats:
        places = [place for name, place in self.known.where.items() if name.startswith("public")]
        if not places:
            raise CoveyError(f"attack '{self.name}' compares with pictures that no client holds: set partition.public")
        return pixels(np.asarray(self.known.x[np.concatenate(places)]))

    def scarce(self, counted: Sequence[int]) -> str:
        """What a reader must know where there are fewer public pictures than were read off a client."""
        there = len(self._public())
        return f"; the control has {there} public ones, fewer than that of a client" if there < max(counted) else ""

    def compared(
        self, truth: Truth, pictures: Callable[[int, Upload, int], Floats]
    ) -> tuple[Match, Match, Match, list[int]] | None:
        """(what was recovered, the nearest public pictures, the mean public one, how many were read off each client)."""
        public = self._public()
        own, guessed, counted = [], [], []
        for client, seen, samples in self.uploads():
            images = pictures(client, seen, samples)
            if len(images):
                true = pixels(truth.federation.dataset.x_train[truth.federation.clients[client]])
                own.append(Match.of(true, images))
                guessed.append(Match.of(true, public[: max(len(images), len(true))]))
                counted.append(len(images))
        if not own:
            return None
        match = Match.joined(own)
        blank = Match(match.true, np.broadcast_to(public.mean(0), match.true.shape))
        return match, Match.joined(guessed), blank, counted

    def recovered_share(self, kind: str, match: Match, control: Match, blank: Match, used: str) -> Finding:
        """A mean hides a few samples that came back whole among many that did not: so they are counted, too."""
        share = match.recovered()
        low, high = wilson(share, len(match.true))
        reached = {NEAREST: wilson(control.recovered(), len(match.true))[1]}  # its upper end: it is an estimate as well
        name = f"{self.name}_{kind}"
        means = f"the share of a client's pictures that came back at {SHARP:.0f} dB or more"
        metric = f"share at {SHARP:.0f} dB"
        return Finding(name, self.vantage, metric, share, blank.recovered(), low, high, reached, used, means=means)

    def nothing(self, why: str) -> Finding:
        return Finding(self.name, self.vantage, METRIC, 0.0, 0.0, 0.0, 1.0, used=f"nothing: {why}")
