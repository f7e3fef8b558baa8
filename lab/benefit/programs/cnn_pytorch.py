"""Trains a small CNN on handwritten digits with PyTorch, with all its defaults. Amount: images.

python -m lab.benefit.programs.cnn_pytorch SECONDS DIGITS
"""

import os
import sys

import numpy as np

from lab.benefit.programs.harness import work

_BATCH = 64


def main(seconds: float, digits: str) -> None:
    """Train batch after batch; what was learnt is thrown away."""
    # The libraries of CUDA are stand-ins without functions, and are bound only where something calls them.
    sys.setdlopenflags(os.RTLD_LAZY)
    import torch
    from torch import nn

    data = np.load(digits)
    images, labels = torch.from_numpy(data["images"][:, None]), torch.from_numpy(data["labels"])
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.LazyLinear(128), nn.ReLU(), nn.Linear(128, 10)),
    )
    model(images[:1])
    loss_of, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters())
    position = 0

    def step() -> float:
        nonlocal position
        begin = position % (len(images) - _BATCH)
        position += _BATCH
        optimizer.zero_grad()
        loss_of(model(images[begin : begin + _BATCH]), labels[begin : begin + _BATCH]).backward()
        optimizer.step()
        return _BATCH

    work(step, seconds, version=torch.__version__, threads=torch.get_num_threads())


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
