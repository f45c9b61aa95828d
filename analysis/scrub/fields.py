"""What a field holds, by its name: JSON keys, CSV headers, columns of an export.

A kind is one of `_NAMES`, or "token", "thread" or "module"; None is text that is only searched for
patterns. Names are compared without case and punctuation, so `Host Name`, `host_name` and
`hostName` are one.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Kinds of values that a field as a whole may be, and the names of such fields. `remove` and
# `environment` are emptied, `path`, `module` and `command` shortened; all others get a numbered
# placeholder.
_NAMES = {
    "host": (
        "host hostname hostnames hosts nodename nodelist masteraddr masteraddress servername "
        "fqdn computername machinename devicedisplayname exporthost"
    ),
    "user": "user username logname login owner author submitter exportuser",
    "home": "home homedir homedirectory userprofile",
    "uuid": (
        "uuid gpuuuid deviceuuid traceid sessionid sessionuuid machineid bootid hostid systemuid"
    ),
    "serial": "serial serialnumber boardserial boardserialnumber assettag",
    "bus": "buslocation pcibusid pcibus busid pciid",
    "mac": "mac macaddress hwaddr guid nodeguid portguid",
    "ip": "ip ips ipaddr ipaddress peerip hostip localip",
    "process": "processname exename",
    "file": "filepath",
    "path": (
        "file filename fname tracename sourcefile location cwd workingdir workingdirectory "
        "executable exe exepath executablepath programpath inputfile outputfile"
    ),
    "command": "command",
    "remove": "cmd cmdline commandline argv processargs commandlineargs",
    "environment": (
        "env environ environment envvars environmentvariables environmentvariable deviceenvironment"
    ),
}
_KIND = {name: kind for kind, names in _NAMES.items() for name in names.split()}
# Not `pad_token` and the like, which are words of a vocabulary.
_TOKEN = re.compile(
    r"(?:api|auth|access|secret|refresh|bearer|hf|hub|github|gitlab|wandb|session)token|secret|"
    r"passw(?:or)?d|apikey|accesskey|privatekey|credential"
)
_PUNCTUATION = re.compile(r"[^a-z0-9]+")


@lru_cache(65536)
def kind_of(name: str) -> str | None:
    """The kind that a field of this name holds; None for a name that says nothing."""
    bare = _PUNCTUATION.sub("", name[:200].lower())
    kind = _KIND.get(bare)
    return "token" if kind is None and _TOKEN.search(bare) else kind


# Names of fields in which dotted numbers are versions, not addresses.
VERSION = re.compile(
    r"version|tensorrt|cudnn|cublas|cuda|nsys|nsight|driver|release|torch|toolkit|firmware", re.I
)
# Environment variables whose values say who, where, or are secret.
ENVIRONMENT = re.compile(
    r"(?:HOME|USER|USERNAME|LOGNAME|HOSTNAME|HOST|COMPUTERNAME|USERPROFILE|PWD|OLDPWD|MAIL|PATH|"
    r"NODE_NAME|CONTAINER_NAME|MASTER_ADDR|XAUTHORITY|VIRTUAL_ENV|HISTFILE|LD_LIBRARY_PATH|"
    r"PYTHONPATH|(?:SUDO|SSH|SLURM|SLURMD|PBS|LSB|SGE|AWS|AZURE|GOOGLE|GCP|HF|WANDB|MLFLOW|"
    r"OPENAI|ANTHROPIC|NGC|KUBERNETES|K8S|POD|XDG|DBUS|CONDA|JUPYTER|KRB5)_?[A-Z0-9_]*|"
    r"[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)"
    r"(?:_[A-Z0-9]+)*|(?:https?|ftp|all|no)_proxy)"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASS|CREDENTIAL|_KEY|KEY_|AUTH|COOKIE|SESSION", re.I)
_VARIABLES = {
    "home": "HOME USERPROFILE",
    "user": "USER USERNAME LOGNAME SUDO_USER SLURM_JOB_USER",
    "host": (
        "HOSTNAME HOST COMPUTERNAME NODE_NAME CONTAINER_NAME MASTER_ADDR SLURMD_NODENAME "
        "SLURM_SUBMIT_HOST"
    ),
    "dir": "PWD OLDPWD SLURM_SUBMIT_DIR",
}
_IDENTITY = {name: kind for kind, names in _VARIABLES.items() for name in names.split()}


def kind_of_variable(name: str) -> str | None:
    """What the value of an environment variable tells: home, user, host, dir, token or None."""
    return _IDENTITY.get(name) or ("token" if _SECRET.search(name) else None)
