"""Which rank a process is, by the variables of its launcher."""

from __future__ import annotations

import pytest

from layerline.core.errors import InputError
from layerline.core.ranks import identity as ranks
from layerline.core.ranks.identity import Rank, chosen, identity

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}  # fmt: skip
PALS = {
    "PMI_RANK": "5", "PMI_SIZE": "8", "PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1",
    "PMI_LOCAL_SIZE": "4", "PALS_NODEID": "1",
}  # fmt: skip
SRUN = {
    "SLURM_JOB_ID": "31", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "by"),
    [(TORCHRUN, "torchrun"), (OPEN_MPI, "Open MPI"), (PALS, "mpiexec"), (SRUN, "srun")],
)
def test_each_launcher_says_which_rank_a_process_is(environment, by):
    assert identity(environment) == Rank(5, 8, 1, 4, 1, by)


def test_without_a_launcher_a_process_is_no_rank():
    assert identity({"PATH": "/bin", "RANK": ""}) is None


def test_torchrun_under_srun_counts_its_own_ranks():
    assert identity({**SRUN, **TORCHRUN, "SLURM_PROCID": "1"}) == Rank(5, 8, 1, 4, 1, "torchrun")


@pytest.mark.parametrize("step", [None, "4294967290", "4294967291"])
def test_a_batch_script_and_an_interactive_shell_are_no_ranks(step):
    environment = {**SRUN, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    del environment["SLURM_STEP_ID"]
    assert identity({**environment, **({"SLURM_STEP_ID": step} if step else {})}) is None


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RANK": "8", "WORLD_SIZE": "8"}, "RANK is 8 and WORLD_SIZE is 8"),
        ({**PALS, "PALS_RANKID": "4"}, "PMI_RANK is 5 and PALS_RANKID is 4"),
        ({"RANK": "first"}, "RANK=first is no number"),
        ({**TORCHRUN, "LOCAL_RANK": "4"}, "LOCAL_RANK is 4 and LOCAL_WORLD_SIZE is 4"),
    ],
)
def test_variables_that_contradict_one_another_are_refused(environment, said):
    with pytest.raises(InputError, match=said):
        identity(environment)


@pytest.mark.parametrize(("node", "tasks"), [(0, 2), (2, 2), (3, 1), (4, None)])
def test_slurms_short_form_of_tasks_per_node(node, tasks):
    assert ranks.tasks_of("2(x3),1", node) == tasks


def rank(number: int, each: int = 4) -> Rank:
    return Rank(number, 16, number % each, each, number // each, "torchrun")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", list(range(16))),
        ("0,4", [0, 4]),
        ("0-2,7", [0, 1, 2, 7]),
        ("first-per-node", [0, 4, 8, 12]),
        ("first-per-node:2", [0, 4]),
    ],
)
def test_which_ranks_a_text_means(text, expected):
    assert [n for n in range(16) if chosen(text)(rank(n))] == expected


@pytest.mark.parametrize("text", ["", "none", "3-1", "first-per-node:0", "1,,2", "-1"])
def test_a_text_that_names_no_ranks_is_refused(text):
    with pytest.raises(InputError):
        chosen(text)


def test_the_first_of_a_node_is_not_guessed():
    alone = Rank(3, 16, None, None, None, "mpiexec")
    with pytest.raises(InputError, match="does not say on which node"):
        chosen("first-per-node")(alone)


def test_ranks_of_mpiexec_meet_at_the_first_node(tmp_path):
    nodes = tmp_path / "nodes"
    nodes.write_text("x3001\nx3002\n")
    environment = {"PBS_NODEFILE": str(nodes), "PBS_JOBID": "123.polaris"}
    given = ranks.torch_environment(Rank(5, 8, 1, 4, 1, "mpiexec"), environment)
    assert given == {
        "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1", "MASTER_ADDR": "x3001", "MASTER_PORT": "29623",
    }  # fmt: skip
    with pytest.raises(InputError, match="host of rank 0 is not known"):
        ranks.torch_environment(Rank(5, 8, 1, 4, 1, "mpiexec"), {})
    assert ranks.torch_environment(Rank(5, 8, 1, 4, 1, "torchrun"), environment) == {}
