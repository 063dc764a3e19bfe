"""FedAvg: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.

One model, averaged by sample counts (`weighting = "samples"`, as in the paper) or per client. With `encryption = "secagg"` the
server learns the sum of models and of counts, and no client's: docs/deployment/secagg.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from covey.algorithms.averaging import GlobalModel, LocalModel, check_weighting, moved_on, use_model
from covey.algorithms.contract import MASKS, Client, Coroutine, Messages, Server, Setting
from covey.algorithms.robust.averages import check_aggregation, check_group
from covey.algorithms.sums import masking, openings
from covey.algorithms.sums.contributions import Contribution
from covey.config import later
from covey.crypto.key_kinds import Describe
from covey.learn.work import Train
from covey.measures import Measure


@dataclass(frozen=True)
class FedAvg:
    name: ClassVar[str] = "fedavg"
    label: ClassVar[str] = "FedAvg"
    title: ClassVar[str] = "one model, averaged by sample counts (McMahan et al. 2017)"
    in_rows: ClassVar[bool] = True
    surveyed: ClassVar[bool] = True
    sends: ClassVar[Messages] = (GlobalModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    trains: ClassVar[str] = "one"
    counted: ClassVar[bool] = False
    sealing: ClassVar[str] = MASKS
    masked: ClassVar[Messages] = (masking.MaskedModel,)
    consults: ClassVar[Messages] = masking.CONSULTS
    advises: ClassVar[Messages] = masking.ADVISES
    key_kinds: ClassVar[Mapping[str, Describe]] = masking.KEY_KINDS
    measures: ClassVar[Mapping[str, Measure]] = masking.MEASURES

    weighting: str = "samples"  # or "clients"
    aggregation: str = later("mean")  # or a rule that bears liars: see `robust.rules`
    min_group: int = later(1)  # fewest clients of an average that clients get; with fewer the model stays as it is
    bound: float = later(16.0)  # largest weight under encryption = "secagg"
    quorum: int = later(0)  # clients that must help to unmask a sum, with encryption = "secagg"; 0: two thirds

    def __post_init__(self) -> None:
        check_weighting(self.weighting)
        check_aggregation(self.aggregation, self.weighting)
        check_group(self.min_group, self.aggregation)
        openings.check_quorum(self.quorum)

    def keys(self, setting: Setting, publics: Mapping[int, bytes] | None = None) -> dict[str, dict[str, Any]]:
        return masking.issue(setting, self.bound, self.quorum, self.weighting, self.aggregation, publics)

    def check_keys(self, keys: Mapping[str, Any], client: int, encryption: str) -> None:
        openings.check_held(keys, client, encryption, self.bound, self.quorum)

    def start(self, setting: Setting) -> GlobalModel:
        return GlobalModel(setting.one_start())

    def broadcast(self, state: GlobalModel, client: int) -> GlobalModel:
        return state

    def client(self, me: Client, message: GlobalModel) -> Coroutine:
        model = yield Train(message.model, me.plan)
        return (yield from masking.hidden(me, message, LocalModel(model, me.samples), self.weighting))

    def aggregate(self, server: Server, state: GlobalModel, replies: Iterator[tuple[int, Any]]) -> GlobalModel:
        return masking.mean_model(server, state, replies, self.weighting, self.aggregation, self.min_group)

    def rebased(self, sent: GlobalModel, state: GlobalModel, reply: LocalModel, scale: float) -> LocalModel:
        return replace(reply, model=moved_on(reply.model, sent.model, state.model, scale))

    def reticent(self, setting: Setting) -> bool:
        return masking.is_masked(setting)

    def advise(self, me: Client, question: Any) -> Coroutine:
        """Where replies are masked: this client's part in unmasking their sum."""
        return (yield from masking.help_unmask(me, question, self.min_group))

    def blocks(self, setting: Setting) -> int:
        return 1

    def contribution(self, me: Client, message: GlobalModel, reply: LocalModel) -> Contribution:
        return Contribution({0: reply.model - message.model})

    def moved(self, setting: Setting, state: GlobalModel, means: Tensor, share: float) -> GlobalModel:
        return GlobalModel(state.model + means[0])

    def use(self, me: Client, message: GlobalModel) -> Coroutine:
        return use_model(me, message)
