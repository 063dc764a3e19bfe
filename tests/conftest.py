"""One thread per test process: the suite runs in parallel, and threads that wait for each other on busy cores crawl."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)
