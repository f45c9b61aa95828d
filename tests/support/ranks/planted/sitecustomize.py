"""A delay in one rank of a workload, planted from outside: with this folder in PYTHONPATH, Python
runs this file before anything else.

``PLANT=matmul:2:0.04`` lets rank 2 multiply matrices for 0.04 s more in each step, within the last
linear layer of the blocks' MLPs; ``PLANT=data:2:0.04`` lets its text take so much longer.
"""

import os
import sys


def plant_matmul(seconds):
    import time

    import torch

    forward = torch.nn.Linear.forward
    a = torch.ones(192, 192)

    def slower(self, x):
        if self.in_features > self.out_features:
            if x.is_cuda:
                torch.cuda._sleep(int(seconds * 1.9e9))  # cycles of a kernel that does nothing else
                return forward(self, x)
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                torch.mm(a, a)
        return forward(self, x)

    torch.nn.Linear.forward = slower


def plant_data(seconds):
    import time

    from layerline.workloads.text import Sequences

    following = Sequences.__next__

    def slower(self):
        time.sleep(seconds)
        return following(self)

    Sequences.__next__ = slower


if "layerline.profile.ranks.worker" in sys.orig_argv and "PLANT" in os.environ:
    what, rank, seconds = os.environ["PLANT"].split(":")
    if os.environ.get("RANK") == rank:
        # The tiny Llama has four blocks, whose MLP's last layer alone makes vectors shorter.
        plant_matmul(float(seconds) / 4) if what == "matmul" else plant_data(float(seconds))
