#!/usr/bin/env bash
# The whole product on the starter model. Each line printed with a "+" is a command to type.
# What is already done is not done again: run it twice, or after Ctrl-C.
set -euo pipefail
out=runs/demo
mkdir -p "$out"
say() { printf '\n+ %s\n' "$*"; }
step() { say "$@"; "$@"; }
resume() { [ -d "$1" ] && echo --resume || true; }

# Two runs, one thread each, side by side: they differ in credit alone.
static="recast-train run starter-static --out $out/static $(resume "$out/static")"
recast="recast-train run starter-recast --out $out/recast $(resume "$out/recast")"
say "$static"; $static & first=$!
say "$recast"; $recast & second=$!
trap 'wait; exit 130' INT  # the terminal has told them already
trap 'kill -TERM $first $second 2>/dev/null; wait; exit 143' TERM
failed=0  # the other one is waited for all the same
wait $first || failed=$?
wait $second || failed=$?
[ $failed = 0 ] || exit $failed

step recast-eval score base=starter "$out/static" "$out/recast" \
  --prompts starter-geneval,starter-ocr --images-per-prompt 2 --out "$out/eval"
step recast-eval judge --pairwise base static recast --out "$out/eval"
step recast-eval audit "$out/eval"
step recast-eval report "$out/static" "$out/recast" "$out/eval" --out "$out/report.html"
printf '\nOpen %s in a browser.\n' "$out/report.html"
