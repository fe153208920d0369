"""Files between Hugging Face's safetensors and the C reader and writer, bit for bit in both directions."""

import json
import struct

import numpy as np
import pytest
import reader
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.uint64: "U64",
    torch.complex64: "C64",
}
SHAPES = [[], [1], [7], [3, 5], [2, 3, 4], [0, 4], [1, 1, 1, 1, 1, 1, 1, 2]]


def random(shape, dtype, seed):
    n = int(np.prod(shape)) * torch.empty([], dtype=dtype).element_size()
    raw = np.random.default_rng(seed).integers(0, 2 if dtype == torch.bool else 256, n).astype(np.uint8)
    return torch.from_numpy(raw).view(dtype).reshape(shape) if n else torch.empty(shape, dtype=dtype)


def all_types():
    return {f"{NAMES[d]}.{'x'.join(map(str, s))}": random(s, d, i) for i, d in enumerate(NAMES) for s in SHAPES}


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def test_c_reads_what_safetensors_wrote(tmp_path):
    made = all_types()
    safetensors.torch.save_file(made, tmp_path / "f.safetensors", metadata={"format": "pt"})
    read = reader.tensors(tmp_path / "f.safetensors")
    assert read.keys() == made.keys()
    for name, tensor in made.items():
        assert read[name]["dtype"] == NAMES[tensor.dtype]
        assert read[name]["shape"] == list(tensor.shape)
        assert bytes.fromhex(read[name]["hex"]) == raw(tensor), name


def test_safetensors_reads_what_c_wrote(tmp_path):
    made = all_types()
    safetensors.torch.save_file(made, tmp_path / "f.safetensors", metadata={"format": "pt"})
    reader.run("copy", tmp_path / "f.safetensors", tmp_path / "g.safetensors")
    read = safetensors.torch.load_file(tmp_path / "g.safetensors")
    assert read.keys() == made.keys()
    for name, tensor in made.items():
        assert read[name].dtype == tensor.dtype and read[name].shape == tensor.shape
        assert raw(read[name]) == raw(tensor), name
    with safetensors.safe_open(tmp_path / "g.safetensors", "pt") as f:
        assert f.metadata() == {"format": "pt"}


def test_numpy_reads_what_c_wrote(tmp_path):
    made = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(3, dtype=np.float16)}
    safetensors.numpy.save_file(made, tmp_path / "f.safetensors")
    reader.run("copy", tmp_path / "f.safetensors", tmp_path / "g.safetensors")
    read = safetensors.numpy.load_file(tmp_path / "g.safetensors")
    for name in made:
        np.testing.assert_array_equal(read[name], made[name])


@pytest.mark.parametrize("seed", range(20))
def test_c_writes_the_same_bytes(tmp_path, seed):
    """Any set of tensors of any types: the file is the reference writer's, byte for byte."""
    rng = np.random.default_rng(seed)
    kinds = list(NAMES)
    letters = list('abcXYZ019._-/\\"é\u2028\n\t\x01 ')
    made = {}
    for i in range(int(rng.integers(1, 30))):
        name = "".join(rng.choice(letters, int(rng.integers(1, 12))))
        made[name] = random(list(rng.integers(0, 4, int(rng.integers(0, 4)))), kinds[int(rng.integers(len(kinds)))], i)
    safetensors.torch.save_file(made, tmp_path / "f.safetensors", metadata={"format": "pt"})
    reader.run("copy", tmp_path / "f.safetensors", tmp_path / "g.safetensors")
    assert (tmp_path / "g.safetensors").read_bytes() == (tmp_path / "f.safetensors").read_bytes()


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F32", shape=(1,), begin=0, end=4):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


BROKEN = {
    "empty": b"",
    "short": b"\x01\x00",
    "no header": struct.pack("<Q", 0),
    "header beyond the file": struct.pack("<Q", 9) + b"{}",
    "header of 100 MB and one": struct.pack("<Q", 100_000_001) + b"{}",
    "not an object": file_of(b"[]"),
    "not JSON": file_of(b"{x}"),
    "not UTF-8": file_of(b'{"\xff":1}'),
    "unknown type": file_of({"a": entry("F99")}, bytes(4)),
    "overflow": file_of({"a": entry(shape=(2**40, 2**40))}, bytes(4)),
    "wrong size": file_of({"a": entry(shape=(2,))}, bytes(4)),
    "hole": file_of({"a": entry(begin=4, end=8)}, bytes(8)),
    "overlap": file_of({"a": entry(shape=(2,), end=8), "b": entry(begin=4, end=8)}, bytes(8)),
    "trailing": file_of({"a": entry()}, bytes(5)),
    "cut": file_of({"a": entry()}, bytes(3)),
    "end before begin": file_of({"a": entry(begin=4, end=0)}, bytes(4)),
    "negative": file_of({"a": entry(shape=(-1,))}, bytes(4)),
    "metadata of a number": file_of({"__metadata__": {"a": 1}}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_both_refuse(tmp_path, name):
    path = tmp_path / "f.safetensors"
    path.write_bytes(BROKEN[name])
    with pytest.raises((safetensors.SafetensorError, ValueError, KeyError, OverflowError)):
        safetensors.torch.load_file(path)
    with pytest.raises(reader.Refused, match="f.safetensors"):
        reader.tensors(path)


def test_header_starts_with_a_brace(tmp_path):
    """The format's text says so; the reference reader takes a blank before it, and the C reader does not."""
    path = tmp_path / "f.safetensors"
    path.write_bytes(file_of(b" {}"))
    with pytest.raises(reader.Refused, match="does not start with {"):
        reader.tensors(path)


GOOD = {
    "blanks at the end": file_of(b"{}      "),
    "any order": file_of({"b": entry(begin=4, end=8), "a": entry()}, bytes(8)),
    "nothing in it": file_of({"a": entry(shape=(0,), end=0), "b": entry()}, bytes(4)),
    "not aligned": file_of(json.dumps({"a": entry()}).encode() + b" " * 3, bytes(4)),
    "unknown field": file_of({"a": entry() | {"more": 1}}, bytes(4)),
}


@pytest.mark.parametrize("name", GOOD)
def test_both_accept(tmp_path, name):
    path = tmp_path / "f.safetensors"
    path.write_bytes(GOOD[name])
    assert reader.tensors(path).keys() == safetensors.torch.load_file(path).keys()


@pytest.mark.parametrize("seed", range(200))
def test_agree_on_damaged_files(tmp_path, seed):
    """A bit of a good file changed at random: the C reader accepts nothing that the reference refuses, and what both
    accept is the same."""
    rng = np.random.default_rng(seed)
    made = {"a": torch.arange(4.0), "b": torch.arange(3, dtype=torch.bfloat16)}
    data = bytearray(safetensors.torch.save(made))
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    path = tmp_path / "f.safetensors"
    path.write_bytes(data)
    try:
        ours = reader.tensors(path)
    except reader.Refused:
        return
    theirs = safetensors.torch.load_file(path)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert bytes.fromhex(ours[name]["hex"]) == raw(tensor)


def test_shards_of_transformers(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        dtype=torch.float32,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    read = reader.tensors(tmp_path)
    assert read.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert bytes.fromhex(read[name]["hex"]) == raw(tensor)
    assert reader.run("check", tmp_path) == []
