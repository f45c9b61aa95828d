"""The HTML page as text: what is in it without a browser, and what can never be."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
import rendering
import report_views as views
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.captures import engine as captured
from layerline.analysis.report import html, ledger, payload, templates
from layerline.core.documents import Accuracy, Model

ALL = ("gpt2", "failing", "one_side", "empty", "hostile")


class _Page(HTMLParser):
    """Tags with attributes, the text of each section, and the scripts."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.sections: dict[str, str] = {}
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._section = ""
        self._script: dict[str, str | None] | None = None
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self._section = dict(attrs)["id"] or ""
        if tag == "script":
            self._script = dict(attrs)
            self.scripts.append((self._script, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            attributes, before = self.scripts[-1]
            self.scripts[-1] = (attributes, before + data)
        elif self._section:
            text = data.replace("\N{NO-BREAK SPACE}", " ")
            self.sections[self._section] = self.sections.get(self._section, "") + text


def _data(page: _Page) -> Any:
    return json.loads(next(t for a, t in page.scripts if a.get("id") == "data"))


@pytest.mark.parametrize("which", ALL)
def test_the_page_refers_to_nothing_outside_itself(which: str) -> None:
    page = _Page(rendering.html(getattr(views, which)()))
    for tag, attributes in page.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        for key, value in attributes.items():
            assert not key.startswith("on")
            if key in {"src", "href", "action", "srcset", "data", "xlink:href"}:
                assert key == "href" and (value or "").startswith("#")
    # The one thing that is referred to is in the page.
    assert set(re.findall(r"url\([^)]*\)", rendering.html(views.empty()))) == {"url(#hatch)"}


@pytest.mark.parametrize("which", ALL)
def test_the_policy_allows_no_request_and_one_script(which: str) -> None:
    page = _Page(rendering.html(getattr(views, which)()))
    policy = next(
        a["content"] or ""
        for t, a in page.tags
        if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(r.strip().split(" ", 1) for r in policy.split(";"))
    assert rules["default-src"] == "'none'"
    (_, data), (_, script) = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    json.loads(data)


def test_every_part_of_the_script_is_in_the_page_once():
    found = [p for of in ("page/*.js", "screen/*.js") for p in templates.FOLDER.glob(of)]
    parts = {str(p.relative_to(templates.FOLDER)) for p in found}
    assert parts == {f"{name}.js" for name in html.SCRIPTS}
    (script,) = (text for kind, text in _Page(rendering.html(views.gpt2())).scripts if not kind)
    for name in parts:
        part = (templates.FOLDER / name).read_text(encoding="utf-8")
        assert script.count(part) == 1, name


@pytest.mark.parametrize("which", ALL)
def test_embedded_json_cannot_end_its_script(which: str) -> None:
    view = getattr(views, which)()
    text = templates.embedded(payload.build(rendering.comparison(view)))
    assert text.isascii()
    assert not set("<>&") & set(text)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@given(
    st.recursive(st.text() | st.floats() | st.none(), lambda inner: st.lists(inner), max_leaves=9)
)
@settings(max_examples=60, deadline=None)
def test_embedded_json_is_what_went_in(value: Any) -> None:
    text = templates.embedded(value)
    assert text.isascii() and not set("<>&") & set(text)

    def nulled(v: Any) -> Any:
        if isinstance(v, list):
            return [nulled(x) for x in v]
        return (
            None if isinstance(v, float) and (v != v or v in (float("inf"), -float("inf"))) else v
        )

    assert json.loads(text) == nulled(value)


def test_hostile_names_add_no_element() -> None:
    plain, evil = views.hostile(), views.hostile()

    def tame(value: Any) -> Any:
        if isinstance(value, str) and value in views.HOSTILE:
            return f"name {views.HOSTILE.index(value)}"
        if value == views.engine_key(views.HOSTILE[1]):
            return views.engine_key("name 1")
        if isinstance(value, list):
            return [tame(v) for v in value]
        if isinstance(value, dict):
            return {tame(k): tame(v) for k, v in value.items()}
        return value

    def tags(view: Any) -> list[str]:
        # A break opportunity after a dot or slash is the one element a name may bring.
        return [t for t, _ in _Page(rendering.html(view)).tags if t != "wbr"]

    assert tags(evil) == tags(tame(plain))
    text = rendering.html(evil)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800]", text)
    text.encode("utf-8")


def test_without_script_the_answer_the_ledger_and_the_first_modules_are_there() -> None:
    view = views.gpt2()
    page = _Page(rendering.html(view))
    for h in view["headline"]:
        assert h["text"] in page.sections["words"]
    answer = "ONNX Runtime fp32 is about 1.6× as fast as Eager fp32, outputs unchecked"
    assert answer in page.sections["answer"]
    assert "(95 %: 1.58× to 1.66× as fast)" in page.sections["answer"]
    for s in view["sides"]:
        assert s["label"] in page.sections["ledger"]
    for word in ("4.97 ms", "4.91 – 5.03 ms, n 120", "gaps", "adds up", "99.1 %", "fp16"):
        assert word in page.sections["ledger"]
    for name in ("(model)", "transformer", "wte", "lm_head", "optimizer", "gradient accumulation"):
        assert name in page.sections["modules"]
    assert "transformer.h.*.attn" in page.sections["kinds"]
    assert "dropout" in page.sections["comparability"]
    assert "no NVIDIA GPU" in page.sections["skipped"]
    assert "Example CPU" in page.sections["manifest"]


def test_a_check_that_fails_is_open_and_says_why() -> None:
    source = rendering.html(views.failing())
    page = _Page(source)
    assert "✗ 1 of 6 sums do not add up" in page.sections["answer"]
    assert "(no interval)" in page.sections["answer"]
    folded = {a["id"]: "open" in a for t, a in page.tags if t == "details" and a.get("id")}
    assert [key for key, shown in folded.items() if shown] == ["b-ii"]
    failing = source.partition('id="b-ii"')[2].partition("</details>")[0]
    assert "900 µs of the latency" in failing.replace("\N{NO-BREAK SPACE}", " ")
    assert "no unprofiled latency" in page.sections["ledger"]


def test_unknown_is_never_zero() -> None:
    view = views.one_side()
    view["sides"][0]["latency"] = {"median": None, "low": None, "high": None, "n": 0}
    view["sides"][0]["operation_ns"] = view["sides"][0]["coverage"] = None
    groups = {g.title: g.rows for g in ledger.groups(rendering.comparison(view).sides)}
    assert groups["Latency"][0].cells[0].text == "–"
    assert [r.cells[0].text for r in groups["Operations"]][0::2] == ["–", "–"]


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("own", ("own", "as its function makes them")),  # which may be random
        ("loaded", ("loaded", "of the model's files")),
        ("random", ("random", "proves little")),
    ],
)
def test_the_ledger_says_of_weights_what_is_known(weights: str, said: tuple[str, str]) -> None:
    side = rendering.comparison(views.gpt2(1)).sides[0]
    found = captured.parity(Accuracy(cosine=1.0), Model(weights=weights))
    rows = {r.label: r for g in ledger.groups([replace(side, parity=found)]) for r in g.rows}
    (cell,) = rows["Weights"].cells
    assert (cell.text, cell.sub) == said
    assert found is not None
    assert found["random_weights"] is {"own": None, "loaded": False, "random": True}[weights]


def test_the_ledger_says_when_another_precision_ran() -> None:
    rows = next(
        g.rows
        for g in ledger.groups(rendering.comparison(views.gpt2(1)).sides)
        if g.title == "Precision"
    )
    assert [c.tone for c in rows[1].cells] == ["", "bad", "", "", "", ""]


def test_one_side_has_no_ratio_and_an_empty_view_still_renders() -> None:
    page = _Page(rendering.html(views.one_side()))
    assert "Nothing was compared" in page.sections["answer"]
    assert "as fast" not in page.sections["answer"]
    page = _Page(rendering.html(views.empty()))
    assert "Nothing was measured" in page.sections["answer"]
    assert not page.sections.keys() & {"modules", "layers", "ledger"}


def test_every_node_and_layer_of_the_view_is_in_the_data() -> None:
    view = views.gpt2(2)
    data = _data(_Page(rendering.html(view)))
    carried = sum(len(r["nodes"]) for r in data["layers"])
    loose = sum(len(m["loose"]) for m in data["modules"])
    assert carried + loose == len(view["nodes"]) and loose > 0
    reached = {i for m in data["modules"] for i in m["layers"]}
    assert reached == set(range(len(view["layers"])))


def test_a_node_of_an_unknown_module_is_kept_under_the_model() -> None:
    view = views.one_side()
    lost = {"side": views.FP32, "name": "lost", "op": "Cast", "module": None}
    view["nodes"].append({**lost, "status": "missing", "layer": None})
    data = payload.build(rendering.comparison(view))
    assert ["lost", "Cast", "missing", 0] in data["modules"][0]["loose"]


def test_a_parent_that_comes_later_or_is_missing_makes_a_root_and_no_circle() -> None:
    view = views.one_side()
    view["modules"][1]["parent"] = view["modules"][2]["id"]
    view["modules"][3]["parent"] = "nowhere"
    data = payload.build(rendering.comparison(view))
    assert data["modules"][1]["parent"] is None and data["modules"][3]["parent"] is None
    assert {1, 3} <= set(payload.visible_rows(data))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"gpu": "NVIDIA H100 80GB HBM3", "cpu": "Xeon"}, "NVIDIA H100 80GB HBM3"),
        ({"gpu": "none", "cpu": "Xeon"}, "Xeon"),
        ({"gpu": None, "cpu": None}, None),
    ],
)
def test_the_header_names_the_machine(facts: dict[str, Any], said: str | None) -> None:
    view = views.gpt2(1)
    view["manifest"] = {"facts": facts}
    header = rendering.html(view).partition("</header>")[0]
    assert (f"<bdi>{said}</bdi>" in header) == (said is not None)
    assert said is not None or header.count("<bdi") == 1
