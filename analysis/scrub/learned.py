"""What a capture says about people and machines: learned from what it declares.

Names come from host name fields, HOME=, /home/NAME and the like. Replacements are numbered per
value (`user1`, `host2`, `/home/user1`), so what was equal stays equal.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from ...core.capture_names import HOSTED
from . import fields, patterns

# What stands for each value, by kind: `Numbers["host"]["frosty"]` is `host1`.
Numbers = defaultdict[str, dict[str, str]]

LONG = 4096  # longer texts are not remembered
MEMO = 500_000  # texts that are remembered


class Learned:
    """What is to be replaced, and by what.

    `names`: text to find, its kind and what replaces it. `secrets` and `directories`: what replaces
    each. `literals` holds (kind, value) of everything that the output must no longer contain.
    `numbers`: those of the captures that are scrubbed together with this one.
    """

    def __init__(self, numbers: Numbers | None = None) -> None:
        self.names: dict[str, tuple[str, str]] = {}
        self.secrets: dict[str, str] = {}
        self.directories: dict[str, str] = {}
        self.literals: set[tuple[str, str]] = set()
        self._numbers: Numbers = defaultdict(dict) if numbers is None else numbers
        self.seen: set[str] = set()  # texts that were learned from

    def from_value(self, value: str, kind: str | None) -> None:
        """Learn from one text of the capture, which as a whole is of `kind` or is searched."""
        if kind in ("host", "user", "home", "token"):
            self.learn(kind, value)
        elif kind == "environment":
            self._environment(value)
        if value in self.seen:
            return
        if len(value) <= LONG and len(self.seen) < MEMO:
            self.seen.add(value)
        self.from_text(value)

    def from_text(self, value: str) -> None:
        """Learn the users, hosts and variables that a text shows."""
        if "/" in value or "\\" in value:
            for match in patterns.HOME.finditer(value):
                self.learn("user", match[1] or match[2] or "")
        if "=" in value:
            if patterns.is_environment(value):
                self._environment(value)
            for match in patterns.ASSIGNMENT.finditer(value):
                self.from_variable(match[1], match[3])
        if "@" in value:
            for match in HOSTED.finditer(value):
                self.learn("host", match[2])
        if ":" in value and ('"' in value or "'" in value):
            for match in patterns.PRINTED.finditer(value):
                self.from_variable(match[1], match[3])

    def from_variable(self, name: str, value: str) -> None:
        """Learn from an environment variable, whose value may be quoted."""
        value = value.strip().strip("\"'")
        kind = fields.kind_of_variable(name)
        if kind is not None:
            self.learn(kind, value)
        if len(value) < LONG and "=" not in value:
            self.from_text(value)

    def _environment(self, value: str) -> None:
        for match in patterns.VARIABLE.finditer(value):
            self.from_variable(match[1], match[2])

    def learn(self, kind: str, value: str) -> None:
        """Learn a value that is a `host`, `user`, `home`, `dir` or `token`."""
        value = value.strip()
        if not value or "\n" in value or len(value) > 4096 or patterns.PLACEHOLDER.match(value):
            return
        if kind == "home":
            self._home(value.rstrip("/\\"))
        elif kind == "dir":
            self._directory(value.rstrip("/"))
        elif kind == "user":
            self._name("user", value)
        elif kind == "host":
            for host in re.split(r"[,\s]+", value):
                self._host(re.sub(r":\d+\Z", "", host))
        elif kind == "token" and _is_secret(value):
            self.secrets[value] = self.number("token", value)
            self.literals.add(("token", value))

    def _home(self, value: str) -> None:
        if match := patterns.HOME.fullmatch(value):
            if user := match[1] or match[2]:
                self._name("user", user)
        elif value.count("/") >= 2 and not patterns.SYSTEM.match(value):
            user = value.rsplit("/", 1)[-1]
            self.directories[value] = f"/home/{self.number('user', user)}"
            self.literals.add(("home", value))
            self._name("user", user)

    def _directory(self, value: str) -> None:
        if value.count("/") < 2 or not value.startswith("/") or patterns.SYSTEM.match(value + "/"):
            return
        if patterns.HOME.match(value) or value in self.directories:
            return
        self.directories[value] = f"/{self.number('dir', value)}"
        self.literals.add(("dir", value))

    def _name(self, kind: str, value: str) -> None:
        replacement = self.number(kind, value)
        if patterns.is_common(value) or patterns.PLACEHOLDER.match(value):
            return
        self.names.setdefault(value, (kind, replacement))
        self.literals.add((kind, value))

    def _host(self, value: str) -> None:
        if not value or is_local(value) or patterns.IPV4.fullmatch(value) or "/" in value:
            return
        short, dot, domain = value.partition(".")
        if dot and short and not patterns.is_common(short):
            number = self.number("host", short)
            self._numbers["host"].setdefault(value, number)
            if "." in domain and len(domain) >= 6:
                self.names.setdefault(domain, ("domain", self.number("domain", domain)))
                self.literals.add(("domain", domain))
            self._name("host", short)
        self._name("host", value)

    def number(self, kind: str, value: str) -> str:
        """What stands for a value: `user1`; the same for an equal one."""
        if patterns.PLACEHOLDER.match(value):
            return value
        numbers = self._numbers[kind]
        if value not in numbers:
            # Not how many there are: a host's full name has the number of its short one.
            numbers[value] = f"{kind}{len(set(numbers.values())) + 1}"
        return numbers[value]

    def finder(self) -> re.Pattern[str] | None:
        """Finds what was learned, wherever it stands; None where that is nothing."""
        parts = []
        if self.secrets:
            parts.append(_any_of(self.secrets))
        if self.names:
            parts.append(rf"(?<![A-Za-z0-9]){_any_of(self.names)}(?![A-Za-z0-9])")
        return re.compile("|".join(parts)) if parts else None

    def prefixes(self) -> re.Pattern[str] | None:
        """Finds the directories that were learned; None where there are none."""
        if not self.directories:
            return None
        return re.compile(rf"(?<![\w.\-/]){_any_of(self.directories)}(?![\w.-])")


def _any_of(texts: Iterable[str]) -> str:
    """A pattern of the longest of these texts that fits."""
    return f"(?:{'|'.join(map(re.escape, sorted(texts, key=len, reverse=True)))})"


def is_local(value: str) -> bool:
    """Whether a host is any machine's own name or address."""
    return re.sub(r":\d+\Z", "", value).lower() in ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def _is_secret(value: str) -> bool:
    """Whether the value of a secret variable is long and odd enough to be looked for everywhere."""
    plain = value.isdigit() or value.startswith("/") or value.lower() in patterns.COMMON
    return len(value) >= 6 and not plain
