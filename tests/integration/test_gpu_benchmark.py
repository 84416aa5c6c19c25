"""The GPU benchmark runs where there is none, so that it will run where there is one."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_sd35.py"


def test_tiny_on_a_cpu() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--tiny", "--images", "2", "--repeats", "1"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1
    found = json.loads(lines[0])
    assert found["tiny"]
    assert found["lora_parameters"] == 15 * 4 * (32 + 32)
    assert min(found[k] for k in ("image_seconds", "decode_seconds", "item_seconds")) > 0
    assert found["share_of_matmul_rate"] > 0
    for shares in found["kernels"].values():
        assert 0.99 < sum(shares.values()) < 1.01
        assert shares["products"] > 0
