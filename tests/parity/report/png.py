"""PNG as Chromium writes it, to an array of colours: eight bits, RGB or RGBA, not interlaced."""

import struct
import zlib

import numpy as np


def paeth(left, up, corner):
    estimate = left + up - corner
    distances = abs(estimate - left), abs(estimate - up), abs(estimate - corner)
    return (left, up, corner)[distances.index(min(distances))]


def unfilter_slowly(kind, row, above, channels):
    """Average and Paeth look at what was just written: byte by byte."""
    row, above = row.tolist(), above.tolist()
    for i in range(len(row)):
        left = row[i - channels] if i >= channels else 0
        corner = above[i - channels] if i >= channels else 0
        row[i] = (row[i] + ((left + above[i]) // 2 if kind == 3 else paeth(left, above[i], corner))) % 256
    return np.array(row, dtype=np.uint8)


def decode(data):
    """[height, width, 3]"""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind, *_, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    assert depth == 8 and kind in (2, 6) and not interlaced
    at, packed, channels = 8, b"", 3 if kind == 2 else 4
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        packed += data[at + 8 : at + 8 + length] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(height, 1 + width * channels)
    image, above = np.empty((height, width * channels), dtype=np.uint8), np.zeros(width * channels, dtype=np.uint8)
    for y, (filtered, row) in enumerate(zip(rows[:, 0], rows[:, 1:])):
        if filtered == 1:
            row = np.add.accumulate(row.reshape(width, channels), axis=0, dtype=np.uint8).reshape(-1)
        elif filtered == 2:
            row = row + above
        elif filtered > 2:
            row = unfilter_slowly(filtered, row, above, channels)
        image[y] = above = row
    return image.reshape(height, width, channels)[:, :, :3]


def near(image, colour, distance=40):
    """Where a colour is, as booleans; "#2b5fd0"."""
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return np.abs(image.astype(int) - wanted).sum(axis=2) <= distance
