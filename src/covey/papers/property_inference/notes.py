"""What stands below the property-inference tables: ε of a step and of a run, and what beside the property tells batches apart."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from covey.data.partitions.property_split import PropertySplit
from covey.data.sources.load import load
from covey.experiment.experiment import Experiment
from covey.papers.harness import Options
from covey.papers.property_inference import figures as printed
from covey.papers.property_inference.settings import CLIP, DELTA, TASKS, Task, experiment


def label_gaps(tasks: Mapping[str, Task], beta: float, clients: int, partitions: int) -> list[str]:
    """How far apart the main labels of the victim's property rows and of its others are, partition by partition.

    A gap is no property: where it is wide, an attack may have told label mixes apart, which noise on gradients hides less well.
    """
    said = []
    for name, task in tasks.items():
        dataset = load(task.dataset)
        gaps = []
        for seed in range(partitions):
            split = PropertySplit(attribute=task.attribute, value=task.value, beta=beta)
            notes = split.make(dataset, clients, 1, seed).notes
            labels = [dataset.y_train[np.asarray(notes[rows])] for rows in ("victim_property", "victim_other")]
            shares = [np.bincount(of, minlength=len(dataset.classes)) / len(of) for of in labels]
            gaps.append(float(np.abs(shares[0] - shares[1]).sum() / 2))
        listed = ", ".join(f"{gap:.2f}" for gap in gaps)
        which = f"partitions 0 to {partitions - 1}" if partitions > 1 else "partition 0"
        said.append(
            f"{name}: total variation between the main labels of the victim's property rows and of its others, {clients} "
            f"clients, {which}: {listed}. Where it is large, part of the score may be labels."
        )
    return said


def ledger(options: Options, clients: int = 5) -> list[str]:
    """ε of one step and of the whole run, as the accountant composes them, beside what the paper prints.

    A step's is that of a Poisson-sampled batch, which the paper's accountant takes for granted. Batches here are cut from shuffled
    epochs, for which no amplification by sampling is proved: a run has both figures.
    """
    from covey.ledger.events import SubsampledGaussian
    from covey.ledger.pricing import price

    task = next(iter(TASKS[options.dataset].values()))
    table = experiment(task, "FL", clients, quick=options.quick)
    one = Experiment.of(table)
    rows = [len(r) for r in one.partition.make(load(one.dataset), clients, 1, 0).clients]
    said = []
    for sigma, claimed in printed.EPSILON.items():
        for q, whose in (
            (0.185, "at the paper's q ≈ 0.185"),
            (min(1.0, 32 / min(rows)), f"for our smallest client, q = 32/{min(rows)}"),
        ):
            event = SubsampledGaussian(sampling=q, noise=sigma, steps=1, uses=1, clip=CLIP, delta=DELTA)
            rounds = one.training.rounds
            entry = price([(r, 0, event) for r in range(rounds)])["dp_sgd"]
            total, step = entry["total"], entry["per_step"]["epsilon"]
            old = entry["per_step"]["moments_accountant"]
            said.append(
                f"σ = {sigma}, {whose}, δ = {DELTA:g}: with Poisson-sampled batches ε = {step:.2f} for one step ({old:.2f} by the "
                f"older moments accountant; the paper prints {claimed}) and {total['with_poisson_sampling']:.4g} for {rounds} "
                f"rounds; proved for {rounds} rounds of batches that are cut from shuffled epochs, as here: {total['epsilon']:.4g}."
            )
    return said
