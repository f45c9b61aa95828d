"""The tables keep their contract: columns, nulls, versions."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerline.core import tables
from layerline.core.errors import InputError


def test_missing_columns_are_null_and_unknown_ones_an_error():
    t = tables.table("latency", [{"source": "a", "latency_ns": 5}])
    assert t.column_names == tables.SCHEMAS["latency"].names
    assert t["iteration"].to_pylist() == [None]
    with pytest.raises(ValueError, match="latencyns"):
        tables.table("latency", [{"latencyns": 5}])
    with pytest.raises(ValueError, match="latencyns"):
        tables.table("latency", {"latencyns": [5]})


def test_columns_and_rows_give_the_same_table():
    rows = [{"name": "a", "modules": ["m"], "start_ns": 1}, {"name": None, "modules": None}]
    columns = {"name": ["a", None], "modules": [["m"], None], "start_ns": [1, None]}
    assert tables.table("ops", rows).equals(tables.table("ops", columns))


def test_an_unknown_time_stays_unknown_through_parquet_pandas_and_csv(tmp_path):
    big = 2**62 + 1  # a double would lose the last digit
    t = tables.table("ops", [{"start_ns": big}, {"duration_ns": 3, "nodes": ['a"b,', "c"]}])
    tables.write_parquet(tmp_path / "t.parquet", t)
    back = tables.read_parquet(tmp_path / "t.parquet", "ops")
    assert back.column("start_ns").to_pylist() == [big, None]
    f = tables.frame(back)
    assert f["duration_ns"].isna().tolist() == [True, False]
    assert f["start_ns"].iloc[0] == big
    tables.write_csv(tmp_path / "t.csv", back)
    read = pd.read_csv(tmp_path / "t.csv", dtype=str, keep_default_na=False)
    assert read["start_ns"].tolist() == [str(big), ""]
    assert json.loads(read["nodes"].iloc[1]) == ['a"b,', "c"]


def test_an_empty_table_has_its_columns():
    assert tables.table("ops", []).schema.names == tables.SCHEMAS["ops"].names
    assert tables.table("ops", {}).num_rows == 0


def test_foreign_and_outdated_parquet_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(InputError, match="schema version none"):
        tables.read_parquet(path, "ops")
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="not a Parquet table"):
        tables.read_parquet(path, "ops")
    with pytest.raises(InputError, match="no such file"):
        tables.read_parquet(tmp_path / "none.parquet")


def test_columns_have_the_types_that_they_are_read_with(tmp_path):
    path = tmp_path / "t.parquet"
    t = tables.table("latency", [{"source": "a", "latency_ns": 2**60}, {"source": "b"}])
    for column, values in {
        "latency_ns": pa.array([5.0, None]),  # pandas' nullable integers
        "source": pa.array(["a", "b"]).dictionary_encode(),
        "precision": pa.nulls(2),
    }.items():
        at = t.schema.get_field_index(column)
        tables.write_parquet(path, t.set_column(at, column, values))
        assert tables.read_parquet(path, "latency").schema.types == t.schema.types
    for values, told in [
        (["5", "6"], "column latency_ns holds string, not int64; make it again"),
        ([5.5, None], "column latency_ns holds double, not int64"),
        ([[5], None], "column latency_ns holds list<"),
        ([True, None], "column latency_ns holds bool"),
    ]:
        at = t.schema.get_field_index("latency_ns")
        tables.write_parquet(path, t.set_column(at, "latency_ns", pa.array(values)))
        with pytest.raises(InputError, match=told):
            tables.read_parquet(path, "latency")


@pytest.mark.parametrize("name", sorted(tables.NEEDED))
def test_rows_without_a_name_are_refused(tmp_path, name):
    row = {c: 1 if pa.types.is_integer(tables.SCHEMAS[name].field(c).type) else "x"
           for c in tables.NEEDED[name]}  # fmt: skip
    path = tmp_path / "t.parquet"
    for column in row:
        tables.write_parquet(path, tables.table(name, [row, row, {**row, column: None}]))
        with pytest.raises(InputError, match=f"1 of 3 rows have no {column}; make it again"):
            tables.read_parquet(path, name)
    tables.write_parquet(path, tables.table(name, [row]))
    assert len(tables.read_parquet(path, name)) == 1


def test_a_list_has_a_code_and_one_empty_text_is_not_none():
    column = pa.chunked_array([[["a", "b"], [], [""]], [None, ["a", "b"]]])
    code, lists = tables.codes(column)
    assert [None if c < 0 else lists[c] for c in code.tolist()] == [
        ("a", "b"), (), ("",), None, ("a", "b"),
    ]  # fmt: skip
    assert len(lists) == 3
