"""How the things to remove look in text, each with the characters it cannot do without.

Every pattern has to leave alone what analysis needs: kernel names full of `::` and numbers,
ONNX names that look like paths (`/transformer/h.0/attn/MatMul`), and versions that look like
addresses (TensorRT 10.3.0.26).
"""

from __future__ import annotations

import ipaddress
import re

from .fields import ENVIRONMENT

# Shapes as the issuers document them: AWS, Hugging Face, GitHub, GitLab, OpenAI and others,
# Slack, Google, NVIDIA NGC, npm, PyPI, Docker; JSON web tokens; private keys; bearer headers.
TOKEN = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)|"
    r"(?<![A-Za-z0-9])(?:(?:AKIA|ASIA)[0-9A-Z]{16}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|"
    r"github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9_-]{20,}|"
    r"xox[abeprs]-[A-Za-z0-9-]{10,}|AIza[0-9A-Za-z_-]{35}|nvapi-[A-Za-z0-9_-]{20,}|"
    r"npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|dckr_pat_[A-Za-z0-9_-]{20,}|"
    r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)|"
    r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{12,}=*",
    re.DOTALL,
)
CREDENTIALS = re.compile(r"(?<=://)[^/\s:@'\"]{1,200}:[^/\s@'\"]{1,200}(?=@)")
OPTION = re.compile(
    r"(--?[\w-]{0,40}(?:token|secret|password|passwd|api[-_]?key|access[-_]?key)[= ]+)"
    r"([^\s\"']+)",
    re.IGNORECASE,
)
ASSIGNMENT = re.compile(
    rf"(?<![A-Za-z0-9_])({ENVIRONMENT.pattern})(=)"
    r"(\"[^\"]*\"|'[^']*'|[^\s;,\"'&|)\]}]+)"
)
# The same in a dictionary that was printed: "HOME": "/x".
PRINTED = re.compile(
    rf"(?<![A-Za-z0-9_])[\"']({ENVIRONMENT.pattern})[\"'](\s*:\s*)(\"[^\"]*\"|'[^']*')"
)
# One variable of an environment that was printed on one line, up to the next one.
VARIABLE = re.compile(
    r"(?:\A|[\s;\0])([A-Za-z_]\w{0,100})=(.*?)(?=[\s;\0]+[A-Za-z_]\w*=|\Z)", re.DOTALL
)
_NAMED = re.compile(ENVIRONMENT.pattern)
UUID = re.compile(
    r"(?<![0-9A-Za-z])(?:GPU-|MIG-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9A-Za-z])",
    re.IGNORECASE,
)
MAC = re.compile(
    r"(?<![0-9A-Za-z:.-])[0-9a-f]{2}(?:(?::[0-9a-f]{2}){5}|(?:-[0-9a-f]{2}){5})(?![0-9A-Za-z:-])",
    re.IGNORECASE,
)
BUS = re.compile(
    r"(?<![0-9A-Za-z:.])(?:[0-9a-f]{4}|[0-9a-f]{8}):[0-9a-f]{2}:[01][0-9a-f]\.[0-7](?![0-9A-Za-z.])",
    re.IGNORECASE,
)
EMAIL = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,63}@[A-Za-z0-9][A-Za-z0-9-]{0,62}"
    r"(?:\.[A-Za-z0-9-]{1,63}){0,8}\.[A-Za-z]{2,24}(?![\w-])"
)
# Names of machines that clouds and clusters give.
CLOUD_HOST = re.compile(
    r"(?<![\w.-])(?:ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[\w-]+){0,6}|[\w-]+(?:\.[\w-]+){0,6}\."
    r"(?:compute\.internal|ec2\.internal|compute\.amazonaws\.com|svc\.cluster\.local|"
    r"googleusercontent\.com|cloudapp\.azure\.com|cloudapp\.net))(?![\w-])"
)
IPV4 = re.compile(r"(?<![\w.+-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\w|\+)")
IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9a-f]{1,4}:){2,7}(?::?[0-9a-f]{1,4}){0,7}(?:%\w+)?(?![\w:.])", re.IGNORECASE
)
_BEFORE_VERSION = re.compile(
    r"(?:version|tensorrt|trt|cudnn|cublas|cuda|cupti|nccl|nsys|nsight\w*|systems|compute|driver|"
    r"release|torch|python|onnx\w*|[( ]v)[\s:\"'=(,v]*\Z",
    re.IGNORECASE,
)

# Where people's files lie. The name is that of the user; a placeholder is left as it is.
_NAME = r"[^/\\\s\"':;,()<>|*?{}\[\]`$&=]+"
# Before a path: no part of a name, or an option of a compiler that has no space behind it.
_BEFORE = (
    r"(?:(?<![\w.\-])|(?<=-[A-Za-z])|(?<=/I)|(?<=-isystem)|(?<=-iquote)|(?<=-idirafter)"
    r"|(?<=-include)|(?<=-imacros))"
)
HOME = re.compile(
    rf"{_BEFORE}(?:/[\w.-]+){{0,6}}?/(?:home|homes|Users)/({_NAME})|"
    rf"(?:(?<![A-Za-z0-9])[A-Za-z]:/{{1,2}}|[A-Za-z]:\\{{1,4}})"
    rf"(?:Users|Documents and Settings)(?:/{{1,2}}|\\{{1,4}})"
    rf"((?:[^/\\\s\"':;,()<>|*?]| (?=[^/\\\"':;,()<>|*?\r\n]{{1,40}}[\\/]))+)|"
    rf"(?:(?<![\w.\-/])|(?<=-[A-Za-z]))/root(?![\w.-])"
)
_PART = r"[^/\s\"':;,()<>|*?{}\[\]`$&=]+"
# Mount points of clusters and drives: what is below names projects and people.
STORAGE = re.compile(
    r"(?:(?<![\w.\-/])|(?<=-[A-Za-z])|(?<=-isystem))/(?:mnt|scratch\w*|lustre\w*|"
    r"gpfs\w*|nfs\w*|beegfs\w*|ceph\w*|media|fsx\w*|"
    rf"Volumes|nobackup\w*|projects)(?:/{_PART})+"
)
BUCKET = re.compile(r"(?<=s3://|gs://)[A-Za-z0-9._-]+|(?<=hdfs://)[A-Za-z0-9._-]+")
_FILE_SUFFIX = (
    r"\.(?:pyc?|cpp|cu|cuh|so(?:\.\d+)*|onnx|engine|plan|pth?|json|gz|sqlite|nsys-rep|qdrep|"
    r"ncu-rep|csv|log|sh|ipynb|safetensors|ya?ml|parquet)"
)
# An absolute path to a file of a known suffix: no name of an ONNX node ends so.
FILE = re.compile(
    rf"(?:(?<![\w.\-/:])|(?<=-[A-Za-z]))(?:/[\w.+@~-]+)+/[\w.+~-]+{_FILE_SUFFIX}(?![\w.-])"
)
SUFFIX = re.compile(r"\.[A-Za-z0-9_-]{1,12}\Z")

# Directories that every machine has.
SYSTEM = re.compile(
    r"/(?:usr|opt|lib(?:32|64)?|etc|proc|sys|dev|s?bin|nix|tmp|run|var|snap|boot|System|Library|"
    r"Applications|workspace|build|pytorch|app|dir\d+|home/user\d+)(?:/|\Z)"
)
PLACEHOLDER = re.compile(
    r"(?:user|host|domain|uuid|serial|bus|mac|ip|email|token|process|thread|file|bucket)\d+\Z|"
    r"removed\Z|/dir\d+\Z|/home/user\d+\Z"
)

# Names that say nothing and are words of other things: replaced in their own fields only.
_COMMON = """
root user users admin administrator ubuntu debian centos fedora nobody guest test tester default
owner system local localhost localdomain host server node worker master main head login compute
cluster cloud docker container pod runner jenkins build builder ci github actions nvidia cuda
tensorrt torch pytorch python jupyter conda mamba spark ray slurm data model models train
training infer inference eval work workspace project home shared public private desktop laptop
machine device linux windows forward backward optimizer kernel layer layers stream graph memcpy
memset module transformer encoder decoder attention attn query value output input embed
embeddings linear conv norm none null true false name unknown removed engine export profile
capture iteration phase runtime launch batch sequence gpt2 bert llama vscode developer research
vagrant azureuser ec2-user oracle
"""
COMMON = frozenset(_COMMON.split())


def is_environment(text: str) -> bool:
    """Whether text is a whole environment on one line: many variables, some of them well known."""
    if text.count("=") < 4:
        return False
    names = [m[1] for m in VARIABLE.finditer(text[:100_000])]
    upper = [n for n in names if len(n) > 2 and n.isupper()]
    return len(upper) >= 4 and any(_NAMED.fullmatch(n) for n in upper)


def is_address(match: re.Match[str]) -> bool:
    """Whether dotted numbers are an IPv4 address of a machine, by themselves and what precedes."""
    try:
        address = ipaddress.IPv4Address(match[0])
    except ValueError:
        return False
    broadcast = match[0] == "255.255.255.255" or address.is_multicast
    if broadcast or address.is_loopback or address.is_unspecified:
        return False
    return _BEFORE_VERSION.search(match.string[max(0, match.start() - 24) : match.start()]) is None


def is_address6(text: str) -> bool:
    """Whether groups of hexadecimal digits are an IPv6 address, and no time or C++ scope."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    groups = [g for g in text.split("%")[0].split(":") if g]
    return not address.is_loopback and len(groups) >= 3 and any(len(g) >= 3 for g in groups)


def is_common(name: str) -> bool:
    """Whether a user's or host's name is too short or too ordinary to be looked for everywhere."""
    return len(name) < 4 or name.isdigit() or name.lower() in COMMON
