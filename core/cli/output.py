"""Printing that does not change how a command ends."""

from __future__ import annotations

import os
import sys

import click


def say(text: str) -> None:
    """Print a text to stdout. Where its reader went away (head, less), nothing is printed, and the
    command goes on: its exit code says what it found."""
    try:
        click.echo(text)
    except BrokenPipeError:
        # What is still buffered would raise once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
