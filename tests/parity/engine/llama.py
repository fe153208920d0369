"""llama.py - log-probabilities by llama.cpp, called through the C functions of llama-cpp-python: keys and values in
f32, no flash attention."""

import contextlib
import ctypes

import llama_cpp
import numpy as np
import torch

F32 = 0  # of ggml


@contextlib.contextmanager
def opened(path, tokens):
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    assert model, f"llama.cpp does not load {path}"
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = params.n_outputs_max = max(tokens, 64)
    params.n_seq_max = params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = F32
    params.flash_attn_type = 0
    context = llama_cpp.llama_init_from_model(model, params)
    assert context
    yield model, context
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)


def put_adapter(model, context, path):
    adapter = llama_cpp.llama_adapter_lora_init(model, str(path).encode())
    assert adapter, f"llama.cpp does not load {path}"
    adapters = (ctypes.c_void_p * 1)(ctypes.cast(adapter, ctypes.c_void_p))
    scales = (ctypes.c_float * 1)(1.0)
    kind = llama_cpp.llama_set_adapters_lora.argtypes[1]
    assert llama_cpp.llama_set_adapters_lora(context, ctypes.cast(adapters, kind), 1, scales) == 0


def log_probs(path, ids, adapter=None):
    """Of the tokens of one sequence; 0 for the first, as the engine has it."""
    with opened(path, len(ids)) as (model, context):
        if adapter:
            put_adapter(model, context, adapter)
        vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, i, 1, 0
            batch.logits[i] = 1
        assert llama_cpp.llama_decode(context, batch) == 0
        rows = [
            np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (vocabulary,)).copy()
            for i in range(len(ids))
        ]
        llama_cpp.llama_batch_free(batch)
    x = torch.from_numpy(np.stack(rows)).double().log_softmax(-1)
    found = torch.zeros(len(ids), dtype=torch.float64)
    found[1:] = x[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    return found
