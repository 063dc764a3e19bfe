"""What an experiment says about a deployment: what real silos hold, and how long a round waits for them."""

from __future__ import annotations

from dataclasses import dataclass

from covey.config import later
from covey.data.own.encoding import Feature, width
from covey.errors import CoveyError, meant

KINDS = ("image", "binary", "real", "tokens")
TASKS = ("classes", "labels", "numbers")
MISSING = ("go_on", "wait")


@dataclass(frozen=True)
class Silos:
    """With `dataset = "silos"`: what a sample is. Nobody has all of them; every silo reads its own folder."""

    shape: tuple[int, ...] = ()  # of one sample: [28, 28], [32, 32, 3], [600]
    kind: str = "image"  # image (0 to 255), binary (0 or 1), real, tokens (whole numbers, 0 is padding)
    classes: tuple[str, ...] = ()  # their names, in the order of the labels 0, 1, …
    vocabulary: int = 0  # token samples: how many ids there are, padding included
    task: str = later("classes")  # one class of several; labels: each 0 or 1; numbers: to be predicted
    columns: tuple[
        Feature, ...
    ] = ()  # of tables: how each is read; `covey data check` writes it; none: numbers, in order
    public: str = ""  # folder of samples that everybody may see; cluster-0, cluster-1, … in it: pre-training

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CoveyError(f"silos.kind is {self.kind!r}: choose one of {', '.join(KINDS)}{meant(self.kind, KINDS)}")
        if self.task not in TASKS:
            raise CoveyError(f"silos.task is {self.task!r}: choose one of {', '.join(TASKS)}{meant(self.task, TASKS)}")
        if any(side < 1 for side in self.shape):
            raise CoveyError(f"silos.shape is {list(self.shape)}: every side must be at least 1")
        if len(set(self.classes)) < len(self.classes) or "" in self.classes:
            raise CoveyError("silos.classes has an empty name or one twice: every class needs a name of its own")
        if self.vocabulary < 0 or (self.kind != "tokens" and self.vocabulary):
            raise CoveyError("silos.vocabulary is the number of token ids: leave it out unless silos.kind is 'tokens'")

    def check(self) -> None:
        """Refuses a table that does not say what the silos hold."""
        if self.columns and (self.kind != "real" or tuple(self.shape) != (width(self.columns),)):
            raise CoveyError(
                f"silos.columns makes samples of {width(self.columns)} real numbers, silos.shape is {list(self.shape)} and "
                f"silos.kind '{self.kind}': set shape = [{width(self.columns)}] and kind = 'real'"
            )
        if not self.shape or len(self.classes) < (2 if self.task == "classes" else 1):
            raise CoveyError(
                "dataset = 'silos' needs silos.shape and at least two silos.classes: "
                'for example shape = [28, 28], classes = ["cat", "dog"]'
            )
        if self.kind == "tokens" and self.vocabulary < 2:
            raise CoveyError("token samples need silos.vocabulary, the number of ids with padding: at least 2")


@dataclass(frozen=True)
class Deployment:
    """How a deployed run treats silos that are late or gone. A simulation does not look at it."""

    min_silos: int = 0  # replies that a round needs; 0: of every silo that is known to be there
    round_seconds: float = 600.0  # after which a silo that has not answered counts as missing
    missing: str = "go_on"  # with the replies that are there, if they are enough; "wait": for all
    max_megabytes: float = 0.0  # of one message; 0: derived from the model
    max_refusals: int = 3  # sums that a silo fails to open with a secret key before it stops for good
    report_accuracy: bool = False  # silos that agree send the accuracy on their own test samples
    rehearsal: bool = (
        False  # all randomness, noise included, from the seed, as in the simulation: comparable, and not private
    )

    def __post_init__(self) -> None:
        if self.min_silos < 0 or self.max_megabytes < 0:
            raise CoveyError("deployment.min_silos and deployment.max_megabytes must not be negative")
        if self.max_refusals < 1:
            raise CoveyError(f"deployment.max_refusals is {self.max_refusals}: a silo stops after 1 refusal or more")
        if self.round_seconds <= 0:
            raise CoveyError(f"deployment.round_seconds is {self.round_seconds}: it must be above 0")
        if self.missing not in MISSING:
            raise CoveyError(f"deployment.missing is {self.missing!r}: 'go_on' or 'wait'{meant(self.missing, MISSING)}")
