#!/usr/bin/env bash
# The whole product on the starter model. Each line printed with a "+" is a command to type.
# What is already done is not done again: run it twice, or after Ctrl-C.
set -euo pipefail
out=runs/demo
mkdir -p "$out"
step() { printf '\n+ %s\n' "$*"; "$@"; }

step recast-train profile starter-recast --out "$out/profile.json"
step recast-train weights "$out/profile.json" --budget composition=1 --budget ocr=1 \
  --budget alignment=1 --budget finish=1 --plot "$out/weights.png"
step recast-train run starter-static --out "$out/static"
step recast-train run starter-recast --out "$out/recast" --set "credit.profile=$out/profile.json"
step recast-eval score starter "$out/static" "$out/recast" --prompts starter-demo \
  --images-per-prompt 2 --out "$out/eval"
step recast-eval judge --pairwise starter static recast --out "$out/eval"
step recast-eval audit "$out/eval"
step recast-eval report "$out/static" "$out/recast" "$out/eval" --out "$out/report.html"
printf '\nOpen %s in a browser.\n' "$out/report.html"
