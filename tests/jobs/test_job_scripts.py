"""What a job's script says: its directives, and words that nobody but the program reads."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from layerline.core.errors import InputError
from layerline.profile.jobs import instances, script
from layerline.profile.jobs.command import job

HOSTILE = [
    "$(touch planted)",
    "`id`",
    "a b",
    "x;y",
    "'q'",
    '"d"',
    "#c",
    "a,b",
    "*",
    "-n",
    "é",
    "\\",
]


def shown(*arguments: object) -> str:
    result = CliRunner().invoke(job, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(job, [str(a) for a in arguments])
    assert result.exit_code != 0
    return str(result.exception) if isinstance(result.exception, InputError) else result.output


def directives(text: str, mark: str) -> list[str]:
    return [line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark)]


def array(text: str, name: str, folder: Path) -> list[str]:
    """The words of an array of the script, as bash has them."""
    found = re.search(rf"^{name}=\(\n.*?^\)$", text, re.M | re.S)
    assert found is not None
    code = f"{found[0]}\nprintf '%s\\0' \"${{{name}[@]}}\""
    done = subprocess.run(["bash", "-uc", code], cwd=folder, capture_output=True, check=True)
    assert not any(folder.iterdir())
    return done.stdout.decode().split("\0")[:-1]


def test_slurms_directives_are_those_that_were_asked_for(tmp_path):
    text = shown(
        "slurm", "--nodes", 4, "--per-node", 8, "--name", "llama 70b", "--time", "1-00:00:00",
        "--partition", "p5", "--account", "me", "--qos", "high", "--constraint", "a100&nvlink",
        "--gpus-per-node", "h100:8", "--cpus-per-task", 96, "--chdir", tmp_path, "--logs",
        tmp_path / "lo gs", "--auto-resume", 3, "--warning", 300, "--directive", "--mem=0",
        "train", "llama",
    )  # fmt: skip
    assert directives(text, "#SBATCH ") == [
        '--job-name="llama 70b"', "--nodes=4", "--ntasks-per-node=1", '--gpus-per-node="h100:8"',
        "--cpus-per-task=96", "--exclusive", '--time="1-00:00:00"', '--partition="p5"',
        '--account="me"', '--qos="high"', '--constraint="a100&nvlink"', f'--chdir="{tmp_path}"',
        f'--output="{tmp_path}/lo gs/%x_%j.out"', "--requeue", "--open-mode=append",
        "--signal=B:USR1@300", "--mem=0",
    ]  # fmt: skip


def test_pbss_directives_are_those_that_were_asked_for(tmp_path):
    text = shown(
        "pbs", "--nodes", 2, "--chunk", "ngpus=4:system=polaris", "--walltime", "01:00:00",
        "--queue", "debug", "--filesystems", "home:eagle", "--account", "me", "--name", "gpt",
        "--join", "n", "--out", tmp_path / "out", "--err", tmp_path / "err", "train", "gpt2",
    )  # fmt: skip
    assert directives(text, "#PBS ") == [
        "-N gpt", "-l select=2:ngpus=4:system=polaris", "-l place=scatter",
        "-l walltime=01:00:00", "-l filesystems=home:eagle", "-q debug", "-A me", "-k doe",
        "-j n", f"-o {tmp_path}/out", f"-e {tmp_path}/err",
    ]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    words=st.lists(
        st.text(min_size=1).filter(str.isprintable) | st.sampled_from(HOSTILE), min_size=1
    )
)
def test_the_programs_words_arrive_as_they_are(tmp_path_factory, words):
    text = shown("slurm", "train", "--", "python", *words)
    folder = tmp_path_factory.mktemp("bash")
    assert array(text, "train", folder) == ["--", "python", *words]


@pytest.mark.parametrize("kind", ["slurm", "pbs"])
@pytest.mark.parametrize("option", ["--name", "--account"])
@pytest.mark.parametrize("value", ["a\n#SBATCH --uid=0", "a\x1b[31m", 'a" --uid="0', " ", "a\\"])
def test_a_directives_value_cannot_become_another_directive(kind, option, value):
    assert refused(kind, option, value, "train", "gpt2")


@pytest.mark.parametrize("value", ["a b", "a;b", "$(id)", "a'b", "a#b"])
def test_qsub_which_has_no_quotes_is_given_nothing_to_split(value):
    assert refused("pbs", "--account", value, "train", "gpt2")


@pytest.mark.parametrize("kind", ["slurm", "pbs"])
@pytest.mark.parametrize("more", [[], ["--auto-resume", 2], ["--container-image", "/a b.sqsh"]])
@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing(kind, more, tmp_path):
    if kind == "pbs" and more:
        more = ["--cpu-bind", "verbose,list:24-31:16-23", "--depth", 8, "--env", "A=b c"]
    path = tmp_path / "job.sh"
    path.write_text(shown(kind, *more, "train", "--profile", "nsys", "--", "python", *HOSTILE))
    # What stands in single quotes is meant to.
    command = ["shellcheck", "--exclude=SC2016,SC1003", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_every_value_of_a_template_goes_through_a_filter():
    for template in (ROOT / "profile/jobs/templates").iterdir():
        for value in re.findall(r"\{\{(.*?)\}\}", template.read_text()):
            last = value.rpartition("|")[2].strip()
            assert last in {"sbatch", "pbs", "sh", "words", "verbatim", "int"}, value


def test_an_instance_type_says_how_many_ranks_and_what_efa_wants():
    text = shown("slurm", "--instance", "p5.48xlarge", "--env", "NCCL_DEBUG=INFO", "train", "gpt2")
    assert "--nproc 8\n" in text
    exported = dict(re.findall(r"^export (\w+)=(.*)$", text, re.M))
    assert exported == {
        "NCCL_DEBUG": "INFO", "FI_PROVIDER": "efa", "FI_EFA_FORK_SAFE": "1",
        "FI_LOG_LEVEL": "warn", "FI_EFA_USE_DEVICE_RDMA": "1",
    }  # fmt: skip
    assert "FI_EFA_USE_DEVICE_RDMA" not in instances.environment("g5.48xlarge")
    assert "p5.48xlarge" in refused("slurm", "--instance", "p5.large", "train", "gpt2")


def test_a_container_is_srun_s_with_its_mounts():
    text = shown(
        "slurm", "--container-image", "docker://nvcr.io#nvidia/pytorch:25.10-py3",
        "--container-mounts", "/fsx:/fsx", "--container-mounts", "/a b:/c:ro", "train", "gpt2",
    )  # fmt: skip
    assert "step+=(--container-image='docker://nvcr.io#nvidia/pytorch:25.10-py3')" in text
    assert "step+=(--container-mounts='/fsx:/fsx,/a b:/c:ro')" in text
    assert "layerline=(\n  layerline\n)" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["slurm", "python", "own.py"], "'python' is not train"),
        (["slurm", "train"], "name what to train"),
        (["slurm", "train", "--nproc", "8", "llama"], "give --per-node before train"),
        (["slurm", "train", "llama", "--run=x"], "give --run before train"),
        (["slurm", "--container-mounts", "/a:/b", "train", "gpt2"], "without --container-image"),
        (["slurm", "--env", "a-b=c", "train", "gpt2"], "is not NAME=VALUE"),
        (["slurm", "--submit", "--dry-run", "train", "gpt2"], "not both"),
        (["pbs", "--name", "9 lives", "train", "gpt2"], "takes no job named"),
        (["slurm", "train", "llama", "--stepz", "3"], "No such option '--stepz'"),
        (["slurm", "train", "llama", "--steps", "many"], "'many' is not a valid integer"),
        (["pbs", "train", "lama"], "unknown workload lama"),
        (["pbs", "train", "llama", "--precision", "fp99"], "unknown precision fp99"),
        (["slurm", "train", "llama", "--profile", "nope"], "nothing to profile is called nope"),
        (["slurm", "train", "llama", "--schedule", "1,x"], "'1,x' is no schedule"),
        (["slurm", "train", "llama", "--ranks", "some"], "'some' names no ranks"),
        (["slurm", "train", "--"], "there is nothing after --"),
    ],
)
def test_what_is_wrong_is_said(arguments, said):
    assert said in refused(*arguments)


def test_words_of_the_program_are_not_taken_for_the_jobs():
    assert shown("slurm", "train", "--", "python", "own.py", "--nproc", "8", "--run", "x")


def test_a_file_of_the_nodes_need_not_be_here():
    assert shown("slurm", "train", "llama", "--text", "/fsx/of-the-nodes/text")


def test_a_comma_is_quoted_and_plain_words_are_not():
    assert script.shell("list:4,24") == "'list:4,24'"
    assert script.shell("/a/b.py") == "/a/b.py"
    assert shlex.split(script.words(["--a", "b c", "--d"])) == ["--a", "b c", "--d"]


def test_without_a_scheduler_submitting_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(job, ["slurm", "--submit", "train", "gpt2"])
    assert "sbatch is not on the PATH" in str(result.exception)
