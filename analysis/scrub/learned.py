"""What a capture says about people and machines: learned from what it declares.

Names come from host name fields, HOME=, /home/NAME and the like. Replacements are numbered per
value (`user1`, `host2`, `/home/user1`), so what was equal stays equal.
"""

from __future__ import annotations

import re

from . import fields, patterns

LONG = 4096  # longer texts are not remembered
MEMO = 500_000  # texts that are remembered


class Learned:
    """What is to be replaced, and by what.

    `names`: text to find, its kind and what replaces it. `secrets` and `directories`: what replaces
    each. `literals` holds (kind, value) of everything that the output must no longer contain.
    """

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, str]] = {}
        self.secrets: dict[str, str] = {}
        self.directories: dict[str, str] = {}
        self.literals: set[tuple[str, str]] = set()
        self._numbers: dict[str, dict[str, str]] = {}
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
        """Learn the users and the variables that a text shows."""
        if "/" in value or "\\" in value:
            for match in patterns.HOME.finditer(value):
                user = match[1] or match[2]
                if user:
                    self.learn("user", user)
        if "=" in value:
            if patterns.is_environment(value):
                self._environment(value)
            for match in patterns.ASSIGNMENT.finditer(value):
                self.from_variable(match[1], match[match.lastindex or 0])
        if ":" in value and ('"' in value or "'" in value):
            for match in patterns.PRINTED.finditer(value):
                self.from_variable(match[1], match[match.lastindex or 0])

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
        match = patterns.HOME.fullmatch(value)
        if match is not None:
            user = match[1] or match[2]
            if user:
                self._name("user", user)
            return
        if value.count("/") >= 2 and not patterns.SYSTEM.match(value):
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
        numbers = self._numbers.setdefault(kind, {})
        placeholder = numbers.get(value)
        if placeholder is None:
            used = set(numbers.values())
            at = len(used) + 1
            while f"{kind}{at}" in used:
                at += 1
            placeholder = numbers[value] = f"{kind}{at}"
        return placeholder

    def finder(self) -> re.Pattern[str] | None:
        """Finds what was learned, wherever it stands; None where that is nothing."""
        names = sorted(self.names, key=len, reverse=True)
        secrets = sorted(self.secrets, key=len, reverse=True)
        parts = []
        if secrets:
            parts.append(f"(?P<secret>{'|'.join(map(re.escape, secrets))})")
        if names:
            # What follows a host's name with two dots or more is its domain.
            parts.append(
                rf"(?<![A-Za-z0-9])(?P<name>{'|'.join(map(re.escape, names))})(?![A-Za-z0-9])"
            )
        return re.compile("|".join(parts)) if parts else None

    def prefixes(self) -> re.Pattern[str] | None:
        """Finds the directories that were learned; None where there are none."""
        directories = sorted(self.directories, key=len, reverse=True)
        if not directories:
            return None
        return re.compile(rf"(?<![\w.\-/])(?:{'|'.join(map(re.escape, directories))})(?![\w.-])")


def is_local(value: str) -> bool:
    """Whether a host is any machine's own name or address."""
    return re.sub(r":\d+\Z", "", value).lower() in ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def _is_secret(value: str) -> bool:
    """Whether the value of a secret variable is long and odd enough to be looked for everywhere."""
    plain = value.isdigit() or value.startswith("/") or value.lower() in patterns.COMMON
    return len(value) >= 6 and not plain
