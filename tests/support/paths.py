"""Where the tests find their data and the repository."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
DATA = TESTS / "data"
ROOT = TESTS.parent
