"""What is written to disk, and how it is read back."""

from recast_eval.records.base import (
    Failed,
    Outcome,
    Record,
    Scored,
    canonical_json,
    digest,
    file_sha256,
)
from recast_eval.records.files import (
    CheckpointCard,
    CreditRecord,
    ImageRecord,
    MetricRecord,
    ScoreRecord,
)
from recast_eval.records.jsonl import (
    append_record,
    append_text,
    part_path,
    read_json,
    read_lines,
    read_records,
    write_atomic,
    write_json,
)
from recast_eval.records.manifest import Manifest, hardware, package_versions

__all__ = [
    "CheckpointCard",
    "CreditRecord",
    "Failed",
    "ImageRecord",
    "Manifest",
    "MetricRecord",
    "Outcome",
    "Record",
    "ScoreRecord",
    "Scored",
    "append_record",
    "append_text",
    "canonical_json",
    "digest",
    "file_sha256",
    "hardware",
    "package_versions",
    "part_path",
    "read_json",
    "read_lines",
    "read_records",
    "write_atomic",
    "write_json",
]
