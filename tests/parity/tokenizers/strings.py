"""Texts that tokenizers get wrong: the same ones for the same seed, on every machine."""

import random
import unicodedata

SPACES = " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2000\u2003\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"  # noqa: E501
DIGITS = "0123456789٠١٢३४५௧௨¼½²³ⅣⅫ①⑳㊿𝟗𝟘𐄇〇〡"
CONTRACTIONS = [
    "'s",
    "'S",
    "'t",
    "'T",
    "'re",
    "'RE",
    "'Re",
    "'ve",
    "'vE",
    "'m",
    "'ll",
    "'LL",
    "'d",
    "’s",
    "'ſ",
    "'\u017f",
    "''s",
    "'x",
    "K",
    "\u212a",
]
MARKS = "\u0300\u0301\u0302\u0308\u0323\u0327\u0338\u0345\u034f\u0591\u05b0\u064b\u093c\u0eb8\u0f71\u1dc4\u20d0\u3099\u309a\ufe20\U0001d165"  # noqa: E501
COMPOSING = "aeiounAEIOUcCsSzZdDyY\u00e9\u1e69\u1e0b\u212b\u2126\u0958\u09dc\u0b5c\ufb1d\ufb2a\uf900\U0002f800\u2adc\u1f71\u0340\u0341\u0343\u0344\u0374\u037e\u0387"  # noqa: E501
JAMO = "\u1100\u1101\u1112\u115f\u1160\u1161\u1175\u11a7\u11a8\u11c2\uac00\uac01\ud7a3\ua960\ud7b0\ud7cb"
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪", "❤️", "🏳️‍🌈", "1️⃣", "\U000e0067", "☕", "\u200d", "\ufe0f"]
WORDS = "the quick brown fox Hello WORLD don't I'm you'll they've we're x=1 if (a<b) return; http://ex.am/ple?q=1 naïve Straße ﬁne Ǆ".split()  # noqa: E501
CJK = "漢字かなカナ한글中文，。！？「」々〆ヶ﨑龥ㄅ"
OTHER = "αβγΩабвЖھخالعربيةעבריתहिन्दीไทยລາວမြန်မာភាសាამხარიԱմ𐍈𝔘𝒳𐐷ʼˈªºⅷⓐ㋿"
SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "<|reserved_special_token_1|>",
    "<|reserved_special_token_10|>",
    "<|im_start",
    "|im_end|>",
    "<|IM_END|>",
    "<|im_end|",
    "<s>",
    "</s>",
    "<unk>",
    "<0x0A>",
    "▁",
    "Ġ",
    "Ċ",
    "<|",
    "|>",
    "<|endoftext|",
    "<|fim_prefix|>",
    "<|vision_start|>",
]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»“”‘’–—…·¿¡§¶†‡•‰€£¥©®™°±×÷≤≥≠∞√∑∫")
CONTROL = "\x00\x01\x07\x08\x0e\x1b\x7f\x80\x9f\xad\u200c\u200e\u202e\u2066\ue000\ufffd\ufffe\uffff\U0010ffff\U000f0000"


def any_character(draw):
    while True:
        character = chr(
            draw.choice(
                [draw.randrange(0x80), draw.randrange(0x800), draw.randrange(0x10000), draw.randrange(0x110000)]
            )
        )
        if unicodedata.category(character) != "Cs":
            return character


def assigned_character(draw):
    while True:
        character = any_character(draw)
        if unicodedata.category(character) != "Cn":
            return character


def atom(draw):
    kind = draw.randrange(16)
    if kind == 0:
        return draw.choice(SPACES) * draw.choice([1, 1, 1, 2, 3, 7])
    if kind == 1:
        return "".join(draw.choice(SPACES[:4]) for _ in range(draw.randrange(1, 6)))
    if kind == 2:
        return "".join(draw.choice(DIGITS[:10]) for _ in range(draw.randrange(1, 9)))
    if kind == 3:
        return draw.choice(DIGITS)
    if kind == 4:
        return draw.choice(CONTRACTIONS)
    if kind == 5:
        return draw.choice(COMPOSING) + "".join(draw.choice(MARKS) for _ in range(draw.randrange(4)))
    if kind == 6:
        return "".join(draw.choice(JAMO) for _ in range(draw.randrange(1, 4)))
    if kind == 7:
        return draw.choice(EMOJI)
    if kind in (8, 9):
        return draw.choice(WORDS)
    if kind == 10:
        return "".join(draw.choice(CJK) for _ in range(draw.randrange(1, 5)))
    if kind == 11:
        return draw.choice(OTHER)
    if kind == 12:
        return draw.choice(SPECIALS)
    if kind == 13:
        return "".join(draw.choice(PUNCTUATION) for _ in range(draw.randrange(1, 4)))
    if kind == 14:
        return draw.choice(CONTROL)
    return assigned_character(draw)


def text(draw):
    kind = draw.randrange(100)
    if kind < 80:
        return "".join(atom(draw) + (" " if draw.random() < 0.3 else "") for _ in range(draw.randrange(1, 14)))
    if kind < 90:
        return "".join(assigned_character(draw) for _ in range(draw.randrange(1, 20)))
    if kind < 96:
        return draw.choice(WORDS + EMOJI + SPECIALS + [" ", "\n", "a", "0", "ab", "\u0301", "한"]) * draw.randrange(
            1, 60
        )
    if kind < 98:
        return "".join(draw.choice("abcdefgh") for _ in range(draw.randrange(1, 400)))
    return " " * draw.randrange(1, 200) + atom(draw) + "\n" * draw.randrange(20)


def texts(count, seed=1):
    draw = random.Random(seed)
    return [""] + [text(draw) for _ in range(count - 1)]
