"""Programs start without the libraries of CUDA: the loader needs none of them. Arguments: the programs."""

import re
import shutil
import subprocess
import sys

CUDA = re.compile(r"^\s*(lib(?:cu(?:blas|blasLt|dnn|dart|da)|nccl|nvrtc)[\w-]*\.so\S*)", re.MULTILINE)

if shutil.which("ldd") is None:
    print("no ldd")
    sys.exit(77)
failed = False
for program in sys.argv[1:]:
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    if "libc.so" not in needed:
        print(f"{program}: ldd says nothing of use:\n{needed}")
        failed = True
    for library in CUDA.findall(needed):
        print(f"{program}: cannot start without {library}; load it where it is first needed (shared_library.h)")
        failed = True
sys.exit(failed)
