"""A federation of one's own data in Python: a table with a column of hospitals, trained, resumed and audited.

python examples/own_data.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from covey import Experiment, Federation, run
from covey.audit import audit


def patients(seed: int = 0) -> pd.DataFrame:
    """300 made-up patients of three hospitals: numbers, categories, a few gaps."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 12, 300).round()
    smokes = rng.choice(["no", "yes", "former"], 300)
    risk = (age - 60) / 12 + (smokes == "yes") + rng.normal(0, 0.5, 300)
    table = pd.DataFrame({"age": age, "smokes": smokes, "hospital": np.repeat(["north", "south", "west"], 100)})
    table["ill"] = np.where(risk > 0.3, "yes", "no")
    table.loc[rng.integers(0, 300, 9), "age"] = np.nan
    return table


def main(folder: Path) -> tuple[float, str]:
    """(mean accuracy of the hospitals on patients of their own, what the audit says of its data)."""
    hospitals = Federation.from_frame(patients(), label="ill", client="hospital", test=0.25, name="wards")
    print(hospitals.dataset.note)
    experiment = Experiment.of(algorithm="fedavg", clusters=1, model="softmax", training={"rounds": 5, "lr": 0.1})
    result = run(experiment, federation=hospitals, out=folder / "run", quiet=True)
    again = run(experiment, federation=hospitals, out=folder / "run", resume=True, quiet=True)  # other data are refused
    assert again.accuracy == result.accuracy
    found = audit(experiment, folder / "audit", federation=hospitals, quiet=True)
    return float(result.accuracy["client_mean"]), found.dataset


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(main(Path(place)))
