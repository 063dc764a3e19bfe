"""A GRU for token sequences, with the recurrence written out: `nn.GRU` has no vmap rule, so it could not be stacked."""

from __future__ import annotations

from torch import Tensor, nn

from covey.models.classifier import Classifier
from covey.models.recurrence import last_state
from covey.models.spec import Spec

EMBEDDING = 100
HIDDEN = 128


class GRU(nn.Module):
    """Embedding and one GRU layer; gives the state after the last token that is not padding (0).

    The equations are those of `nn.GRU`.
    """

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, EMBEDDING)
        self.input = nn.Linear(EMBEDDING, 3 * HIDDEN)  # reset, update, candidate
        self.state = nn.Linear(HIDDEN, 3 * HIDDEN)

    def forward(self, tokens: Tensor) -> Tensor:
        from_input = self.input(self.embedding(tokens))  # [b, t, 3h]: all steps in one product
        return last_state(from_input, tokens != 0, self.state.weight, self.state.bias)


def gru(vocabulary: int, classes: int) -> Classifier:
    return Classifier(GRU(vocabulary), HIDDEN, classes)


GATED = Spec(
    name="gru",
    title="GRU, embedding 100, hidden 128",
    layout="tokens",
    make=lambda _, classes, vocabulary: gru(vocabulary, classes),
    parameters=1_089_610,
)
