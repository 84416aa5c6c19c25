"""Lines on a disk that has no room for them."""

import resource
from pathlib import Path

import pytest

from recast_eval.records import MetricRecord, append_record, read_records


def _record(step: int) -> MetricRecord:
    return MetricRecord(step=step, epoch=step, seconds=1.0, values={"loss": 0.1})


def test_a_line_that_does_not_fit_is_an_error_and_leaves_no_piece(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_record(path, _record(1))
    whole = path.read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, before[1]))  # room for 20 bytes
    try:
        with pytest.raises(OSError, match=r"metrics\.jsonl"):
            append_record(path, _record(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == whole
    append_record(path, _record(3))
    assert [r.step for r in read_records(path, MetricRecord)] == [1, 3]
