"""Eighteen sides are read a precision at a time, in Markdown and on the page."""

from __future__ import annotations

import re

import precision_views as views
import rendering
import report_views

from layerline.analysis.formatting import percent
from layerline.analysis.report import (
    ledger,
    manifest,
    panels,
    payload,
    sentences,
)

KINDS = list(views.UNIT)


def _sections(text: str) -> dict[str, str]:
    """Heading to the text below it, of Markdown."""
    parts = re.split(r"^#{2,3} (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _cells(table: str, first: str) -> list[str]:
    line = next(x for x in table.split("\n") if x.startswith("|") and first in x.split("|")[1])
    return [c.strip() for c in line.strip("|").split("|")][1:]


def test_each_precision_has_its_engines_then_eager_then_training() -> None:
    found = panels.panels(rendering.comparison(views.three_precisions()))
    assert [p["title"] for p in found] == ["fp32", "tf32", "fp16"]
    for p in found:
        assert [s.key for s in p["sides"]] == [views.key(p["title"], k) for k in KINDS]
        assert p["note"] == ""


def test_six_sides_stand_beside_each_other_whatever_their_precision() -> None:
    (only,) = panels.panels(rendering.comparison(report_views.gpt2(1)))
    assert len(only["sides"]) == 6 and only["title"] == ""
    text = rendering.markdown(report_views.gpt2(1))
    assert "### Ledger" not in text and 'id="precision"' not in rendering.html(report_views.gpt2(1))


def test_an_engine_without_eager_of_its_precision_stands_beside_fp32_and_it_is_said() -> None:
    view = views.three_precisions()
    gone = {views.key("fp16", k) for k in ("inference", "forward", "backward", "step")}
    view["sides"] = [s for s in view["sides"] if s["key"] not in gone]
    half = panels.panels(rendering.comparison(view))[2]
    assert [s.label for s in half["sides"]] == [
        "ONNX Runtime CUDA fp16",
        "TensorRT fp16",
        "eager fp32",
    ]
    assert half["note"] == "eager fp32 stands for eager fp16, which was not measured here."
    assert half["note"] in rendering.markdown(view) and half["note"] in rendering.html(view)


def test_odd_precisions_have_distinct_keys_that_an_id_can_hold() -> None:
    view = views.three_precisions()
    for s in view["sides"]:
        if s["precision"] == "tf32":
            s["precision"] = "<b> x"
        elif s["precision"] == "fp16":
            s["precision"] = "b x"
    assert [p["key"] for p in panels.panels(rendering.comparison(view))] == ["fp32", "b-x", "b-x-2"]
    assert "<b> x" not in rendering.html(view)


def test_markdown_has_a_ledger_modules_and_kinds_per_precision() -> None:
    found = _sections(rendering.markdown(views.three_precisions()))
    for section in ("Ledger", "Modules", "Kinds"):
        assert [h for h in found if h.startswith(f"{section},")] == [
            f"{section}, {p}" for p in ("fp32", "tf32", "fp16")
        ]
    # Latency is 4 units: 8, 4, 16, 20, 400 and 420 µs a unit in fp32, half of it in tf32.
    fp32, tf32 = (
        [c.split(" (")[0] for c in _cells(found[f"Ledger, {p}"], "Unprofiled")]
        for p in ("fp32", "tf32")
    )
    assert fp32 == ["32.0 µs", "16.0 µs", "64.0 µs", "80.0 µs", "1.60 ms", "1.68 ms"]
    assert tf32 == ["16.0 µs", "8.00 µs", "32.0 µs", "40.0 µs", "800 µs", "840 µs"]
    # Module b in fp16: one unit, 3 µs shared.
    assert _cells(found["Modules, fp16"], "`b`")[1:3] == [
        "2.00 – 5.00 µs (83.3 %)",
        "1.00 – 4.00 µs (133 %)",
    ]
    assert _cells(found["Kinds, fp16"], "`a`")[2:4] == ["4.00 µs (66.7 %)", "2.00 µs (66.7 %)"]


def test_markdown_has_no_row_of_five_hundred_characters() -> None:
    assert max(map(len, rendering.markdown(views.three_precisions()).split("\n"))) < 330


def test_every_side_of_the_view_is_in_some_panel_of_the_page() -> None:
    view = views.three_precisions()
    shown = payload.build(rendering.comparison(view))["panels"]
    assert sorted(i for p in shown for i in p["sides"]) == list(range(18))
    text = rendering.html(view)
    for section in ("modules", "kinds"):
        for p in views.PRECISIONS:
            assert text.count(f'id="{section}-{p}"') == 1
    ledgers = text.partition('id="ledger"')[2].partition('id="unresolved"')[0]
    for check in ledgers.split('<details class="check"')[1:]:
        assert [check.count(f'data-panel="{p}"') for p in views.PRECISIONS] == [1, 1, 1]


def test_what_is_wrong_comes_first_and_what_adds_up_is_counted() -> None:
    view = views.three_precisions()
    broken = view["sides"][4]["checks"][1]  # TensorRT tf32
    broken |= {"ok": False, "text": "These numbers do not add up: 1 µs is missing."}
    lead = _sections(rendering.markdown(view))["Can it be believed"]
    lines = [x for x in lead.split("\n") if x.startswith("- ")]
    assert lines[0] == (
        "- ✗ TensorRT tf32, check ii: These numbers do not add up: 1 µs is missing."
    )
    # 18 sides pass check i, all but one check ii, the 6 engines check iii.
    assert "- ✓ 41 checks add up: their rows are below." in lines
    assert "counted once." not in lead
    said = sentences.of(rendering.comparison(view))
    assert [s.tone for s in said][:2] == ["bad", "none"] and said[-1].tone == "good"


def test_what_every_side_lacks_is_said_once() -> None:
    view = views.three_precisions()
    text = rendering.markdown(view)
    assert text.count("nsys could not trace it") == 1
    assert "- every side under nsys, host side: cuDNN is unknown: nsys could not" in text
    page = rendering.html(view)
    assert page.count("cuBLAS is unknown: asked for; nsys recorded no call into cuBLAS.") == 1
    view["sides"][0]["host"]["missing"] = {"cuBLAS": "not traced (--trace=cuda)"}
    once = [
        s
        for s in sentences.of(rendering.comparison(view))
        if "cuBLAS is unknown: not traced" in s.text
    ]
    assert [s.sides for s in once] == ["ONNX Runtime CUDA fp32"]


def test_sentences_that_differ_in_one_number_are_one_with_its_range() -> None:
    view = views.three_precisions()
    for s, share in zip(
        [s for s in view["sides"] if s["task"] == "eager"], range(90, 210, 10), strict=True
    ):
        s["checks"][2] |= {
            "text": f"The profiled run took {percent(share / 100)} longer.",
            "wording": {"form": "The profiled run took {} longer.", "figures": [share / 100]},
        }
    (found,) = [
        s
        for s in sentences.of(rendering.comparison(view))
        if s.check == "check iii" and s.tone == "none"
    ]
    assert found.text == "The profiled run took 90.0 to 200 % longer."
    assert found.sides == "every eager inference, every phase of training"


def test_sides_are_named_by_what_they_have_in_common() -> None:
    view = views.three_precisions()
    keys = [s["key"] for s in view["sides"]]
    engines = [k for k in keys if k.startswith("engine")]
    assert panels.names(rendering.comparison(view), keys) == "every side"
    assert panels.names(rendering.comparison(view), engines) == "every engine"
    assert panels.names(rendering.comparison(view), [*engines[1:], "nowhere"]) == (
        "the tf32 engines, the fp16 engines, TensorRT fp32, nowhere"
    )
    assert panels.names(
        rendering.comparison(view), [views.key("fp16", k) for k in ("forward", "backward", "step")]
    ) == ("fp16 training")
    assert panels.names(rendering.comparison(view), None) == ""


def test_the_ledger_says_that_columns_of_check_ii_are_iterations_of_their_own() -> None:
    view = views.three_precisions()
    note = next(
        g.note
        for g in ledger.groups(rendering.comparison(view).sides)
        if g.title.startswith("Check ii:")
    )
    assert "each column is one iteration" in note and "different iterations" in note
    assert note in rendering.markdown(view) and note in rendering.html(view)


def test_medians_that_do_not_add_up_are_said_at_the_tables() -> None:
    view = views.three_precisions()
    sentence = "rows need not add up exactly to the row above"
    text = rendering.markdown(view)
    assert text[text.index("## Modules") : text.index("## Kinds")].count(sentence) == 1
    assert rendering.html(view).count(sentence) == 1


def test_the_manifest_is_short_and_names_the_long_one() -> None:
    view = views.three_precisions()
    text = _sections(rendering.markdown(view))["Manifest"]
    assert "| `export/fp32.onnx` | `0123456789ab` |" in text and "0123456789abc" not in text
    assert "`run.json`" in text and "`2.13.0`" in text and "`Example CPU`" in text
    assert text.count("`layerline profile`") == 1 and "options" not in text.split("\n| ")[1]
    # One model, two facts of the machine and one null, a version, 50 steps of 3 facts, a file.
    assert manifest.short(view["manifest"])["total"] == 156
    assert "156 facts" in text


def test_a_manifest_of_another_shape_is_written_as_far_as_it_goes() -> None:
    assert manifest.short({"steps": "none", "files": [1], "machine": 5})["files"] == []
    assert manifest.short({"files": {"a": None}})["files"] == [("a", "unknown")]
    left = manifest.short({"x": {str(i): i for i in range(100)}})["left"]
    assert left == 100 - manifest.FACTS_SHOWN


def test_the_page_opens_with_the_precision_that_the_first_sentence_tells() -> None:
    view = views.three_precisions()
    view["ratios"] = [
        {"over": views.key("fp16", "inference"), "under": views.key("fp16", "tensorrt"),
         "ratio": 7.05, "low": 4.8, "high": 8.5, "lead": True}
    ]  # fmt: skip
    radios = re.findall(r'value="(\w+)"( checked)?', rendering.html(view))
    assert [r for r in radios if r[0] in ("fp32", "tf32", "fp16")] == [
        ("fp32", ""),
        ("tf32", ""),
        ("fp16", " checked"),
    ]
    assert payload.build(rendering.comparison(view))["first"] == 2
    del view["ratios"][0]["lead"]
    assert payload.build(rendering.comparison(view))["first"] == 0
