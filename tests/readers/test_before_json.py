"""What a file is does not hang on its first characters, nor on its last."""

from __future__ import annotations

from pathlib import Path

import pytest
import reader_seeds

from layerline.analysis.readers import registry
from layerline.core.errors import InputError

# A reader, and which of its seeds are JSON.
JSON = {
    "tensorrt.layers": (0, 2),
    "tensorrt.profile": (0, 1, 2, 3),
    "onnxruntime.profile": (0,),
    "torch.trace": (0, 2),
    "memory.snapshot": (2,),
}
BEFORE = {
    "mark": "\ufeff",
    "empty lines": "\n \r\n\n",
    "prompt": "user@host:~$ cat a.json\n",
    "python": ">>> print(text)\n",
    "log": "[05/08/2024-14:05:14] [I] Loading\n[TRT] [W] slow\n[I] ok\n",
    "bracket": "[INFO] saved\n",
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    ("kind", "seed"), [(kind, n) for kind, seeds in JSON.items() for n in seeds]
)
def test_other_lines_before_the_json_are_passed_over_and_said(
    tmp_path: Path, kind: str, seed: int, before: str
) -> None:
    path = reader_seeds.SEEDS[kind][seed](tmp_path)
    data = path.read_bytes()
    expected = registry.read(path)
    text = BEFORE[before]
    path.write_bytes(text.encode() + data.removeprefix(b"\xef\xbb\xbf"))
    found = registry.read(path)
    assert found.kind == expected.kind
    assert {n: t.to_pylist() for n, t in found.tables.items()} == {
        n: t.to_pylist() for n, t in expected.tables.items()
    }
    said = any("before the JSON" in note for note in found.notes)
    assert said == (before not in ("mark", "empty lines"))


@pytest.mark.parametrize("kind", JSON)
def test_what_powershell_redirects_is_read(tmp_path: Path, kind: str) -> None:
    path = reader_seeds.SEEDS[kind][JSON[kind][0]](tmp_path)
    data = path.read_bytes()
    expected = registry.read(path).main.to_pylist()
    path.write_bytes(data.decode().encode("utf-16"))
    assert registry.read(path).main.to_pylist() == expected


AFTER = ("\nuser@host:~$ ", "user@host:~$", "\n[user@host runs]$ \n", "\n>>> \n", "\n[I] saved\n")


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize(
    ("kind", "seed"), [(kind, n) for kind, seeds in JSON.items() for n in seeds]
)
def test_a_prompt_behind_the_json_is_passed_over_and_said(
    tmp_path: Path, kind: str, seed: int, after: str
) -> None:
    path = reader_seeds.SEEDS[kind][seed](tmp_path)
    expected = registry.read(path)
    path.write_bytes(path.read_bytes() + after.encode())
    found = registry.read(path)
    assert {n: t.to_pylist() for n, t in found.tables.items()} == {
        n: t.to_pylist() for n, t in expected.tables.items()
    }
    said = [note for note in found.notes if "after the JSON" in note]
    assert len(said) == 1 and repr(after.strip()) in said[0]
    assert not any("after the JSON" in note for note in expected.notes)


@pytest.mark.parametrize("kind", ["tensorrt.layers", "tensorrt.profile", "memory.snapshot"])
def test_half_a_document_behind_a_whole_one_is_no_prompt(tmp_path: Path, kind: str) -> None:
    path = reader_seeds.SEEDS[kind][JSON[kind][0]](tmp_path)
    path.write_bytes(path.read_bytes() + b'\n[{"name": "x"')
    with pytest.raises(InputError, match="after 1 whole"):
        registry.read(path)
