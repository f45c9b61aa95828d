"""What README, docs and help show can be typed as it stands, or they say what to do first."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import shutil
from pathlib import Path

import cli_commands
import click
import pytest
from click.exceptions import Exit
from click.testing import CliRunner
from h100_tiny import write_run
from paths import ROOT

from layerline.core.cli.command import SECTIONS, cli, main

WRITTEN = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Figures of one machine, and what changed, are no pages that answer a question.
DOCS = [p for p in WRITTEN if p.parent.name != "results" and p.name != "CHANGELOG.md"]
STAGES = ("core", "export", "engines", "workloads", "profile", "analysis")
_COMMAND = re.compile(r"^ *(?:layerline|pip) \w", re.MULTILINE)
PAGES = [p for p in DOCS if _COMMAND.search(p.read_text())]
_LINE = re.compile(r"^(?:[A-Z_]+=\S+ )*layerline ", re.MULTILINE)
# Of a form, not a command: what may be left out or chosen, or stands for several.
_FORM = re.compile(r"[\[\]|…]|\.\.\.|COMMAND|<")


LEAVES = {" ".join(words): command for words, command in cli_commands.commands()}


def commands(text: str, inline: bool = False) -> list[str]:
    """The command lines in the blocks of a text, those that go on after a backslash whole, comments
    left out; or those in its prose."""
    blocks = re.findall(r"^```\w*\n(.*?)^```|((?:^    \S.*\n)+)", text, re.DOTALL | re.MULTILINE)
    code = "\n".join(a or b for a, b in blocks).replace("\\\n", " ")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line.strip() for line in code.splitlines()]
    if inline:
        lines = [" ".join(c.split()) for c in re.findall(r"`(layerline [^`]+)`", prose)]
    found = [re.split(r"\s(?:#\s|>)", line)[0].strip() for line in lines if _LINE.match(line)]
    return [re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line) for line in found if not _FORM.search(line)]


SHOWN = sorted(
    {(p.name, line) for p in DOCS for line in commands(p.read_text())}
    | {(n, line) for n, c in LEAVES.items() for line in commands(f"```\n{c.epilog}\n```\n")}
)
NAMED = sorted({(p.name, line) for p in DOCS for line in commands(p.read_text(), inline=True)})


def parsed(line: str, folder: Path) -> None:
    """Raises what click makes of a command line that is wrong: of its options and their values."""
    command: click.Command = cli
    words = shlex.split(line)[1:]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"no command {name}"
        command = found
    for option, value in itertools.pairwise(words):
        if option in ("--text", "--tokenizer"):
            (folder / value).mkdir(parents=True, exist_ok=True)
    command.make_context("layerline", words)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages_with_commands_say_where_these_are(page: Path) -> None:
    text = page.read_text()
    assert "source .venv/bin/activate" in text


@pytest.mark.parametrize(("where", "line"), SHOWN, ids=[f"{w}: {line}" for w, line in SHOWN])
def test_commands_that_are_shown_are_commands(
    where: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parsed(line, tmp_path)


@pytest.mark.parametrize(("where", "line"), NAMED, ids=[f"{w}: {line}" for w, line in NAMED])
def test_commands_that_prose_names_are_there_with_their_options(
    where: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(click.MissingParameter, click.exceptions.NoArgsIsHelpError, Exit):
        parsed(line, tmp_path)


def test_commands_of_the_docs_are_found() -> None:
    lines = [line for _, line in SHOWN]
    assert len(lines) > 100 and len(NAMED) > 20
    assert "layerline train --nproc 8 --run runs/own --profile nsys -- python own.py" in lines
    with pytest.raises(click.UsageError, match="No such option"):
        parsed("layerline report runs/own --opne", Path())


def test_what_the_readme_does_with_files_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    opened: list[str] = []
    monkeypatch.setattr(click, "launch", lambda url: opened.append(url) or 0)
    for name in ("own", "before", "after"):
        run = write_run(tmp_path / "runs" / name)
    shutil.copy(run.file("captures", "fp32.tensorrt.sqlite"), "own.sqlite")
    shutil.copy(run.file("export", "nodes.json"), "own.nodes.json")
    for name in ("before", "after"):
        CliRunner().invoke(cli, ["report", f"runs/{name}"])
    text = (ROOT / "README.md").read_text()
    readme = [*commands(text), *commands(text, inline=True)]
    done = {}
    for line in readme:
        if re.match(r"layerline (report|timeline|graph|layers|scrub|gate|init) ", line):
            with pytest.raises(SystemExit) as ended:
                main(shlex.split(line)[1:])
            done[line] = ended.value.code
    # The fp16 engine computed nothing in fp16: a report of it is written, and says so.
    assert done.pop("layerline report runs/own --open") == 1
    # One process each: how far processes lie apart is not known.
    assert done.pop("layerline gate runs/before runs/after --slower 3%") == 4
    assert opened == [str(tmp_path / "runs/own/report/index.html")]
    assert set(done.values()) == {0}, capsys.readouterr().err
    assert len(done) == 5
    for left in ("own.py", "own.scrubbed.sqlite", "runs/own/report/graph.svg"):
        assert Path(left).exists(), left


def test_the_readme_is_short_and_its_picture_small() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert "![" in "\n".join(text.splitlines()[:10])
    assert (ROOT / "docs/page.png").stat().st_size <= 120_000


def anchors(page: Path) -> set[str]:
    """What a link after # may name: a heading's words in lower case, with - between them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in link:
            name, _, anchor = link.partition("#")
            linked = page.parent / name if name else page
            assert linked.exists(), link
            assert not anchor or anchor in anchors(linked), link


def test_pages_that_code_names_are_there() -> None:
    named = {
        (path.name, page)
        for stage in STAGES
        for path in (ROOT / stage).rglob("*.py")
        for page in re.findall(r"(?<![\w/])docs/[\w/-]+\.md", path.read_text())
    }
    assert named and all((ROOT / page).exists() for _, page in named), named


@pytest.mark.parametrize("page", DOCS, ids=lambda p: p.name)
def test_files_of_the_source_that_pages_name_are_there(page: Path) -> None:
    """Whole, or by the end of the path."""
    for name in re.findall(r"`(\w+(?:/\w+)*/\w+\.(?:py|sh|toml))`", page.read_text()):
        ends = (found for stage in STAGES for found in (ROOT / stage).rglob(name))
        assert (ROOT / name).exists() or next(ends, None), name


@pytest.mark.parametrize("page", DOCS[1:], ids=lambda p: p.name)
def test_each_page_begins_with_the_question_that_it_answers(page: Path) -> None:
    question = page.read_text().split("\n\n")[1]
    assert question.startswith("*") and question.endswith("?*"), question


@pytest.mark.parametrize("name", LEAVES)
def test_each_command_says_what_it_does_in_a_line_and_shows_examples(name: str) -> None:
    command = LEAVES[name]
    summary = command.get_short_help_str(10_000)
    assert len(summary) <= 66, summary
    assert summary[0].isupper() and not summary.endswith("…")
    examples = (command.epilog or "").splitlines()[2:]
    assert any(f"layerline {name}" in line for line in examples)
    assert max(map(len, examples)) <= 80 - 2
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or parameter.help, parameter.name


def test_help_puts_every_command_under_a_heading_and_cuts_no_summary() -> None:
    text = CliRunner().invoke(cli, ["--help"], terminal_width=80).output
    assert "…" not in text and "..." not in text.split("Options:")[1]
    assert max(map(len, text.splitlines())) <= 80
    for heading, members in SECTIONS.items():
        section = text.split(f"{heading}:\n")[1].split("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(members)


def test_the_small_model_is_called_the_same_everywhere() -> None:
    for page in [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]:
        assert "gpt2-tiny" not in page.read_text(), page
