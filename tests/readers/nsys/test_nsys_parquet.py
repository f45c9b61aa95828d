"""nsys exports to a directory of Parquet or Arrow files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nsys_build import Export, convert

from layerline.analysis.readers import registry
from layerline.analysis.readers.nsys import sqlite
from layerline.core.errors import InputError


@pytest.fixture
def export() -> Export:
    export = Export()
    export.domain(1, "TensorRT")
    export.range("outer", 0, 1000, domain=1)
    export.range("as text", 100, 200)
    export.ranges[-1].update(text="as text", textId=None)
    for i in range(5):
        export.launch(100 + 30 * i, 10 + i, name=f"k{i}")
    export.launch(150, 3, name="odd", call="cuSomethingNew")
    export.kernel(1, None, 99, name="without end")
    return export


@pytest.mark.parametrize("form", ["parquet", "arrow file", "arrow stream"])
def test_the_rows_are_those_of_the_sqlite_export(tmp_path: Path, export: Export, form: str) -> None:
    file = export.write(tmp_path / "c.sqlite")
    found = registry.read(convert(file, tmp_path / "c", form))
    expected = sqlite.read(file)
    assert found.kind == "nsys-parquet"
    assert found.main.drop(["source"]).equals(expected.main.drop(["source"]))
    assert found.facts == expected.facts
    assert found.notes == expected.notes


def test_names_may_be_text_where_other_versions_have_ids(tmp_path: Path, export: Export) -> None:
    folder = convert(export.write(tmp_path / "c.sqlite"), tmp_path / "c", "parquet")
    file = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    table = pq.read_table(file)
    at = table.schema.get_field_index("demangledName")
    names = pa.array([f"name {i}" for i in range(len(table))]).dictionary_encode()
    pq.write_table(table.set_column(at, "demangledName", names), file)
    found = registry.read(folder).main["name"].to_pylist()
    assert found == [f"name {i}" for i in range(7)]


def test_a_damaged_file_is_named(tmp_path: Path, export: Export) -> None:
    folder = convert(export.write(tmp_path / "c.sqlite"), tmp_path / "c", "parquet")
    (folder / "NVTX_EVENTS.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"NVTX_EVENTS\.parquet"):
        registry.read(folder)


def test_other_files_in_the_directory_are_not_opened(tmp_path: Path, export: Export) -> None:
    folder = convert(export.write(tmp_path / "c.sqlite"), tmp_path / "c", "parquet")
    (folder / "notes.parquet").write_bytes(b"no parquet")
    assert registry.read(folder).main.num_rows == 7


def test_a_directory_of_something_else_is_of_no_known_kind(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="no known kind"):
        registry.read(tmp_path)
