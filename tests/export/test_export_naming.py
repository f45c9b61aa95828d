"""Names of nodes: unique, of modules that exist, complete where the exporter knew nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from layerline.core.nodes import sanitised
from layerline.export.naming import ModuleTree, spread, unique_names

TREE = ModuleTree(
    classes={"": "Net", "h": "ModuleList", "h.0": "Block", "h.1": "Block", "h.1.mlp": "Linear"},
    aliases={"h.1.mlp": ("head", "tail.head")},
)

paths = st.lists(st.sampled_from(["a", "b", "a_b", "0", "1"]), max_size=3).map(".".join)


@given(st.lists(st.tuples(paths, st.sampled_from(["Add", "Add_1", "MatMul"])), max_size=40))
def test_names_are_unique_also_as_tools_spell_them(entries: list[tuple[str, str]]) -> None:
    names = unique_names(entries)
    assert len({sanitised(n) for n in names}) == len(entries)
    for name, (module, op) in zip(names, entries, strict=True):
        assert name.startswith(f"{module}/{op}")
        assert name[len(module) + 1 + len(op) :].lstrip("_").isdigit() or name == f"{module}/{op}"


def test_names_count_up_in_graph_order_and_step_over_what_would_be_spelt_alike() -> None:
    entries = [("a.b", "Add"), ("a.b", "Add"), ("a_b", "Add"), ("", "Add"), ("a.b", "Add")]
    assert unique_names(entries) == ["a.b/Add", "a.b/Add_1", "a_b/Add_2", "/Add", "a.b/Add_3"]


def test_a_scope_of_a_sliced_module_list_is_the_module_it_sliced() -> None:
    assert TREE.canonical("h.slice(None, 2, None).1") == "h.1"
    assert TREE.canonical("h.slice(1, None, None).0") == "h.1"
    assert TREE.canonical("h.slice(1, None, None).0.mlp") == "h.1.mlp"


def test_a_module_called_again_is_the_same_module() -> None:
    assert TREE.canonical("h.1@2.mlp@1") == "h.1.mlp"


def test_the_prefix_of_strict_tracing_is_no_part_of_the_path() -> None:
    assert TREE.canonical("L__self___h.0") == "h.0"


def test_a_tied_module_keeps_the_path_of_named_modules() -> None:
    assert TREE.canonical("tail.head") == "h.1.mlp"


def test_a_scope_that_is_no_module_gives_the_innermost_module_around_it() -> None:
    assert TREE.module_of(["", "h.1", "h.1.helper", "h.1.helper.inner"]) == "h.1"
    assert TREE.module_of(["elsewhere"]) is None


def test_a_node_without_module_belongs_to_what_reads_it_then_to_what_it_reads() -> None:
    # x -> y -> (p in a.b, q in a.c);  r in d -> z (an output nobody reads);  w stands alone
    consumers = {"x": ["y"], "y": ["p", "q"], "r": ["z"], "p": [], "q": [], "z": [], "w": []}
    producers = {"x": [], "y": ["x"], "p": ["y"], "q": ["y"], "r": [], "z": ["r"], "w": []}
    found = spread(
        ["x", "y", "p", "q", "r", "z", "w"],
        {"p": "a.b", "q": "a.c", "r": "d"},
        consumers,
        producers,
    )
    assert found == {"x": "a", "y": "a", "p": "a.b", "q": "a.c", "r": "d", "z": "d"}


def test_a_module_registered_twice_keeps_one_path_and_lists_the_other() -> None:
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(2, 2)
            self.heads = nn.ModuleList([self.body, nn.ReLU()])

    tree = ModuleTree.of(Net())
    assert tree.classes == {"": "Net", "body": "Linear", "heads": "ModuleList", "heads.1": "ReLU"}
    assert tree.aliases == {"body": ("heads.0",)}
