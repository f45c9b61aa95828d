"""The C++ compiler that torch's inductor takes, and whether torch can load what it makes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

REMEDY = "name another compiler with CXX=…, such as /usr/bin/g++"
# Prints, so that a linker that drops what is not used keeps the library.
_PRINTS = b"#include <iostream>\nvoid prints() { std::cout << 1; }\n"


def compiler() -> str | None:
    """CXX, else g++ (torch/_inductor/cpp_builder.py); None where it is not there."""
    return shutil.which(os.environ.get("CXX") or "g++")


def unfit(compiler: str) -> str | None:
    """Why torch cannot load what this compiler links; None where it can.

    A compiler that has only libstdc++.a puts a C++ library of its own into every package. Beside
    the one that torch has loaded, the first ``std::regex`` in it takes the locale of one and the
    functions of the other: signal 11, or "create_func_ … API call failed". Compiles two lines; None
    also where that fails.
    """
    with tempfile.TemporaryDirectory(prefix="layerline-compiler-") as folder:
        made = Path(folder, "prints.so")
        command = [compiler, "-shared", "-fPIC", "-x", "c++", "-", "-o", str(made)]
        done = subprocess.run(command, input=_PRINTS, capture_output=True, check=False)
        if done.returncode or re.search(rb"lib(std)?c\+\+\.so", made.read_bytes()):
            return None
    return f"torch cannot load what {compiler} makes, which has its own C++ library in it"
