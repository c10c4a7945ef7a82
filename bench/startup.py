"""What one command costs as a whole process: python bench/startup.py [RUNS].

In turn, so that a machine whose speed drifts slows all alike: (a) `gen-seed n7 > n7.iso`;
(b) the bare import of its six packages, with cryptography.x509; (c) the same seed by hand, with
openssl and cloud-localds (Debian's cloud-image-utils); then --help and `validate` of one node.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = "import click, cryptography.x509, jinja2, jsonschema, pycdlib, yaml"
BY_HAND = """
set -e
openssl ecparam -name prime256v1 -genkey -noout -out k.pem
openssl req -new -key k.pem -subj /CN=n7 -out r.pem
openssl x509 -req -in r.pem -CA pki/ca.pem -CAkey pki/ca-key.pem -days 365 -out c.pem -set_serial 7
{ echo '#cloud-config'; echo 'write_files:'
  for f in pki/ca.pem c.pem k.pem; do
    echo "- path: /etc/llmgw/$f"; echo '  content: |'; sed 's/^/    /' $f; done; } > user-data
printf 'instance-id: n7-1\\nlocal-hostname: n7\\n' > meta-data
cloud-localds by-hand.iso user-data meta-data
"""


def main(runs: int) -> None:
    gen_seed = [sys.executable, "-m", "generator"]
    commands = {
        "(a) gen-seed n7 > n7.iso": [*gen_seed, "n7", "-o", "n7.iso"],
        "(b) import of six packages": [sys.executable, "-c", IMPORTS],
        "(c) by hand": ["sh", "-c", BY_HAND],
        "gen-seed --help": [*gen_seed, "--help"],
        "gen-seed validate n7": [*gen_seed, "validate", "n7"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    if not shutil.which("cloud-localds"):
        print("left out: (c), for want of cloud-localds")
        del commands["(c) by hand"]
    with tempfile.TemporaryDirectory() as folder:
        setup = [*gen_seed, "init", folder, "--new-ca"]
        subprocess.run(setup, cwd=ROOT, check=True, capture_output=True)
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs + 1):
            for name, command in commands.items():
                taken[name].append(seconds(command, folder))
    base = median(taken["(b) import of six packages"][1:])
    for name, times in taken.items():
        middle = median(times[1:])  # the first fills caches
        print(f"{name:28} {middle * 1e3:7.1f} ms   {middle / base:5.2f} of (b)")


def seconds(command: list[str], folder: str) -> float:
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 21)
