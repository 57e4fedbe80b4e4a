"""Chunks a second of onnxruntime on the plain graph: the same words, lengths and batch as the example `throughput`."""

import json
import sys
import time

import numpy
import onnxruntime
import tokenizers

MASK = (1 << 64) - 1
WORDS = """the server returned an unexpected status while we were migrating customer records to another region and nobody noticed
until Tuesday because alerts had been silenced for maintenance deployment of version was rolled back after review with Katharina
from infrastructure team who suggested a smaller change first in staging""".split()


def chunk(number):
    seed = (number * 0x9E3779B97F4A7C15 & MASK) | 1
    text = ""
    while len(text) < 512:
        seed = (seed * 6364136223846793005 + 1442695040888963407) & MASK
        text += WORDS[(seed >> 33) % len(WORDS)] + ("." if seed >> 60 == 0 else " ")
    return text[:512]


def main(model, tokenizer):
    tokenizer = tokenizers.Tokenizer.from_file(tokenizer)
    tokenizer.enable_truncation(256)
    tokenizer.no_padding()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    texts = [chunk(number) for number in range(64)]

    def run():
        encoded = sorted((tokenizer.encode(text) for text in texts), key=lambda one: len(one.ids))
        for start in range(0, len(encoded), 8):
            batch = encoded[start : start + 8]
            longest = max(len(one.ids) for one in batch)
            ids = numpy.zeros((len(batch), longest), dtype=numpy.int64)
            mask = numpy.zeros_like(ids)
            for row, one in enumerate(batch):
                ids[row, : len(one.ids)] = one.ids
                mask[row, : len(one.ids)] = 1
            kinds = {kind.name: kind.type for kind in session.get_inputs()}
            feed = {}
            for name in names:
                value = mask if "mask" in name else numpy.zeros_like(ids) if "type" in name else ids
                feed[name] = value.astype(numpy.int32) if "int32" in kinds[name] else value.astype(numpy.float32) if "float" in kinds[name] else value
            states = session.run(None, feed)[0]
            weights = mask[:, :, None].astype(numpy.float32)
            pooled = (states * weights).sum(1) / weights.sum(1)
            pooled / numpy.linalg.norm(pooled, axis=1, keepdims=True)

    run()
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        run()
        best = max(best, len(texts) / (time.perf_counter() - start))
    print(json.dumps({"chunks_per_s": best}))


main(sys.argv[1], sys.argv[2])
