"""Cases for the survey that are sound, broken, or end its processes."""

import os
import time

import torch
from torch import Tensor, nn

from survey.cases import Case, NotDrivenError


class Leak(nn.Module):
    """A model whose outputs depend on the mean of all positions and of all rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x.mean(dim=(0, 1))


def leaking() -> Case:
    return Case(Leak(), torch.randn(3, 5, 4), True)


def sound() -> Case:
    return Case(nn.GRU(4, 4, batch_first=True), torch.randn(3, 5, 4), True)


def hanging() -> Case:
    time.sleep(60)
    raise AssertionError


def spinning() -> Case:
    while True:
        pass


def crashing() -> Case:
    print("a message of the library")
    os._exit(7)


def too_large() -> Case:
    return Case(nn.Linear(2**15, 2**17), torch.randn(3, 5, 4))


def undriven() -> Case:
    raise NotDrivenError("it takes neither ids, nor images, nor audio")
