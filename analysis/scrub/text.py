"""The scrubber: learns what a capture says about people and machines, then replaces it.

A capture is read twice by the same code: first `learning`, when `cell` only collects the names
that the capture declares (host name fields, HOME=, /home/NAME), then replacing, so that a name is
found everywhere, also before the place that declares it. Replacements are numbered per value
(`user1`, `host2`, `/home/user1`), so what was equal stays equal. Counts are kept per place and
kind, the values nowhere but in memory (for the check of the output).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from . import fields, patterns

REMOVED = "removed"
_MEMO = 500_000  # texts that are remembered
_LONG = 4096  # longer ones are not

Handler = Callable[[re.Match[str]], str]


class Scrubber:
    """What was learned about one capture, what its values become, and what was found where.

    `found` counts by (place, kind). `literals` holds (kind, value) of everything that the output
    must no longer contain anywhere. `left_out`: files of a run that no copy holds.
    """

    def __init__(self) -> None:
        self.learning = True
        self.found: Counter[tuple[str, str]] = Counter()
        self.literals: set[tuple[str, str]] = set()
        self.left_out: set[Path] = set()
        self._numbers: dict[str, dict[str, str]] = {}
        self._names: dict[str, tuple[str, str]] = {}  # text to find: kind, replacement
        self._secrets: dict[str, str] = {}
        self._directories: dict[str, str] = {}
        self._sets: dict[str, set[str]] = {}
        self._finder: re.Pattern[str] | None = None
        self._prefixes: re.Pattern[str] | None = None
        self._memo: dict[tuple[str, bool], tuple[str, tuple[str, ...]]] = {}
        self._seen: set[str] = set()
        self._now: list[str] = []  # kinds found in the text at hand

    # --- what a reader of a format calls -------------------------------------------------------

    def cell(self, value: str, place: str, kind: str | None = None, field: str = "") -> str:
        """One text of the capture: learnt from, or replaced.

        `kind` says what the whole value is (see `fields.KINDS`); null searches it for patterns.
        `field` is the name of the field, which tells versions from addresses.
        """
        if not value:
            return value
        if self.learning:
            self._learn(value, kind)
            return value
        if kind is None:
            return self._text(value, place, fields.is_version(field))
        return self._whole(value, place, kind)

    def variable(self, name: str, value: str, place: str) -> str:
        """The value of an environment variable: learnt from, then removed."""
        if self.learning:
            self.learn_variable(name, value)
            return value
        return self._whole(value, place, "environment")

    def remove(self, place: str, kind: str, count: int = 1) -> None:
        """Count something that the format's own module left out."""
        if not self.learning and count:
            self.found[place, kind] += count

    def remember(self, group: str, value: str) -> None:
        """Keep a value that only this file's structure shows to be private."""
        self._sets.setdefault(group, set()).add(value)

    def remembers(self, group: str, value: str) -> bool:
        """Whether `remember` was called with this value."""
        return value in self._sets.get(group, ())

    def start_replacing(self) -> None:
        """Learning is over."""
        self.learning = False
        self._memo.clear()
        self._seen.clear()
        names = sorted(self._names, key=len, reverse=True)
        secrets = sorted(self._secrets, key=len, reverse=True)
        parts = []
        if secrets:
            parts.append(f"(?P<secret>{'|'.join(map(re.escape, secrets))})")
        if names:
            # What follows a host's name with two dots or more is its domain.
            parts.append(
                rf"(?<![A-Za-z0-9])(?P<name>{'|'.join(map(re.escape, names))})(?![A-Za-z0-9])"
            )
        self._finder = re.compile("|".join(parts)) if parts else None
        directories = sorted(self._directories, key=len, reverse=True)
        self._prefixes = (
            re.compile(rf"(?<![\w.\-/])(?:{'|'.join(map(re.escape, directories))})(?![\w.-])")
            if directories
            else None
        )

    # --- learning ------------------------------------------------------------------------------

    def _learn(self, value: str, kind: str | None) -> None:
        if kind in ("host", "user", "home", "token"):
            self.learn(kind, value)
        elif kind == "environment":
            self._learn_environment(value)
        if value in self._seen:
            return
        if len(value) <= _LONG and len(self._seen) < _MEMO:
            self._seen.add(value)
        self._learn_text(value)

    def _learn_environment(self, value: str) -> None:
        for match in patterns.VARIABLE.finditer(value):
            self.learn_variable(match[1], match[2])

    def _learn_text(self, value: str) -> None:
        if "/" in value or "\\" in value:
            for match in patterns.HOME.finditer(value):
                user = match[1] or match[2]
                if user:
                    self.learn("user", user)
        if "=" in value:
            if patterns.is_environment(value):
                self._learn_environment(value)
            for match in patterns.ASSIGNMENT.finditer(value):
                self.learn_variable(match[1], match[match.lastindex or 0])
        if ":" in value and ('"' in value or "'" in value):
            for match in patterns.PRINTED.finditer(value):
                self.learn_variable(match[1], match[match.lastindex or 0])

    def learn_variable(self, name: str, value: str) -> None:
        """Learn from an environment variable, whose value may be quoted."""
        value = value.strip().strip("\"'")
        kind = fields.kind_of_variable(name)
        if kind is not None:
            self.learn(kind, value)
        if len(value) < _LONG and "=" not in value:
            self._learn_text(value)

    def learn(self, kind: str, value: str) -> None:
        """Learn a value that is a `host`, `user`, `home`, `dir` or `token`."""
        value = value.strip()
        if not value or "\n" in value or len(value) > 4096 or patterns.PLACEHOLDER.match(value):
            return
        if kind == "home":
            self._learn_home(value.rstrip("/\\"))
        elif kind == "dir":
            self._learn_directory(value.rstrip("/"))
        elif kind == "user":
            self._learn_name("user", value)
        elif kind == "host":
            for host in re.split(r"[,\s]+", value):
                self._learn_host(re.sub(r":\d+\Z", "", host))
        elif kind == "token" and _is_secret(value):
            self._secrets[value] = self._number("token", value)
            self.literals.add(("token", value))

    def _learn_home(self, value: str) -> None:
        match = patterns.HOME.fullmatch(value)
        if match is not None:
            user = match[1] or match[2]
            if user:
                self._learn_name("user", user)
            return
        if value.count("/") >= 2 and not patterns.SYSTEM.match(value):
            user = value.rsplit("/", 1)[-1]
            self._directories[value] = f"/home/{self._number('user', user)}"
            self.literals.add(("home", value))
            self._learn_name("user", user)

    def _learn_directory(self, value: str) -> None:
        if value.count("/") < 2 or not value.startswith("/") or patterns.SYSTEM.match(value + "/"):
            return
        if patterns.HOME.match(value) or value in self._directories:
            return
        self._directories[value] = f"/{self._number('dir', value)}"
        self.literals.add(("dir", value))

    def _learn_name(self, kind: str, value: str) -> None:
        replacement = self._number(kind, value)
        if patterns.is_common(value) or patterns.PLACEHOLDER.match(value):
            return
        self._names.setdefault(value, (kind, replacement))
        self.literals.add((kind, value))

    def _learn_host(self, value: str) -> None:
        if not value or _is_local(value) or patterns.IPV4.fullmatch(value) or "/" in value:
            return
        short, dot, domain = value.partition(".")
        if dot and short and not patterns.is_common(short):
            number = self._number("host", short)
            self._numbers["host"].setdefault(value, number)
            if "." in domain and len(domain) >= 6:
                self._names.setdefault(domain, ("domain", self._number("domain", domain)))
                self.literals.add(("domain", domain))
            self._learn_name("host", short)
        self._learn_name("host", value)

    # --- replacing -----------------------------------------------------------------------------

    def _number(self, kind: str, value: str) -> str:
        if patterns.PLACEHOLDER.match(value):
            return value
        numbers = self._numbers.setdefault(kind, {})
        found = numbers.get(value)
        if found is None:
            used = set(numbers.values())
            at = len(used) + 1
            while f"{kind}{at}" in used:
                at += 1
            found = numbers[value] = f"{kind}{at}"
        return found

    def _count(self, place: str, kind: str, changed: bool) -> None:
        if changed:
            self.found[place, kind] += 1

    def _whole(self, value: str, place: str, kind: str) -> str:
        """A value that as a whole is of `kind`."""
        if patterns.PLACEHOLDER.match(value):
            return value
        if kind in ("environment", "remove"):
            self._count(place, "environment" if kind == "environment" else "command line", True)
            return REMOVED
        if kind in ("path", "module", "command"):
            return self._shortened(value, place, kind)
        if kind == "home":
            if self._text(value, place) == value:
                self._count(place, "home", True)
                return f"/home/{self._number('user', value.rsplit('/', 1)[-1])}"
            return self._text(value, place)
        if kind in ("host", "ip") and _is_local(value):
            return value
        if kind == "host" and patterns.IPV4.fullmatch(value):
            kind = "ip"
        key = _bare_uuid(value) if kind == "uuid" else value
        self._count(place, kind, True)
        if kind in ("uuid", "serial", "mac", "token") and len(key) >= 8:
            self.literals.add((kind, value))
        return self._number(kind, key)

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
        self._count(place, "path", short != text)
        return short

    def _directory(self, path: str) -> str:
        """An absolute path with its directory numbered; a system's own are left."""
        if patterns.SYSTEM.match(path) or path.startswith("//"):
            return path
        for root in ("/site-packages/", "/dist-packages/"):
            at = path.find(root)
            if at > 0:
                return f"/{self._number('dir', path[:at])}{path[at:]}"
        directory, slash, name = path.replace("\\", "/").rpartition("/")
        if not slash or not directory or re.fullmatch(r"[A-Za-z]:", directory):
            return path
        if not patterns.SUFFIX.search(name):
            return f"/{self._number('dir', path)}"
        return f"/{self._number('dir', directory)}/{name}"

    def _text(self, value: str, place: str, version: bool = False) -> str:
        """Text with everything that is recognised in it replaced."""
        key = (value, version)
        known = self._memo.get(key)
        if known is None:
            self._now = []
            known = self._replaced(value, version), tuple(self._now)
            if len(value) <= _LONG:
                if len(self._memo) >= _MEMO:
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
            text = patterns.EMAIL.sub(self._of("email"), text)
        if "." in text:
            if not version:
                text = patterns.IPV4.sub(self._address, text)
            text = patterns.CLOUD_HOST.sub(self._of("host"), text)
        elif "ip-" in text:
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
            found = match[0]
            if patterns.PLACEHOLDER.match(found):
                return found
            self._now.append(kind)
            if literal and len(found) >= 6:
                self.literals.add((kind, found))
            return self._number(kind, _bare_uuid(found) if kind == "uuid" else found)

        return handle

    def _address(self, match: re.Match[str]) -> str:
        return self._of("ip")(match) if patterns.is_address(match) else match[0]

    def _address6(self, match: re.Match[str]) -> str:
        return self._of("ip")(match) if patterns.is_address6(match[0]) else match[0]

    def _variable(self, match: re.Match[str]) -> str:
        value = match[match.lastindex or 0]
        quote = value[0] if value[:1] in ("'", '"') else ""
        inside = value[1:-1] if quote else value
        if not inside or patterns.PLACEHOLDER.match(inside):
            return match[0]
        self._now.append("environment")
        return match[0][: match.start(match.lastindex or 0) - match.start()] + (
            f"{quote}{REMOVED}{quote}"
        )

    def _option(self, match: re.Match[str]) -> str:
        if patterns.PLACEHOLDER.match(match[2]):
            return match[0]
        self._now.append("token")
        return match[1] + self._number("token", match[2])

    def _home(self, match: re.Match[str]) -> str:
        user = match[1] or match[2] or "root"
        if re.fullmatch(r"user\d+", user):
            return match[0]
        self._now.append("home")
        if user != "root" and not patterns.is_common(user):
            self.literals.add(("home", match[0]))
        number = self._number("user", user)
        return f"C:\\Users\\{number}" if match[2] else f"/home/{number}"

    def _prefix(self, match: re.Match[str]) -> str:
        self._now.append("directory")
        return self._directories[match[0]]

    def _path(self, match: re.Match[str]) -> str:
        short = self._directory(match[0])
        if short != match[0]:
            self._now.append("directory")
        return short

    def _name(self, match: re.Match[str]) -> str:
        found = match[0]
        if found in self._secrets:
            self._now.append("token")
            return self._secrets[found]
        kind, replacement = self._names[found]
        self._now.append(kind)
        return replacement


def _is_secret(value: str) -> bool:
    """Whether the value of a secret variable is long and odd enough to be looked for everywhere."""
    plain = value.isdigit() or value.startswith("/") or value.lower() in patterns.COMMON
    return len(value) >= 6 and not plain


def _is_local(value: str) -> bool:
    return re.sub(r":\d+\Z", "", value).lower() in ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def _bare_uuid(value: str) -> str:
    return re.sub(r"\A(?:GPU|MIG)-", "", value, flags=re.IGNORECASE).lower()
