"""The command line in a manifest: readable anywhere, and nobody's name in it."""

from pathlib import Path

import pytest

from recast_eval.records import Manifest, read_json, write_json

HOME = str(Path("~").expanduser())


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("runs/\udcc3\udca9", "runs/\u00e9"),  # an accent as LC_ALL=C hands it over
        ("\udcff", "\ufffd"),
        (f"{HOME}/runs/x", "~/runs/x"),
        (f"--out={HOME}/x/", "--out=~/x/"),
        (HOME, "~"),
        (f"{HOME}stead/x", f"{HOME}stead/x"),
        ("runs/x", "runs/x"),
    ],
)
def test_words(word: str, kept: str, tmp_path: Path) -> None:
    made = Manifest(command=["recast-train", word], versions={}, hardware={}, seeds={})
    write_json(tmp_path / "manifest.json", made)
    assert read_json(tmp_path / "manifest.json", Manifest).command == ["recast-train", kept]
