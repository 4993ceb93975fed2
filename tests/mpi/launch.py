"""Starts processes as torchrun does, by variables alone: launch.py -np N COMMAND…. When one has failed, the others have eight
seconds to end by themselves. Exit code: the first of theirs that is not 0."""

import os
import socket
import subprocess
import sys
import time

count, command = int(sys.argv[2]), sys.argv[3:]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
told = {**os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
started = [subprocess.Popen(command, env={**told, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(count)]
failed = None
while any(each.poll() is None for each in started):
    if failed is None and any(each.poll() for each in started):
        failed = time.monotonic()
    if failed is not None and time.monotonic() > failed + 8:
        for rank, each in enumerate(started):
            if each.poll() is None:
                print(f"the launcher had to end process {rank}", file=sys.stderr)
                each.kill()
                each.wait()
    time.sleep(0.01)
codes = [each.returncode for each in started]
sys.exit(next((1 if code < 0 else code for code in codes if code), 0))
