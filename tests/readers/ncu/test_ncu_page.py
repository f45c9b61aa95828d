"""Nsight Compute CSV: pages, columns, noise, broken quotes, locales, encodings."""

from __future__ import annotations

import csv
import gzip
import io

import paths
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.readers.base import Head
from layerline.analysis.readers.ncu import page
from layerline.analysis.readers.ncu.numbers import style_of
from layerline.analysis.readers.ncu.rows import Layout, parse_header, ranges
from layerline.core.errors import InputError
from layerline.core.tables import SCHEMAS

DATA = paths.DATA / "ncu"

NVTX = (
    "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
    "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
)
WHO = ("ID", "Process ID", "Process Name", "Host Name")
WHERE = ("Context", "Stream", "Block Size", "Grid Size", "Device", "CC")
METRIC = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
RULE = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")

PLACE = ("1", "7", "(128, 1, 1)", "(4, 24, 1)", "0", "9.0")


def line(*fields):
    """A row as ncu prints it: every field quoted, nothing escaped."""
    return ",".join(f'"{f}"' for f in fields)


def details(values, *, launch="0", kernel="gemm"):
    rows = [line(*WHO, "Kernel Name", *WHERE, *METRIC)]
    for metric, unit, value in values:
        who = (launch, "42", "python3", "127.0.0.1")
        rows.append(line(*who, kernel, *PLACE, "Section", metric, unit, value))
    return "\n".join(rows) + "\n"


def read(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "ncu.csv"
    data = text.encode(encoding)
    path.write_bytes(data)
    assert page.sniff(Head(path, data[:65536], len(data)))
    artefact = page.read(path)
    assert artefact.main.schema == SCHEMAS["counters"]
    return artefact


def values(artefact):
    return artefact.main["value"].to_pylist()


def test_a_details_page(tmp_path):
    artefact = read(tmp_path, details([("Duration", "us", "1,234.50"), ("Waves", "", "2")]))
    first, second = artefact.main.to_pylist()
    assert (first["metric"], first["unit"], first["value"]) == ("Duration", "us", 1234.5)
    assert (first["kernel"], first["launch"], first["section"]) == ("gemm", 0, "Section")
    assert first["text"] is None and first["layer"] is None
    assert (second["unit"], second["value"]) == (None, 2.0)
    [launch] = artefact.tables["launches"].to_pylist()
    assert (launch["process"], launch["context"], launch["stream"]) == (42, 1, 7)
    assert (launch["block"], launch["grid"], launch["device"]) == (PLACE[2], PLACE[3], 0)
    assert artefact.facts["page"] == "details"


def test_a_raw_page_has_a_row_of_units(tmp_path):
    text = "\n".join(
        [
            line(*WHO, "Kernel Name", "Context", "Stream", "gpu__time.sum", "launch__name", "x"),
            line("", "", "", "", "", "", "", "ns", "", "byte"),
            line("0", "42", "p", "h", "a", "1", "7", "1,024", "Spread", "n/a"),
            line("1", "42", "p", "h", "b", "1", "7", "8", "", "nan"),
        ]
    )
    artefact = read(tmp_path, text)
    rows = artefact.main.to_pylist()
    assert len(rows) == 6
    assert (rows[0]["metric"], rows[0]["unit"], rows[0]["value"]) == ("gpu__time.sum", "ns", 1024.0)
    assert [r["value"] for r in rows[1:3]] == [None, None]
    assert [r["text"] for r in rows[1:3]] == ["Spread", "n/a"]
    # An empty field is unknown, neither 0 nor text; NaN is no number.
    assert (rows[4]["value"], rows[4]["text"]) == (None, None)
    assert (rows[5]["value"], rows[5]["text"]) == (None, "nan")


RAW = (
    line(*WHO, "Kernel Name", "gpu__time_duration.sum") + "\n",
    line("", "", "", "", "", "us") + "\n",
    line("3", "42", "p", "h", "k", "409.02") + "\n",
)


@pytest.mark.parametrize("before", [(), RAW])
def test_a_raw_page_without_its_row_of_units_is_refused(tmp_path, before):
    """409.02 would be nanoseconds. Also where only a later table of the file lacks them."""
    header, _, row = RAW
    with pytest.raises(InputError, match="without its row of units") as e:
        read(tmp_path, "".join([*before, header, row]))
    assert f"in line {len(before) + 1})" in e.value.line() and "--page raw" in e.value.line()


def test_a_row_of_units_behind_other_output_is_one(tmp_path):
    header, units, row = RAW
    [found] = read(tmp_path, header + "step 3 done" + units + row).main.to_pylist()
    assert (found["unit"], found["value"]) == ("us", 409.02)


def test_a_time_without_a_unit_is_unknown(tmp_path):
    """Its cell is empty; 409.02 of what?"""
    header, units, row = RAW
    artefact = read(tmp_path, header + units.replace("us", "") + row)
    [found] = artefact.main.to_pylist()
    assert (found["unit"], found["value"], found["text"]) == (None, None, "409.02")
    assert any("without the unit" in note and "gpu__time" in note for note in artefact.notes)
    duration = "gpu__time_duration.sum"
    artefact = read(tmp_path, details([(duration, "", "409.02"), ("sm__warps.sum", "", "2")]))
    assert values(artefact) == [None, 2.0]


@pytest.mark.parametrize("kept", [1, 1.5, 2])
def test_a_later_table_that_is_cut_before_its_first_row_is_told(tmp_path, kept):
    text = "".join(RAW)
    lines = [*RAW[: int(kept)], RAW[1][:9] if kept == 1.5 else ""]
    artefact = read(tmp_path, text + "".join(lines))
    assert values(artefact) == [409.02]
    assert artefact.facts["cut_short"] and artefact.facts["rows_left_out"] == 1
    assert any(note.startswith("The last row is cut short") for note in artefact.notes)


def test_a_file_that_is_cut_before_its_first_row_is_whole_says_so(tmp_path):
    with pytest.raises(InputError, match=r"is cut short \(line 3\).*copy it again"):
        read(tmp_path, "".join(RAW)[:-3])


def test_noise_before_between_and_in_front(tmp_path):
    header, first, second = details([("a", "", "1"), ("b", "", "2")]).splitlines()
    text = "\n".join(
        [
            "loss, 0.5",
            '==PROF== Connected to process 42 (/bin/x)',
            "==WARNING== Note: Running with unmodified GPU clocks. ...",
            "progress 10%" + header,
            first,
            '==PROF== Profiling "gemm": 0%....50%....100% - 1 pass',
            "step 3 done" + second,
            "bye",
            "",
        ]
    )  # fmt: skip
    artefact = read(tmp_path, text)
    assert values(artefact) == [1.0, 2.0]
    assert artefact.facts["lines_of_other_output"] == 5
    assert artefact.main["clock_control"].to_pylist() == ["none", "none"]
    assert any(note.startswith("Note: Running with unmodified") for note in artefact.notes)


def test_rows_are_shorter_where_rules_are_printed(tmp_path):
    who = ("0", "42", "p", "h", "k")
    text = "\n".join(
        [
            line(*WHO, "Kernel Name", *WHERE, *METRIC, *RULE),
            line(*who, *PLACE, "Launch", "Threads", "thread", "128") + ",",
            line(*who, *PLACE, "Occ", *[""] * 3, "Rule", "OPT", 'Too "few"', "local", "9.5"),
        ]
    )  # fmt: skip
    artefact = read(tmp_path, text)
    assert values(artefact) == [128.0]
    [rule] = artefact.tables["rules"].to_pylist()
    assert (rule["rule"], rule["type"], rule["text"]) == ("Rule", "OPT", 'Too "few"')
    assert (rule["speedup_type"], rule["speedup"], rule["section"]) == ("local", 9.5, "Occ")


def test_a_file_with_rules_only(tmp_path):
    text = "\n".join(
        [
            line(*WHO, "Kernel Name", "Context", "Stream", *METRIC, *RULE[:3]),
            line("0", "1", "p", "h", "k", "1", "1", "Roofline", "", "", "", "R", "INF", "text"),
        ]
    )
    artefact = read(tmp_path, text)
    assert artefact.main.num_rows == 0 and artefact.tables["rules"].num_rows == 1
    assert artefact.notes[0].startswith("No metric")


def test_body_item_labels_are_part_of_the_section(tmp_path):
    text = "\n".join(
        [
            line(*WHO, "Kernel Name", "Section Name", "Body Item Label", *METRIC[1:]),
            line("0", "1", "p", "h", "k", "SOL", "", "DRAM", "%", "1"),
            line("0", "1", "p", "h", "k", "SOL", "Breakdown", "DRAM", "%", "2"),
        ]
    )
    assert read(tmp_path, text).main["section"].to_pylist() == ["SOL", "SOL / Breakdown"]


def test_2019_and_2020_columns(tmp_path):
    text = "\n".join(
        [
            line(*WHO, "Kernel Name", "Kernel Time", "Context", "Stream", *METRIC),
            line(*"01ph", "k", "2020-Apr-20 14:58:54", "1", "7", "SOL", "Duration", "ns", "51360"),
        ]
    )  # fmt: skip
    artefact = read(tmp_path, text)
    assert values(artefact) == [51360.0]
    assert artefact.tables["launches"]["time"].to_pylist() == ["2020-Apr-20 14:58:54"]


# As ncu prints TensorRT's ranges: the JSON's quotes, commas and all, are not escaped.
PAYLOAD = r'{\n  "Name": "a, b",\n  "Inputs": ["x","y"],\n  "Metadata": ""\n}'
PUSH_POP = (
    '42  ""TensorRT:Context::enqueue:none:none:RGB:0xff:REGISTERED:Context::enqueue""'
    f'  ""TensorRT:a, b:JsonRegistered:{PAYLOAD}:RGB:0xff:REGISTERED:a, b""'
    '  ""myelin-exec:m/Gemm+r:JsonRegistered:m/Gemm+r:RGB:0xff:REGISTERED:m/Gemm+r"" '
)
START_END = ' ""9:myelin-exec:graph :none:none:none:none:ASCII:graph "" '


def broken(push_pop=PUSH_POP, start_end=START_END, kernel="k"):
    who = ("0", "42", "p", "127.0.0.1")
    return "\n".join(
        [
            line(*WHO, *NVTX, "Kernel Name", *WHERE, *METRIC),
            line(*who, push_pop, start_end, kernel, *PLACE, "S", "Ipc", "inst/cycle", "0.20"),
            line(*who, push_pop, start_end, kernel, *PLACE, "S", "Busy", "%", "3.72") + ",",
        ]
    )


def test_unescaped_quotes_in_nvtx_fields(tmp_path):
    text = broken()
    # The reason for all this: an ordinary reader gives another number of fields, without an error.
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows[1]) != len(rows[0])
    artefact = read(tmp_path, text)
    assert values(artefact) == [0.2, 3.72]
    assert artefact.main["unit"].to_pylist() == ["inst/cycle", "%"]
    assert artefact.main["layer"].to_pylist() == ["m/Gemm+r"] * 2
    [launch] = artefact.tables["launches"].to_pylist()
    assert launch["ranges"] == ["Context::enqueue", "a, b", "m/Gemm+r"]
    assert launch["range_domains"] == ["TensorRT", "TensorRT", "myelin-exec"]
    assert launch["start_end_ranges"] == ["graph"]
    assert (launch["kernel"], launch["stream"]) == ("k", 7)


@pytest.mark.parametrize("kernel", ["k", "void f<a, b>(int)", 'odd","name', "1"])
@pytest.mark.parametrize("start_end", [START_END, ""])
def test_commas_and_quotes_in_names_do_not_move_columns(tmp_path, kernel, start_end):
    push_pop = '42  ""<default domain>:x","y:none:none:none:none:none:none"" '
    if '","' in kernel:
        push_pop = ""  # one column swallows the quotes, not two
    artefact = read(tmp_path, broken(push_pop, start_end, kernel))
    assert values(artefact) == [0.2, 3.72]
    assert artefact.main["kernel"].to_pylist() == [kernel] * 2
    [launch] = artefact.tables["launches"].to_pylist()
    assert launch["ranges"] == (['x","y'] if push_pop else [])


def test_properly_escaped_rows_give_the_same(tmp_path):
    fields = ["0", "42", "p", "h", '42  "d:a "b":none:none" ', "", "k", *PLACE, "S", "m", "%", "1"]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerow(fields)
    text = line(*WHO, *NVTX, "Kernel Name", *WHERE, *METRIC) + "\n" + out.getvalue()
    artefact = read(tmp_path, text)
    assert values(artefact) == [1.0]
    assert artefact.tables["launches"]["ranges"].to_pylist() == [['a "b"']]


def test_start_end_ranges_name_the_layer_where_nothing_else_does(tmp_path):
    artefact = read(tmp_path, broken("", ' ""0:<default domain>:linear:none:none"" '))
    assert artefact.main["layer"].to_pylist() == ["linear", "linear"]


def test_ranges_by_hand():
    assert [r.name for r in ranges("")] == []
    old = ranges('7  "<default domain>:my range:none:none" ')
    assert [(r.domain, r.name) for r in old] == [("<default domain>", "my range")]
    colons = ranges('7  "D:a::b:c:none:none:RGB:0xff:ASCII:a::b:c" ')
    assert [r.name for r in colons] == ["a::b:c"]


def test_a_name_with_a_line_break_is_one_row(tmp_path):
    artefact = read(tmp_path, details([("a", "", "1"), ("b", "", "2")], kernel="two\nlines"))
    assert values(artefact) == [1.0, 2.0]
    assert artefact.main["kernel"].to_pylist() == ["two\nlines"] * 2


def test_the_last_row_cut_short_is_said(tmp_path):
    artefact = read(tmp_path, details([("a", "", "1"), ("b", "", "2")])[:-9])
    assert values(artefact) == [1.0]
    assert any(note.startswith("The last row is cut short") for note in artefact.notes)


def test_several_runs_in_one_file_are_numbered_on(tmp_path):
    one = details([("a", "", "1")], launch="4")
    artefact = read(tmp_path, one + one)
    assert artefact.main["launch"].to_pylist() == [4, 9]
    assert artefact.facts["launches"] == 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_encodings(tmp_path, encoding):
    artefact = read(tmp_path, details([("Duration", "µs", "1.50")]), encoding)
    assert artefact.main["unit"].to_pylist() == ["µs"]
    assert values(artefact) == [1.5]


def test_windows_line_ends_and_gzip(tmp_path):
    path = tmp_path / "ncu.csv.gz"
    text = details([("a", "", "1.50")]).replace("\n", "\r\n")
    path.write_bytes(gzip.compress(text.encode()))
    assert values(page.read(path)) == [1.5]


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "numbers"),
    [
        (["1,234.5", "1,234", "0.20", "1e+06", "-3.5"], [1234.5, 1234, 0.2, 1e6, -3.5]),
        (["1.234,5", "1.234", "0,20", "12"], [1234.5, 1234, 0.2, 12]),
        (["1 234,5", "1 234", "0,20"], [1234.5, 1234, 0.2]),
        (["1\u202f234,5", "1\u00a0234"], [1234.5, 1234]),
        (["1'234.5", "1'234"], [1234.5, 1234]),
        (["12,34,567", "0.5"], [1234567, 0.5]),
        (["51360", "857554517.13"], [51360, 857554517.13]),
        (["n/a", "N/A", "", "nan", "inf", "-inf", "(128, 1, 1)", "0x10", "1.2.3"], [None] * 9),
        (["11,619,000 (4,000; 5.0)", "2.50"], [11619000, 2.5]),
        # Both signs in one table: what could be either is null, not a guess.
        (["1,234.5", "1.234,5", "1.234"], [1234.5, 1234.5, None]),
        # No evidence at all: as English prints it.
        (["1,234", "1.234"], [1234, 1.234]),
    ],
)
def test_numbers_of_every_locale(printed, numbers):
    style = style_of(printed)
    assert [style.parse(text) for text in printed] == numbers


def test_a_german_machine(tmp_path):
    artefact = read(
        tmp_path, details([("a", "", "1.234,50"), ("b", "", "1.234"), ("c", "", "0,20")])
    )
    assert values(artefact) == [1234.5, 1234.0, 0.2]


def test_numbers_in_doubt_are_said(tmp_path):
    artefact = read(tmp_path, details([("a", "", "1.234")]))
    assert values(artefact) == [1.234]
    assert any("no other number tells" in note for note in artefact.notes)


@settings(deadline=None)
@given(st.floats(-1e12, 1e12).map(lambda x: round(x, 2)))
def test_grouped_numbers_read_as_they_were_printed(number):
    english = f"{number:,.2f}"
    german = english.translate(str.maketrans(",.", ".,"))
    assert style_of([english]).parse(english) == number
    assert style_of([german]).parse(german) == number


# --- properties ---------------------------------------------------------------------------------

LAYOUT = Layout(tuple(parse_header(line(*WHO, *NVTX, "Kernel Name", *WHERE, *METRIC))))
free = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30)
# Myelin's and TensorRT's names: anything but the two characters that end a field.
inner = free.filter(lambda text: '""' not in text and not text.endswith('"') and text.strip())


@settings(deadline=None)
@given(inner, st.sampled_from(["0.20", "1,234", "n/a"]))
def test_whatever_a_range_is_called_the_value_stays_in_its_column(name, value):
    push_pop = f'42  ""D:{name}:none:none:none:none:none:none"" '
    text = line("0", "42", "p", "h", push_pop, "", "k", *PLACE, "S", "m", "%", value)
    fields = LAYOUT.split(text)
    assert fields is not None
    assert fields[6] == "k" and fields[-4:] == ["S", "m", "%", value]


@settings(deadline=None)
@given(free)
def test_no_text_is_taken_for_a_row_with_wrong_types(text):
    fields = LAYOUT.split(text)
    if fields is not None:
        assert len(fields) == len(LAYOUT.columns)
        assert fields[7].isdigit() or not fields[7]


# --- refusals and a real file -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('==PROF== Profiling "a" - 0: 100%\n==PROF== Report: a.ncu-rep\n', "without a table"),
        ("==ERROR== ERR_NVGPUCTRPERM - no permission\n", "ERR_NVGPUCTRPERM"),
        (line(*WHO, "Kernel Name", *METRIC) + "\n", "without rows"),
        (line(*WHO, "Kernel Name", *WHERE, *METRIC) + '\n"0","1","x"\n', "cannot be read"),
        (line(*WHO[1:], "Kernel Name", "Invocations", *METRIC) + "\n", "summary over kernels"),
    ],
)
def test_refusals_are_one_line(tmp_path, text, says):
    path = tmp_path / "a.log"
    path.write_text(text)
    with pytest.raises(InputError, match=says) as e:
        page.read(path)
    assert "\n" not in e.value.line()


def test_a_real_raw_page_with_evil_range_names():
    artefact = page.read(DATA / "two_kernels.raw.csv")
    launches = artefact.tables["launches"].to_pylist()
    assert [(launch["ranges"] or [None])[-1] for launch in launches] == [
        'in"ner, "quoted","x"',
        "layerline/module/outer",
        None,
    ]
    # A range that is opened inside a module's is no layer of its own.
    outer = "layerline/module/outer"
    assert [launch["layer"] for launch in launches] == [outer, outer, None]
    assert [launch["grid"] for launch in launches] == ["(4096, 1, 1)", "(8192, 1, 1)", "(64, 1, 1)"]
    rows = {(r["launch"], r["metric"]): r["value"] for r in artefact.main.to_pylist()}
    # The launches of the program that was profiled: 256, 128 and 16 * 8 * 2 threads per block.
    assert [rows[i, "launch__block_size"] for i in range(3)] == [256, 128, 256]
    assert [rows[i, "launch__thread_count"] for i in range(3)] == [4096 * 256, 8192 * 128, 64 * 256]
    assert artefact.main.num_rows == 3 * 519


def test_a_range_that_was_replayed_as_one_has_no_stream():
    """From an H100 with `--replay-mode range`; its .ncu-rep says 603,488 too."""
    artefact = page.read(DATA / "h100_range.raw.csv")
    (one,) = artefact.tables["launches"].to_pylist()
    assert (one["kernel"], one["context"], one["stream"], one["device"]) == ("range", 1, None, 0)
    assert (one["layer"], one["grid"], one["block"]) == (None, None, None)
    rows = {r["metric"]: (r["value"], r["unit"]) for r in artefact.main.to_pylist()}
    assert rows["smsp__inst_executed.sum"] == (603488, "inst")
    assert len(rows) == 250


def test_launches_of_two_processes_are_never_one(tmp_path):
    rows = details([("a", "", "1"), ("b", "", "2")]).splitlines()
    rows[2] = rows[2].replace('"42"', '"43"')
    artefact = read(tmp_path, "\n".join(rows))
    assert artefact.main["launch"].to_pylist() == [0, 1]
    assert artefact.tables["launches"]["process"].to_pylist() == [42, 43]


def test_a_table_whose_rows_do_not_fit_its_header_is_given_up(tmp_path):
    header, row = details([("a", "", "1")]).splitlines()
    wrong = row.replace('"7"', '"seven"')
    with pytest.raises(InputError, match="rows cannot be read"):
        read(tmp_path, "\n".join([header, row, *[wrong] * 300]))
    artefact = read(tmp_path, "\n".join([header, *[row] * 300, wrong, row]))
    assert artefact.main.num_rows == 301
    assert any("Some rows cannot be read: 1 left out" in note for note in artefact.notes)


def test_two_kernels_of_a_real_tensorrt_engine():
    """An excerpt of a capture on an H100; the values are those at the ends of its lines."""
    artefact = page.read(DATA / "tensorrt.details.csv")
    assert values(artefact) == [0.20, 0.15, 3.72, 0.20, 3.72, 0.79, 0.11, 2.74, 0.79, 2.74]
    assert artefact.main["launch"].to_pylist() == [0] * 5 + [3] * 5
    first, second = artefact.tables["launches"].to_pylist()
    assert first["kernel"] == "__myl_bb0_8_GatGatAddCasMeaSubMulMeaAddSqrDivMulCasMulAdd"
    assert first["ranges"][:2] == ["ExecutionContext::enqueue", "{ForeignNode[eq...node_linear]}"]
    assert first["layer"].startswith(
        "node_embedding_1+node_embedding+node_add_1+(Unnamed Layer_ 22)"
    )
    assert (second["kernel"], second["grid"], second["stream"]) == ("mha1", "(12, 1, 2)", 21)
    assert artefact.tables["rules"]["speedup"].to_pylist() == [97.93, 98.01]
    assert set(artefact.main["clock_control"].to_pylist()) == {"none"}


def test_a_short_row_lacks_columns_that_are_checked_where_they_are_there():
    """Found by fuzzing: a column of a checked type behind the value, where short rows end."""
    header = (*WHO, "Kernel Name", "Metric Name", "Metric Unit", "Metric Value", "Stream")
    short = line("0", "1", "p", "h", "gemm", "m", "ns", "5")
    assert Layout(header).split(short) == ["0", "1", "p", "h", "gemm", "m", "ns", "5", ""]
    assert Layout(header).split(short + ',"7"')[-1] == "7"


# --- holes ---------------------------------------------------------------------------------------

METRICS = [("Duration", "us"), ("Elapsed Cycles", "cycle"), ("Registers", "register/thread")]
WHOLE = "".join(
    details(
        [(name, unit, f"{100 * launch + i}.5") for i, (name, unit) in enumerate(METRICS)],
        launch=str(launch),
    ).split("\n", 0 if launch == 0 else 1)[-1]
    for launch in range(4)
)


def of_launches(artefact):
    rows = artefact.main.to_pylist()
    return {(r["launch"], r["metric"]): r["value"] for r in rows if r["value"] is not None}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 400))
def test_a_hole_gives_no_value_to_another_launch(tmp_path_factory, at, length):
    """Blocks that were never written are NUL bytes."""
    path = tmp_path_factory.mktemp("hole") / "ncu.csv"
    header = WHOLE.index("\n") + 1
    at = max(at, header)
    holed = WHOLE[:at] + "\0" * len(WHOLE[at : at + length]) + WHOLE[at + length :]
    path.write_text(WHOLE)
    whole = of_launches(page.read(path))
    assert len(whole) == 12
    path.write_text(holed)
    try:
        artefact = page.read(path)
    except InputError:
        return
    found = of_launches(artefact)
    assert found.items() <= whole.items()
    if found != whole:
        assert artefact.facts["rows_left_out"]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 11), st.integers(1, 60))
def test_a_row_that_lost_its_end_takes_none_of_the_next(tmp_path_factory, number, lost):
    path = tmp_path_factory.mktemp("end") / "ncu.csv"
    lines = WHOLE.splitlines(keepends=True)
    path.write_text(WHOLE)
    whole = of_launches(page.read(path))
    lines[number] = lines[number][: -min(lost, len(lines[number]) - 30)]
    path.write_text("".join(lines))
    artefact = page.read(path)
    assert of_launches(artefact).items() <= whole.items()
    assert len(artefact.main) >= 11
    if lost > 2:
        assert artefact.facts["rows_left_out"] == 1


def test_a_line_break_in_a_number_is_two_rows(tmp_path):
    lines = WHOLE.splitlines()
    lines[1], lines[2] = lines[1][:-3], lines[2][-9:]  # …"us","0 and ","101.5"
    artefact = read(tmp_path, "\n".join(lines) + "\n")
    assert (0, "Duration") not in of_launches(artefact)
