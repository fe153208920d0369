"""ranks_link.py LIBRARY: the constants of the network between ranks, measured with the calls that rein makes. Run it
as rein is run:

    mpirun -n 4 --host … python3 bench/ranks_link.py build-mpi/librein.so

LIBRARY is a librein.so that was built with MPI. Rank 0 prints one JSON object: seconds of a gather of 16 bytes
(`latency`), of an exchange of 16 bytes with each rank (`latency_exchange`), and the bytes that a rank sends in a
second, in gathers and in exchanges of long pieces. Medians."""

import ctypes
import json
import statistics
import sys
import time


class Transport(ctypes.Structure):
    pass


POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
Sizes = ctypes.POINTER(SIZE)
Broadcast = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, SIZE, SIZE, POINTER)
Gather = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, POINTER, Sizes, POINTER)
Exchange = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, Sizes, POINTER, Sizes, POINTER)
EndAll = ctypes.CFUNCTYPE(None, POINTER, ctypes.c_int)
Close = ctypes.CFUNCTYPE(None, POINTER)
EndExchange = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER)
Transport._fields_ = [  # rein_transport of include/rein/ranks.h
    ("context", POINTER),
    ("rank", SIZE),
    ("size", SIZE),
    ("broadcast", Broadcast),
    ("gather", Gather),
    ("exchange", Exchange),
    ("end_all", EndAll),
    ("close", Close),
    ("begin_exchange", Exchange),
    ("end_exchange", EndExchange),
]
SMALL, PIECE = 16, 1 << 20  # bytes of an announcement, and of a long piece (REIN_RANKS_PIECE)
STRETCH = 1 << 18  # bytes to each rank in an exchange of gradients


def must(status):
    if status:
        raise SystemExit(f"the transport failed with status {status}")


def main():
    library = ctypes.CDLL(sys.argv[1])
    t = Transport()
    must(library.rein_transport_mpi(ctypes.byref(t), None))
    n = t.size
    room = [ctypes.create_string_buffer(n * PIECE) for _ in range(3)]

    def gather(size):
        must(t.gather(t.context, room[0], room[2], (SIZE * n)(*[size] * n), None))

    def exchanges(size, count):  # two at a time, as gradients travel
        sizes = (SIZE * n)(*[size] * n)
        for i in range(count + 1):
            if i < count:
                must(t.begin_exchange(t.context, room[i % 2], sizes, room[2], sizes, None))
            if i > 0:
                must(t.end_exchange(t.context, None))

    def exchange(size):
        exchanges(size, 1)

    def series(size):
        exchanges(size, 4 * long)

    def seconds(call, size, repeats, rounds):
        found = []
        for _ in range(rounds):
            gather(SMALL)
            began = time.monotonic()
            for _ in range(repeats):
                call(size)
            found.append((time.monotonic() - began) / repeats)
        return statistics.median(found)

    long = max(4, 24 // n)
    seconds(gather, PIECE, 1, 2)  # connections are made, and buffers grow
    seconds(exchange, STRETCH, 1, 2)
    latency, latency_exchange = seconds(gather, SMALL, 50, 9), seconds(exchange, SMALL, 50, 9)
    of_gather, of_exchange = seconds(gather, PIECE, long, 5), seconds(series, STRETCH, 1, 5) / (4 * long)
    if t.rank == 0:
        figures = {
            "ranks": n,
            "latency": latency,
            "latency_exchange": latency_exchange,
            "bytes_per_second_gather": (n - 1) * PIECE / max(of_gather - latency, 1e-9),
            "bytes_per_second_exchange": (n - 1) * STRETCH / max(of_exchange, 1e-9),
        }
        print(json.dumps(figures))
    t.close(t.context)


main()
