"""The scrubber: learns what a capture says about people and machines, then replaces it.

A capture is read twice by the same code: first `learning`, when `cell` only collects the names
that the capture declares (`Learned`), then replacing, so that a name is found everywhere, also
before the place that declares it. Counts are kept per place and kind, the values nowhere but in
memory (for the check of the output).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ...core.capture_names import HOSTED
from . import fields, patterns
from .learned import LONG, MEMO, Learned, Numbers, is_local

REMOVED = "removed"

Handler = Callable[[re.Match[str]], str]


class Scrubber:
    """What was learned about one capture, what its values become, and what was found where.

    `found` counts by (place, kind). `left_out`: files of a run that no copy holds. `remembered`:
    values that only a file's structure shows to be private, with their kind. `numbers`: of the
    captures that are scrubbed together.
    """

    def __init__(self, numbers: Numbers | None = None) -> None:
        self.learning = True
        self.found: Counter[tuple[str, str]] = Counter()
        self.learned = Learned(numbers)
        self.left_out: set[Path] = set()
        self.remembered: set[tuple[str, str]] = set()
        self._finder: re.Pattern[str] | None = None
        self._prefixes: re.Pattern[str] | None = None
        self._memo: dict[tuple[str, bool], tuple[str, tuple[str, ...]]] = {}
        self._now: list[str] = []  # kinds found in the text at hand

    # --- what a reader of a format calls -------------------------------------------------------

    def cell(self, value: str, place: str, kind: str | None = None, field: str = "") -> str:
        """One text of the capture: learnt from, or replaced.

        `kind` says what the whole value is (see `fields`); None searches it for patterns.
        `field` is the name of the field, which tells versions from addresses.
        """
        if not value:
            return value
        if self.learning:
            self.learned.from_value(value, kind)
            return value
        if kind is None:
            return self._text(value, place, fields.VERSION.search(field) is not None)
        return self._whole(value, place, kind)

    def variable(self, name: str, value: str, place: str) -> str:
        """The value of an environment variable: learnt from, then removed."""
        if self.learning:
            self.learned.from_variable(name, value)
            return value
        return self._whole(value, place, "environment")

    def remove(self, place: str, kind: str, count: int = 1) -> None:
        """Count something that the format's own module left out."""
        if not self.learning and count:
            self.found[place, kind] += count

    def start_replacing(self) -> None:
        """Learning is over."""
        self.learning = False
        self.learned.seen.clear()
        self._finder, self._prefixes = self.learned.finder(), self.learned.prefixes()

    # --- replacing -----------------------------------------------------------------------------

    def _whole(self, value: str, place: str, kind: str) -> str:
        """A value that as a whole is of `kind`."""
        if patterns.PLACEHOLDER.match(value):
            return value
        if kind in ("environment", "remove"):
            self.found[place, "environment" if kind == "environment" else "command line"] += 1
            return REMOVED
        if kind in ("path", "module", "command"):
            return self._shortened(value, place, kind)
        if kind == "home":
            text = self._text(value, place)
            if text != value:
                return text
            self.found[place, "home"] += 1
            return f"/home/{self.learned.number('user', value.rsplit('/', 1)[-1])}"
        if kind in ("host", "ip") and is_local(value):
            return value
        if kind == "host" and patterns.IPV4.fullmatch(value):
            kind = "ip"
        key = _bare_uuid(value) if kind == "uuid" else value
        self.found[place, kind] += 1
        if kind in ("uuid", "serial", "mac", "token") and len(key) >= 8:
            self.learned.literals.add((kind, value))
        return self.learned.number(kind, key)

    def _shortened(self, value: str, place: str, kind: str) -> str:
        """A path without its directory, where that is nobody's but this machine's."""
        text = self._text(value, place)
        path = text.replace("\\", "/")
        if not re.match(r"(?:[A-Za-z]:)?/", path):
            return text
        if kind in ("module", "command"):
            short = path.rstrip("/").rsplit("/", 1)[-1]
        else:
            short = self._directory(text)
        if short != text:
            self.found[place, "path"] += 1
        return short

    def _directory(self, path: str) -> str:
        """An absolute path with its directory numbered; a system's own are left."""
        if patterns.SYSTEM.match(path) or path.startswith("//"):
            return path
        for root in ("/site-packages/", "/dist-packages/"):
            at = path.find(root)
            if at > 0:
                return f"/{self.learned.number('dir', path[:at])}{path[at:]}"
        directory, slash, name = path.replace("\\", "/").rpartition("/")
        if not slash or not directory or re.fullmatch(r"[A-Za-z]:", directory):
            return path
        if not patterns.SUFFIX.search(name):
            return f"/{self.learned.number('dir', path)}"
        return f"/{self.learned.number('dir', directory)}/{name}"

    def _text(self, value: str, place: str, version: bool = False) -> str:
        """Text with everything that is recognised in it replaced."""
        key = (value, version)
        known = self._memo.get(key)
        if known is None:
            self._now = []
            known = self._replaced(value, version), tuple(self._now)
            if len(value) <= LONG:
                if len(self._memo) >= MEMO:
                    self._memo.clear()
                self._memo[key] = known
        text, kinds = known
        for kind in kinds:
            self.found[place, kind] += 1
        return text

    def _replaced(self, text: str, version: bool) -> str:
        if patterns.is_environment(text):
            self._now.append("environment")
            return REMOVED + ("\n" if text.endswith("\n") else "")
        text = patterns.TOKEN.sub(self._of("token"), text)
        if "=" in text or "--" in text:
            text = patterns.ASSIGNMENT.sub(self._variable, text)
            text = patterns.OPTION.sub(self._option, text)
        if ":" in text:
            if '"' in text or "'" in text:
                text = patterns.PRINTED.sub(self._variable, text)
            text = patterns.CREDENTIALS.sub(self._of("token"), text)
            text = patterns.BUS.sub(self._of("bus"), text)
            text = patterns.IPV6.sub(self._address6, text)
        if "-" in text or ":" in text:
            text = patterns.UUID.sub(self._of("uuid"), text)
            text = patterns.MAC.sub(self._of("mac"), text)
        if "@" in text:
            text = HOSTED.sub(self._hosted, text)
            text = patterns.EMAIL.sub(self._email, text)
        if "." in text and not version:
            text = patterns.IPV4.sub(self._address, text)
        if "." in text or "ip-" in text:
            text = patterns.CLOUD_HOST.sub(self._of("host"), text)
        if self._prefixes is not None and "/" in text:
            text = self._prefixes.sub(self._prefix, text)
        if "/" in text or "\\" in text:
            text = patterns.HOME.sub(self._home, text)
            text = patterns.STORAGE.sub(self._path, text)
            text = patterns.FILE.sub(self._path, text)
            text = patterns.BUCKET.sub(self._of("bucket", literal=False), text)
        if self._finder is not None:
            text = self._finder.sub(self._name, text)
        return text

    def _of(self, kind: str, *, literal: bool = True) -> Handler:
        def handle(match: re.Match[str]) -> str:
            text = match[0]
            if patterns.PLACEHOLDER.match(text):
                return text
            self._now.append(kind)
            if literal and len(text) >= 6:
                self.learned.literals.add((kind, text))
            return self.learned.number(kind, _bare_uuid(text) if kind == "uuid" else text)

        return handle

    def _hosted(self, match: re.Match[str]) -> str:
        if not patterns.PLACEHOLDER.match(match[2]):
            self._now.append("host")
        return match[1] + self.learned.number("host", match[2])

    def _email(self, match: re.Match[str]) -> str:
        return match[0] if HOSTED.match(match[0]) else self._of("email")(match)

    def _address(self, match: re.Match[str]) -> str:
        return self._of("ip")(match) if patterns.is_address(match) else match[0]

    def _address6(self, match: re.Match[str]) -> str:
        return self._of("ip")(match) if patterns.is_address6(match[0]) else match[0]

    def _variable(self, match: re.Match[str]) -> str:
        value = match[3]
        quote = value[0] if value[:1] in ("'", '"') else ""
        inside = value[1:-1] if quote else value
        if not inside or patterns.PLACEHOLDER.match(inside):
            return match[0]
        self._now.append("environment")
        return f"{match[0].removesuffix(value)}{quote}{REMOVED}{quote}"

    def _option(self, match: re.Match[str]) -> str:
        if patterns.PLACEHOLDER.match(match[2]):
            return match[0]
        self._now.append("token")
        return match[1] + self.learned.number("token", match[2])

    def _home(self, match: re.Match[str]) -> str:
        user = match[1] or match[2] or "root"
        if re.fullmatch(r"user\d+", user):
            return match[0]
        self._now.append("home")
        if user != "root" and not patterns.is_common(user):
            self.learned.literals.add(("home", match[0]))
        number = self.learned.number("user", user)
        return f"C:\\Users\\{number}" if match[2] else f"/home/{number}"

    def _prefix(self, match: re.Match[str]) -> str:
        self._now.append("directory")
        return self.learned.directories[match[0]]

    def _path(self, match: re.Match[str]) -> str:
        short = self._directory(match[0])
        if short != match[0]:
            self._now.append("directory")
        return short

    def _name(self, match: re.Match[str]) -> str:
        text = match[0]
        if text in self.learned.secrets:
            self._now.append("token")
            return self.learned.secrets[text]
        kind, replacement = self.learned.names[text]
        self._now.append(kind)
        return replacement


def _bare_uuid(value: str) -> str:
    return re.sub(r"\A(?:GPU|MIG)-", "", value, flags=re.IGNORECASE).lower()
