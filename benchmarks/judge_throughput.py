"""Calls a second of judging against a loopback server that answers after 50 ms.

    python benchmarks/judge_throughput.py [--pairs 2000] [--genarena PYTHON] [--memory 20000]

Three ways on the same server, in turns, medians of the rounds:

* ``ours``: ``run_judge`` whole: pictures checked and encoded, keys, retries, store, verdicts;
* ``bare``: ``AsyncOpenAI.chat.completions.create`` with the same messages in a loop, nothing kept;
* ``genarena``: GenArena 0.1.2 from PyPI in its own interpreter (its pandas is not ours):
  ``python -m venv ga && ga/bin/pip install genarena``, then ``--genarena ga/bin/python``.

``--memory N`` judges N pairs once and prints the resident memory along the way.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from support.image_folders import make_folder  # noqa: E402 - the tests' own tools

from recast_eval.judging.cards import load_card  # noqa: E402
from recast_eval.judging.derive import write_verdicts  # noqa: E402
from recast_eval.judging.executor import Options, run_judge  # noqa: E402
from recast_eval.judging.pairs import ImageSet, make_pairs, read_image_set  # noqa: E402
from recast_eval.judging.pictures import Vault  # noqa: E402
from recast_eval.judging.planning import Planner, spec_of  # noqa: E402
from recast_eval.judging.store import ReplyStore, Run  # noqa: E402
from recast_eval.judging.transport import OpenAITransport  # noqa: E402

CONCURRENCY = 64
GENARENA = """
import json, sys, time
from pathlib import Path
from genarena.arena import Arena, ArenaConfig
root, url, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
arena = Arena(ArenaConfig(arena_dir=root + "/arena", data_dir=root + "/data", subset="basic",
    exp_name="bench_20260101", num_threads=threads, parallel_swap_calls=True, judge_model="mock",
    base_urls=url, api_keys="none"))
began = time.perf_counter()
arena.run()
print(json.dumps({"seconds": time.perf_counter() - began}))
"""


def resident_mb() -> float:
    """Resident memory of this process, from the kernel."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4096 / 1e6


async def ours(url: str, sets: list[ImageSet], root: Path, watch: bool = False) -> dict[str, float]:
    """One whole run on an empty store."""
    seen: dict[str, float] = {}
    answers = 0

    def planned(plan: object) -> None:
        del plan
        seen["planned"] = time.perf_counter()
        seen["rss_planned"] = resident_mb()

    def answered(answer: object) -> None:
        nonlocal answers
        del answer
        answers += 1
        if watch and answers % 2000 == 0:
            print(f"  {answers:6d} calls  {resident_mb():7.1f} MB", flush=True)

    root.mkdir()
    began, cpu = time.perf_counter(), time.process_time()
    with ReplyStore(root / "replies.sqlite") as store:
        transport = OpenAITransport(url)
        options = Options(concurrency=CONCURRENCY, on_planned=planned, on_answer=answered)
        spec = spec_of(load_card("pairwise-v1"), "mock", url)
        report = await run_judge(spec, make_pairs(sets), store, transport, options)
        await transport.aclose()
        asked = time.perf_counter()
        tally = write_verdicts(store, root / "verdicts.jsonl")
    assert tally.scored == tally.total, tally
    return {
        "calls": report.asked,
        "asking": report.asked / (asked - seen["planned"]),
        "whole": report.asked / (time.perf_counter() - began),
        "cpu_ms": 1e3 * (time.process_time() - cpu) / report.asked,
        "rss_planned": seen["rss_planned"],
        "rss_end": resident_mb(),
    }


async def bare(url: str, sets: list[ImageSet], root: Path) -> float:
    """The same messages through the SDK alone; calls a second."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    root.mkdir()
    with ReplyStore(root / "replies.sqlite") as store:
        card = load_card("pairwise-v1")
        vault = Vault(card.images, store)
        planner = Planner(spec_of(card, "mock", url), vault, store)
        plan = planner.plan(make_pairs(sets), Run("", []), write=False)
        bodies = []
        for item in plan.pending:
            question = planner.question(*item)
            urls = [await vault.url(image, 0) for image in question.images]
            bodies.append(
                [
                    {"type": "text", "text": part}
                    if isinstance(part, str)
                    else {"type": "image_url", "image_url": {"url": urls[part]}}
                    for part in question.message.parts
                ]
            )
    client = AsyncOpenAI(
        base_url=url,
        api_key="none",
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(trust_env=False),
    )
    gate = asyncio.Semaphore(CONCURRENCY)

    async def call(content: list[dict[str, object]]) -> None:
        async with gate:
            message = {"role": "user", "content": content}
            await client.chat.completions.create(
                model="mock",
                messages=[message],  # type: ignore[list-item]
                temperature=0,
                max_tokens=700,
            )

    began = time.perf_counter()
    await asyncio.gather(*(call(body) for body in bodies))
    rate = len(bodies) / (time.perf_counter() - began)
    await client.close()
    return rate


def genarena(python: str, url: str, sets: list[ImageSet], root: Path, pairs: int) -> float:
    """GenArena on the first ``pairs`` pairs, its own fastest setting; calls a second."""
    import pandas as pd

    (root / "data" / "basic").mkdir(parents=True)
    rows = []
    for index, key in enumerate(sorted(sets[0].records)[:pairs]):
        for images in sets:
            target = root / "arena" / "basic" / "models" / "bench_20260101" / images.model
            target.mkdir(parents=True, exist_ok=True)
            source = images.folder / images.records[key].file_name
            (target / f"{index:06d}.png").write_bytes(source.read_bytes())
        prompt = sets[0].records[key].prompt
        rows.append({"index": index, "task_type": "t2i", "instruction": prompt, "input_images": []})
    frame = pd.DataFrame(rows)
    frame.to_parquet(root / "data" / "basic" / "data-00000.parquet")
    ran = subprocess.run(  # noqa: S603 - the interpreter that the user named
        [python, "-c", GENARENA, str(root), url, str(CONCURRENCY // 2)],
        capture_output=True,
        text=True,
        check=True,
    )
    logged = list((root / "arena" / "basic" / "pk_logs").rglob("*.jsonl"))
    battles = sum(
        path.read_text("utf-8").count("\n") for path in logged if "raw_outputs" not in path.parts
    )
    assert battles == pairs, f"{battles} of {pairs} battles\n{ran.stderr[-2000:]}"
    return 2 * pairs / float(json.loads(ran.stdout.splitlines()[-1])["seconds"])


def start_server() -> tuple["subprocess.Popen[str]", str]:
    """The loopback server in a process of its own."""
    program = [
        sys.executable,
        str(HERE.parent / "tests/support/judge_server.py"),
        "--delay",
        "0.05",
    ]
    server = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert server.stdout is not None
    return server, f"http://127.0.0.1:{int(server.stdout.readline())}/v1"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--genarena", help="interpreter that has genarena")
    parser.add_argument("--genarena-pairs", type=int, default=200)
    parser.add_argument("--memory", type=int, default=0, help="judge so many pairs once, watched")
    arguments = parser.parse_args()
    server, url = start_server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), url, arguments)
    finally:
        server.kill()
        server.wait()


def measure(root: Path, url: str, arguments: argparse.Namespace) -> None:
    """All ways, in turns."""
    number = arguments.memory or arguments.pairs
    sets = [
        read_image_set(make_folder(root / name, prompts=number, seed=i, size=64, flat=True), name)
        for i, name in enumerate("AB")
    ]
    if arguments.memory:
        found = asyncio.run(ours(url, sets, root / "memory", watch=True))
        print(json.dumps({k: round(v, 2) for k, v in found.items()}))
        return
    rates: dict[str, list[float]] = {}
    for turn in range(arguments.rounds):
        found = asyncio.run(ours(url, sets, root / f"ours-{turn}"))
        rates.setdefault("ours, asking", []).append(found["asking"])
        rates.setdefault("ours, whole run", []).append(found["whole"])
        rates.setdefault("ours, CPU ms a call", []).append(found["cpu_ms"])
        rates.setdefault("bare SDK", []).append(asyncio.run(bare(url, sets, root / f"bare-{turn}")))
        if arguments.genarena:
            rates.setdefault("genarena", []).append(
                genarena(
                    arguments.genarena, url, sets, root / f"ga-{turn}", arguments.genarena_pairs
                )
            )
    for name, values in rates.items():
        print(f"{name:22s} {statistics.median(values):8.1f}   {[round(v, 1) for v in values]}")
    asking = statistics.median(rates["ours, asking"])
    print(f"ours / bare SDK        {asking / statistics.median(rates['bare SDK']):8.2f}")
    if "genarena" in rates:
        print(f"ours / genarena        {asking / statistics.median(rates['genarena']):8.2f}")


if __name__ == "__main__":
    main()
