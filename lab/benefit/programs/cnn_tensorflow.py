"""Trains a small CNN on handwritten digits with TensorFlow, with all its defaults. Amount: images.

python -m lab.benefit.programs.cnn_tensorflow SECONDS DIGITS
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from lab.benefit.programs.harness import work

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
_BATCH = 64


def main(seconds: float, digits: str) -> None:
    """Train batch after batch; what was learnt is thrown away."""
    import tensorflow as tf

    data = np.load(digits)
    images, labels = data["images"][..., None], data["labels"]
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input(images.shape[1:]),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam()

    def train(batch: Any, wanted: Any) -> Any:  # noqa: ANN401 (tensors)
        with tf.GradientTape() as tape:
            loss = loss_of(wanted, model(batch, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled = tf.function(train)
    position = 0

    def step() -> float:
        nonlocal position
        begin = position % (len(images) - _BATCH)
        position += _BATCH
        compiled(images[begin : begin + _BATCH], labels[begin : begin + _BATCH])
        return _BATCH

    begun = time.perf_counter()
    step()
    threads = len(list(Path("/proc/self/task").iterdir()))  # TensorFlow does not tell the size of its pools
    work(step, seconds, first_step_s=time.perf_counter() - begun, version=tf.__version__, threads=threads)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
