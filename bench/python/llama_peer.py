"""llama.cpp as a peer of `rein bench`: decoding and prompts, on a GGUF file of random weights in f16, as people keep a
model that they run on a CPU (bf16 is rein's), in f32, or in the blocks of rein's row.

    python bench/python/llama_peer.py ROW

The library is called directly, not through its Python class: a batch of one token for each sequence, its own sampler
drawing from the whole distribution. It must have been compiled for this machine (scripts/bench-peers.sh); its threads
are OpenMP's, each on a core of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import tempfile
from functools import partial
from pathlib import Path

from peer import CORES, SHAPES, answer, best, row_of, tune

if __name__ == "__main__":
    tune()

import gguf
import llama_cpp as llama
import numpy as np

PROMPT, STEPS, PREFILL = 16, 24, 512
Q8_0, Q4_0 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0
FILE_TYPES = {
    np.float32: gguf.LlamaFileType.ALL_F32,
    np.float16: gguf.LlamaFileType.MOSTLY_F16,
    Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0,
    Q4_0: gguf.LlamaFileType.MOSTLY_Q4_0,
}


def is_gemma(shape):
    return "sliding_window" in shape


def head_dim(shape):
    return shape.get("head_dim", shape["hidden_size"] // shape["num_attention_heads"])


def tensors(shape, dtype):
    """(name, array) of every weight, in llama.cpp's names; the head is the embedding."""
    generator = np.random.default_rng(0)
    hidden, middle, width = shape["hidden_size"], shape["intermediate_size"], head_dim(shape)
    q, kv = width * shape["num_attention_heads"], width * shape["num_key_value_heads"]
    sizes = {
        "attn_q": (q, hidden),
        "attn_k": (kv, hidden),
        "attn_v": (kv, hidden),
        "attn_output": (hidden, q),
        "ffn_gate": (middle, hidden),
        "ffn_up": (middle, hidden),
        "ffn_down": (hidden, middle),
    }
    norms = {"attn_norm": hidden, "ffn_norm": hidden}
    if is_gemma(shape):
        norms |= {"post_attention_norm": hidden, "post_ffw_norm": hidden, "attn_q_norm": width, "attn_k_norm": width}

    def weight(size):
        numbers = generator.random(size, np.float32) * 0.04 - 0.02
        return gguf.quantize(numbers, dtype) if dtype in (Q8_0, Q4_0) else numbers.astype(dtype)

    yield "token_embd.weight", weight((shape["vocab_size"], hidden))
    yield "output_norm.weight", np.ones(hidden, np.float32)
    for layer in range(shape["num_hidden_layers"]):
        for name, size in norms.items():
            yield f"blk.{layer}.{name}.weight", np.ones(size, np.float32)
        for name, size in sizes.items():
            yield f"blk.{layer}.{name}.weight", weight(size)


def write_model(path, shape, dtype):
    writer = gguf.GGUFWriter(path, "gemma3" if is_gemma(shape) else "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(shape["hidden_size"])
    writer.add_block_count(shape["num_hidden_layers"])
    writer.add_feed_forward_length(shape["intermediate_size"])
    writer.add_head_count(shape["num_attention_heads"])
    writer.add_head_count_kv(shape["num_key_value_heads"])
    if is_gemma(shape):
        writer.add_key_length(head_dim(shape))
        writer.add_value_length(head_dim(shape))
        writer.add_sliding_window(shape["sliding_window"])
    writer.add_rope_dimension_count(head_dim(shape))
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(FILE_TYPES[dtype])
    for name, array in tensors(shape, dtype):
        writer.add_tensor(name, array, raw_dtype=dtype if array.dtype == np.uint8 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load(shape, dtype):
    """The file is gone as soon as it is mapped, whatever happens then."""
    with tempfile.TemporaryDirectory(prefix="rein-bench-") as directory:
        path = Path(directory) / "model.gguf"
        write_model(path, SHAPES[shape], dtype)
        model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
    if not model:
        raise RuntimeError("llama.cpp does not load the model")
    return model


@contextlib.contextmanager
def opened(shape, dtype, sequences):
    """A context for so many sequences."""
    model = load(shape, dtype)
    params = llama.llama_context_default_params()
    params.n_ctx = max(PREFILL, sequences * 256)
    params.n_batch = params.n_ubatch = PREFILL
    params.n_seq_max = sequences
    params.n_threads = params.n_threads_batch = CORES
    context = llama.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError("llama.cpp makes no context")
    yield context
    llama.llama_free(context)
    llama.llama_model_free(model)


class Batch:
    """Tokens to compute: (id, position, sequence, whether its logits are wanted) each."""

    def __init__(self, capacity):
        self.batch = llama.llama_batch_init(capacity, 0, 1)

    def compute(self, context, tokens):
        self.batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wanted) in enumerate(tokens):
            self.batch.token[i], self.batch.pos[i] = token, position
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
            self.batch.logits[i] = wanted
        status = llama.llama_decode(context, self.batch)
        if status != 0:
            raise RuntimeError(f"llama_decode: {status}")


def id_at(shape, i):
    return i * 7919 % SHAPES[shape]["vocab_size"]


def decode(shape, sequences, dtype):
    """tok/s of the best step: one token for each sequence, computed and drawn."""
    with opened(shape, dtype, sequences) as context:
        batch = Batch(max(PROMPT, sequences))
        sampler = llama.llama_sampler_init_dist(0)
        for s in range(sequences):
            batch.compute(context, [(id_at(shape, i), i, s, i == PROMPT - 1) for i in range(PROMPT)])
        ids, position = [1] * sequences, PROMPT

        def step():
            nonlocal ids, position
            batch.compute(context, [(token, position, s, True) for s, token in enumerate(ids)])
            ids = [llama.llama_sampler_sample(sampler, context, s) for s in range(sequences)]
            position += 1

        return sequences / best(step, rounds=2 * STEPS if sequences == 1 else STEPS)


def prefill(shape, dtype):
    """tok/s of a prompt; logits of its last token only."""
    with opened(shape, dtype, 1) as context:
        batch = Batch(PREFILL)

        def work():
            llama.llama_memory_clear(llama.llama_get_memory(context), True)
            batch.compute(context, [(id_at(shape, i), i, 0, i == PREFILL - 1) for i in range(PREFILL)])
            llama.llama_synchronize(context)

        return PREFILL / best(work, rounds=5)


@llama.llama_log_callback
def say_nothing(level, text, data):
    pass


def main():
    rows = {f"decode smollm {n}": partial(decode, "smollm", n, np.float16) for n in (1, 16, 64)}
    rows |= {f"decode gemma {n}": partial(decode, "gemma", n, np.float16) for n in (1, 64)}
    rows["decode smollm f32 1"] = partial(decode, "smollm", 1, np.float32)
    rows["prefill smollm"] = partial(prefill, "smollm", np.float16)
    for name, blocks in (("q8_0", Q8_0), ("q4_0", Q4_0)):
        rows |= {f"decode smollm {name} {n}": partial(decode, "smollm", n, blocks) for n in (1, 16, 64)}
        rows[f"prefill smollm {name}"] = partial(prefill, "smollm", blocks)
    llama.llama_log_set(say_nothing, ctypes.c_void_p())
    llama.llama_backend_init()
    answer(row_of(), rows)


if __name__ == "__main__":
    main()
