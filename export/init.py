"""`layerline init`: the lines to start from with a model of one's own."""

from __future__ import annotations

from pathlib import Path

import click

from ..core.cli.options import FilePath, examples
from ..core.errors import InputError
from ..core.files import write_text

TEMPLATE = '''"""Executed by: layerline export --model {name}:build --run runs/own (and profile)"""

import torch
from torch import nn


def build(batch=1, width=64):  # --batch N; --set width=128. Take seq, too, for --seq N
    model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, 10))
    inputs = torch.randn(batch, width)  # or a tuple of arguments, or a dict by their names
    targets = torch.randint(10, (batch,))
    return model, inputs, nn.functional.cross_entropy, targets  # or model, inputs: no training
'''


@click.command(
    epilog=examples(
        "layerline init own.py",
        "layerline export runs/own --model own.py:build",
        "layerline train own.py:build --run runs/own",
    )
)
@click.argument("file", type=FilePath(), metavar="own.py")
def init(file: Path) -> None:
    """Write a Python file to put your own model into.

    The function returns the module and example inputs, and, for training to be measured, a loss
    of what the module returns (and of targets). Its code is executed by export and profile.
    """
    if file.suffix != ".py":
        raise InputError("is not the name of a Python file", file=file, fix="e.g. own.py")
    if file.exists():
        raise InputError("is there already", file=file, fix="choose another name")
    write_text(file, TEMPLATE.format(name=file.name))
    command = f"layerline export --model {file}:build --run runs/{file.stem}"
    click.echo(f"wrote {file}; put your model there, then: {command}")
