"""What can go wrong, by exit code.

0 done; 1 a gate or check that the user asked for failed; 2 bad usage or unusable input;
3 a tool or device that was asked for is missing or refused. Each error is one line on stderr,
``error: FILE: what is wrong; what to do``, and no traceback.
"""

from __future__ import annotations

from os import PathLike


class LayerlineError(Exception):
    """A problem the user can act on. Subclasses fix the exit code."""

    exit_code = 2

    def __init__(
        self, what: str, *, file: str | PathLike[str] | None = None, fix: str | None = None
    ) -> None:
        self.what = what
        self.file = None if file is None else str(file)
        self.fix = fix
        super().__init__(self.line())

    def line(self) -> str:
        """The message on one line: file, what is wrong, what to do. Control characters escaped."""
        text = f"{self.file}: " if self.file else ""
        text += self.what
        if self.fix:
            text += f"; {self.fix}"
        return one_line(text)


class CheckFailed(LayerlineError):
    """A gate or a check that was asked for failed."""

    exit_code = 1


class InputError(LayerlineError):
    """Bad usage, or input that cannot be used."""

    exit_code = 2


class ToolMissing(LayerlineError):
    """A tool or device that was asked for is missing or refused; ``fix`` names the remedy."""

    exit_code = 3


def one_line(text: str) -> str:
    """`text` with line breaks, terminal escapes and other control characters made visible."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
