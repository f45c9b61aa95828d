"""TensorRT timings: --exportProfile of every age, IProfiler, --exportTimes, TREx."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.readers.base import Head
from layerline.analysis.readers.tensorrt import profile
from layerline.core.errors import InputError
from layerline.core.stats import summarise
from layerline.core.tables import SCHEMAS


def read(tmp_path, content):
    path = tmp_path / "a.json"
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    assert profile.sniff(Head(path, text.encode(), len(text)))
    return profile.read(path)


# As trtexec writes it: 4 iterations, the second layer 1.5 + 2.5 + 2.5 + 3.5 = 10 ms.
PROFILE = """[
  { "count" : 4 }
, { "name" : "a || b", "timeMs" : 135.153, "averageMs" : 33.7883, "medianMs" : 33.5, "percentage" : 93.1 }
, { "name" : "c", "timeMs" : 10, "averageMs" : 2.5, "medianMs" : 2.5, "percentage" : 6.9 }
, { "name" : "noop", "timeMs" : 0, "averageMs" : 0, "medianMs" : 0, "percentage" : 0 }
]
"""  # noqa: E501


def test_a_profile_in_whole_nanoseconds(tmp_path):
    artefact = read(tmp_path, PROFILE)
    assert artefact.main.schema == SCHEMAS["layers"]
    first, second, third = artefact.main.to_pylist()
    assert first["layer"] == "a || b"
    assert (first["calls"], first["total_ns"], first["median_ns"]) == (4, 135_153_000, 33_500_000)
    assert (second["calls"], second["total_ns"], second["median_ns"]) == (4, 10_000_000, 2_500_000)
    assert [first[c] for c in ("p90_ns", "p99_ns", "ci_low_ns", "ci_high_ns", "kernels")] == [
        None
    ] * 5
    # What the tool measured as nothing is its own zero, and said.
    assert (third["total_ns"], third["median_ns"]) == (0, 0)
    assert any(note.startswith("1 layers of 0 ms") for note in artefact.notes)
    assert artefact.facts["iterations"] == 4 and artefact.facts["total_ns"] == 145_153_000


def test_old_profiles_have_no_median(tmp_path):
    text = PROFILE.replace('"medianMs" : 33.5, ', "").replace('"medianMs" : 2.5, ', "")
    artefact = read(tmp_path, text.replace('"medianMs" : 0, ', ""))
    assert artefact.main["median_ns"].to_pylist() == [None, None, None]
    assert any("No medians" in note for note in artefact.notes)


def test_calls_are_the_layers_own_reports(tmp_path):
    """averageMs divides by the layer's own reports: 6 ms at 2 ms each are 3 calls, not 4."""
    text = '[ { "count" : 4 }, { "name" : "a", "timeMs" : 6, "averageMs" : 2, "percentage" : 1 } ]'
    artefact = read(tmp_path, text)
    assert artefact.main["calls"].to_pylist() == [3]
    assert any("not reported in each" in note for note in artefact.notes)


def test_rounding_to_six_digits_does_not_change_the_calls(tmp_path):
    text = '[ {"count": 14590}, {"name": "a", "timeMs": 135.153, "averageMs": 0.00926341} ]'
    assert read(tmp_path, text).main["calls"].to_pylist() == [14590]


def test_profiles_one_after_the_other_are_numbered(tmp_path):
    artefact = read(tmp_path, PROFILE + PROFILE.replace('"count" : 4', '"count" : 2'))
    assert artefact.main["engine"].to_pylist() == ["0"] * 3 + ["1"] * 3
    assert artefact.facts["iterations"] == [4, 2]


def test_names_that_trtexec_does_not_escape(tmp_path):
    text = PROFILE.replace("a || b", r'say "hi", \x {ForeignNode[a...b]}')
    text = text.replace('"percentage" : 0 }', '"percentage" : -nan }')
    artefact = read(tmp_path, text)
    assert artefact.main["layer"].to_pylist()[0] == r'say "hi", \x {ForeignNode[a...b]}'
    assert artefact.main["total_ns"].to_pylist() == [135_153_000, 10_000_000, 0]


def test_a_truncated_profile_is_refused(tmp_path):
    path = tmp_path / "a.json"
    for text in (PROFILE[:200], PROFILE.rstrip()[:-1], PROFILE.replace("a || b", 'a"b')[:-3]):
        path.write_text(text)
        with pytest.raises(InputError, match="not valid JSON"):
            profile.read(path)


def test_iprofiler_times_have_full_statistics(tmp_path):
    times = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    artefact = read(tmp_path, {"a": times, "b": [0.0001] * 10})
    a, b = artefact.main.to_pylist()
    # By hand: median of ten is (0.5 + 0.6) / 2 ms; the 9th and the 10th are p90 and p99.
    assert (a["calls"], a["total_ns"]) == (10, 5_500_000)
    assert (a["median_ns"], a["p90_ns"], a["p99_ns"]) == (550_000, 900_000, 1_000_000)
    # The 95 % order-statistic interval of ten samples is [x(2), x(9)].
    assert (a["ci_low_ns"], a["ci_high_ns"]) == (200_000, 900_000)
    assert (b["median_ns"], b["ci_low_ns"]) == (100, 100)
    ops = artefact.tables["ops"]
    assert ops.schema == SCHEMAS["ops"] and ops.num_rows == 20
    assert sum(ops["duration_ns"].to_pylist()) == artefact.facts["total_ns"]
    assert ops["iteration"].to_pylist() == [*range(10), *range(10)]


def test_few_samples_have_no_interval(tmp_path):
    [row] = read(tmp_path, {"a": [1.0, 2.0]}).main.to_pylist()
    assert (row["median_ns"], row["ci_low_ns"], row["ci_high_ns"]) == (1_500_000, None, None)


def test_a_missing_time_is_not_zero(tmp_path):
    artefact = read(tmp_path, '{"a": [1.0, null, 3.0], "b": [1.0]}')
    a, _ = artefact.main.to_pylist()
    assert (a["calls"], a["total_ns"], a["median_ns"]) == (3, None, 2_000_000)
    assert artefact.tables["ops"]["duration_ns"].to_pylist() == [
        1_000_000,
        None,
        3_000_000,
        1_000_000,
    ]
    assert any("between 1 and 3" in note for note in artefact.notes)


def test_a_layer_that_comes_twice_is_not_lost(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": [1.0], "a": [2.0]}')
    with pytest.raises(InputError, match="'a' comes twice"):
        profile.read(path)


TIMES = """[
  { "startEnqMs" : 0.5, "endEnqMs" : 0.75, "startH2dMs" : 0, "endH2dMs" : 0.25, "startComputeMs" : 0.25, "endComputeMs" : 1.25, "startD2hMs" : 1.25, "endD2hMs" : 1.5, "h2dMs" : 0.25, "computeMs" : 1, "d2hMs" : 0.25, "latencyMs" : 1.5 }
, { "startEnqMs" : 2, "endEnqMs" : 2.1, "startH2dMs" : 2, "endH2dMs" : 2.25, "startComputeMs" : 2.25, "endComputeMs" : 4.25, "startD2hMs" : 4.25, "endD2hMs" : 4.5, "h2dMs" : 0.25, "computeMs" : 2, "d2hMs" : 0.25, "latencyMs" : 2.5 }
]
"""  # noqa: E501


def test_export_times_is_the_latency_table(tmp_path):
    artefact = read(tmp_path, TIMES)
    assert artefact.main.schema == SCHEMAS["latency"]
    assert artefact.main["latency_ns"].to_pylist() == [1_500_000, 2_500_000]
    assert artefact.main["iteration"].to_pylist() == [0, 1]
    timings = artefact.tables["timings"].to_pylist()
    assert [t["compute_ns"] for t in timings] == [1_000_000, 2_000_000]
    for t in timings:  # latency is what the docstring says it is
        assert t["h2d_ns"] + t["compute_ns"] + t["d2h_ns"] == t["latency_ns"]
    assert artefact.facts["latency_ns"]["median"] == 2_000_000
    assert not any("warm-up" in note for note in artefact.notes)


def test_old_times_say_that_they_hold_the_warm_up(tmp_path):
    artefact = read(
        tmp_path, TIMES.replace('"latencyMs" : 1.5', '"latencyMs" : 1.5, "endToEndMs" : 3')
    )
    assert any("warm-up" in note for note in artefact.notes)


def test_trex_metadata_is_recognised(tmp_path):
    artefact = read(
        tmp_path,
        {
            "performance_summary": {"Throughput": 100.5, "Latency": [0.1, 0.2]},
            "device_information": {"Selected Device": "NVIDIA H100"},
        },
    )
    rows = {(r["section"], r["key"]): r["value"] for r in artefact.main.to_pylist()}
    assert rows["performance_summary", "Latency"] == "[0.1, 0.2]"
    assert rows["device_information", "Selected Device"] == "NVIDIA H100"


@pytest.mark.parametrize(
    "content",
    [
        '[{"count": 3}]',
        '[{"count": 3}, {"name": "a", "timeMs": "x"}]',
        '[{"count": 3}, {"name": "a", "timeMs": 1e300}]',
        '[{"count": 3}, {"name": "a", "averageMs": 1}]',
        '[{"count": 3}, {"name": 4, "timeMs": 1}]',
        '[{"count": 3}, 4]',
        '{"a": [true]}',
        '{"a": [1e999]}',
        '{"a": []}',
        '{"a": [1.0], "b": 2}',
        '[{"latencyMs": 1}, {}]',
        '[{"latencyMs": 1}] {"a": [1.0]}',
        '[{"count": 3}, {"name": "a", "timeMs": ' + "9" * 400 + "}]",
    ],
)
def test_what_is_no_timing_is_one_line(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(InputError) as e:
        profile.read(path)
    assert "\n" not in e.value.line()


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(
        st.text(max_size=8),
        st.lists(st.floats(0, 1000, allow_nan=False), min_size=1, max_size=20),
        min_size=1,
        max_size=5,
    )
)
def test_every_time_is_counted_once(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("p") / "a.json"
    path.write_text(json.dumps(found), encoding="utf-8")
    artefact = profile.read(path)
    expected = sorted(round(t * 1e6) for times in found.values() for t in times)
    assert sorted(artefact.tables["ops"]["duration_ns"].to_pylist()) == expected
    assert sum(artefact.main["total_ns"].to_pylist()) == sum(expected)
    for row, times in zip(artefact.main.to_pylist(), found.values(), strict=True):
        assert row["median_ns"] == summarise(round(t * 1e6) for t in times).median


@pytest.mark.parametrize(
    "text",
    [
        '[{"count":1}' + ',\n{"name":"a","timeMs":1,"averageMs":1}' * 9 + "]",
        '[{"count":1}' + '\n,{"name":"a"b","timeMs":1,"averageMs":1}' * 9 + "]",
        '[{"latencyMs":1}' + ',{"latencyMs":1}' * 9 + "]",
    ],
)
def test_more_records_than_any_run_has_are_refused(tmp_path, monkeypatch, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert profile.read(path).main.num_rows >= 9
    monkeypatch.setattr(profile, "MAX_ROWS", 8)
    with pytest.raises(InputError, match="more than 8"):
        profile.read(path)


def test_the_devices_that_trex_lists_are_settings(tmp_path):
    device = {"Name": "NVIDIA H100", "ComputeCapability": [9, 0], "TotalMemory": 8}
    rows = {
        (r["section"], r["key"]): r["value"]
        for r in read(tmp_path, [device, device]).main.to_pylist()
    }
    assert rows["device 1", "Name"] == "NVIDIA H100"
    assert rows["device 0", "ComputeCapability"] == "[9, 0]"


def test_a_time_below_zero_is_unknown(tmp_path):
    artefact = read(tmp_path, {"a": [0.5, -0.5], "b": [1.0, 2.0]})
    assert artefact.main["total_ns"].to_pylist() == [None, 3_000_000]
    assert artefact.facts["total_ns"] is None
    assert artefact.main["median_ns"].to_pylist()[0] == 500_000
