"""What parties of a deployment read before their first word, for the process that they are copied from: modules, the names that
covey's registries find in its sources, and the compiled arithmetic of ciphertexts.
"""

from __future__ import annotations

import importlib

from covey.algorithms import ALGORITHMS
from covey.attacks import ATTACKS
from covey.crypto.sealing import sealing
from covey.data.partitions import PARTITIONS
from covey.data.sources import SOURCES
from covey.defences import DEFENCES
from covey.models import MODELS

PARTIES = ("covey.cli.main", "covey.deploy.serve", "covey.report.page")
FLOWER = (
    "flwr.superlink.cli",
    "flwr.superlink.main",
    "flwr.superlink.grid",
    "flwr.supernode.fleet_http_client",
    "httpcore",
    "anyio._backends._asyncio",  # these are read where the SuperLink begins to listen
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)

for module in (*PARTIES, *FLOWER):
    importlib.import_module(module)
for registry in (ALGORITHMS, ATTACKS, DEFENCES, MODELS, PARTITIONS, SOURCES):
    len(registry)
sealer = sealing.sealer(sealing.generate_keys("ckks"))
sealing.mix(sealer.public(), [[1.0]], [sealer.seal([1.0])])
