/* limits.c - what this machine can do at most: fused multiply-adds, reading memory, and a triad, on all cores. The threads are not the
 * library's, because the library is what is measured. */
#define _GNU_SOURCE /* cpu_set_t */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>

#include "bench/bench.h"
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { MOST = 256 };

static cpu_set_t allowed; /* before any thread was bound to a core */
static int cores;

int bench_cores(void) {
    if (!cores && sched_getaffinity(0, sizeof allowed, &allowed) == 0) cores = CPU_COUNT(&allowed);
    if (cores < 1) cores = 1;
    if (cores > MOST) cores = MOST;
    return cores;
}

void bench_bind(void) {
    (void)bench_cores();
    rein_bind_threads();
}

/* --------------------------------------------------------------------------------------------------------------------- threads */

typedef struct share {
    void (*work)(int thread, int threads);
    int thread;
    pthread_t id;
    double began, ended;
} share;

static pthread_barrier_t start_line;

static void *do_share(void *argument) {
    share *s = argument;
    pthread_barrier_wait(&start_line);
    s->began = bench_now();
    s->work(s->thread, cores);
    s->ended = bench_now();
    return NULL;
}

/* Binds a new thread to the place-th core: by default it would share the core of the thread that creates it. */
static void set_core(pthread_attr_t *attributes, int place) {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && place-- == 0) CPU_SET(cpu, &one);
    if (CPU_COUNT(&one)) (void)pthread_attr_setaffinity_np(attributes, sizeof one, &one);
}

/* Seconds from the first thread that begins to the last one that ends: a thread that waits for its core may begin late. */
static double seconds_of(void (*work)(int thread, int threads)) {
    static share shares[MOST];
    const int n = bench_cores();
    if (pthread_barrier_init(&start_line, NULL, (unsigned)n)) bench_give_up("a barrier cannot be made");
    for (int i = 0; i < n; i++) {
        pthread_attr_t attributes;
        shares[i] = (share){.work = work, .thread = i};
        if (i == 0) continue; /* this thread */
        pthread_attr_init(&attributes);
        set_core(&attributes, i);
        if (pthread_create(&shares[i].id, &attributes, do_share, &shares[i])) bench_give_up("a thread cannot be started");
        pthread_attr_destroy(&attributes);
    }
    do_share(&shares[0]);
    double began = shares[0].began, ended = shares[0].ended;
    for (int i = 1; i < n; i++) {
        pthread_join(shares[i].id, NULL);
        began = fmin(began, shares[i].began), ended = fmax(ended, shares[i].ended);
    }
    pthread_barrier_destroy(&start_line);
    return ended - began;
}

/* ------------------------------------------------------------------------------------------------- loops of each instruction set */

/* One instruction set's loops. multiply does TIMES rounds of so many operations; read takes whole kilobytes; triad computes
 * a = b + c / 2 for a multiple of 4 numbers. */
typedef struct loops {
    rein_isa isa;
    double operations;
    void (*multiply)(float x);
    void (*read)(const char *from, size_t bytes);
    void (*triad)(float *a, const float *b, const float *c, size_t n);
} loops;

enum { TIMES = 1500000, CHAINS = 12 }; /* chains of dependent operations, enough to keep every unit busy */

static volatile float kept; /* results go here, so that the compiler cannot remove the loops */

static void multiply_ref(float x) {
    float sums[4] = {1, 2, 3, 4};
    for (int n = 0; n < TIMES; n++)
        for (int i = 0; i < 4; i++) sums[i] = fmaf(sums[i], x, 1e-3f);
    kept = sums[0] + sums[1] + sums[2] + sums[3];
}

static void read_ref(const char *from, size_t bytes) {
    uint64_t sums[32] = {0}, line[32];
    for (size_t at = 0; at < bytes; at += sizeof line) {
        memcpy(line, from + at, sizeof line);
        for (int i = 0; i < 32; i++) sums[i] ^= line[i];
    }
    for (int i = 1; i < 32; i++) sums[0] ^= sums[i];
    kept = (float)sums[0];
}

static void triad_ref(float *a, const float *b, const float *c, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] = b[i] + 0.5f * c[i];
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void multiply_avx2(float x) {
    const __m256 factor = _mm256_set1_ps(x), term = _mm256_set1_ps(1e-3f);
    __m256 sums[CHAINS];
    for (int i = 0; i < CHAINS; i++) sums[i] = _mm256_set1_ps((float)i);
    for (int n = 0; n < TIMES; n++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
    for (int i = 0; i < CHAINS; i++) kept = sums[i][0];
}

__attribute__((target("avx512f"))) static void multiply_avx512(float x) {
    const __m512 factor = _mm512_set1_ps(x), term = _mm512_set1_ps(1e-3f);
    __m512 sums[CHAINS];
    for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < TIMES; n++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
    for (int i = 0; i < CHAINS; i++) kept = sums[i][0];
}

/* Reads at four places at a time: one core then gets a quarter more from memory than at one place. */
__attribute__((target("avx2"))) static void read_avx2(const char *from, size_t bytes) {
    const size_t part = bytes / 4;
    __m256i sums[8];
    for (int i = 0; i < 8; i++) sums[i] = _mm256_setzero_si256();
    for (size_t at = 0; at < part; at += 64)
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; i++) {
            const char *line = from + i / 2 * part + at + i % 2 * 32;
            sums[i] = _mm256_xor_si256(sums[i], _mm256_load_si256((const __m256i *)(const void *)line));
        }
    for (int i = 0; i < 8; i++) kept = (float)sums[i][0];
}

/* The stores go past the caches. */
static void triad_stream(float *a, const float *b, const float *c, size_t n) {
    const __m128 half = _mm_set1_ps(0.5f);
    for (size_t i = 0; i < n; i += 4) _mm_stream_ps(a + i, _mm_add_ps(_mm_load_ps(b + i), _mm_mul_ps(half, _mm_load_ps(c + i))));
}
#endif

static const loops LOOPS[] = {
#ifdef __x86_64__
    {REIN_ISA_AVX512, 2 * 16 * CHAINS, multiply_avx512, read_avx2, triad_stream},
    {REIN_ISA_AVX2, 2 * 8 * CHAINS, multiply_avx2, read_avx2, triad_stream},
#endif
    {REIN_ISA_REF, 2 * 4, multiply_ref, read_ref, triad_ref},
};

/* Those of the best instruction set of this machine. */
static const loops *best_loops(void) {
    const loops *found = LOOPS;
    while (!rein_isa_available(found->isa)) found++;
    return found;
}

/* ------------------------------------------------------------------------------------------------------------------ arithmetic */

static void multiply(int thread, int threads) {
    (void)threads;
    best_loops()->multiply(0.9f + 0.0001f * (float)thread);
}

double bench_fma(void) {
    const double operations = best_loops()->operations * TIMES;
    return (double)bench_cores() * operations / seconds_of(multiply);
}

/* ---------------------------------------------------------------------------------------------------------------------- memory */

enum { READ = 256 << 20, STREAM = 64 << 20 }; /* bytes; STREAM of each of the triad's three arrays */

static char *read_from;
static float *stream_a, *stream_b, *stream_c;

/* The thread's share of some bytes, in whole kilobytes: where it begins, and its length. */
static size_t piece_of(size_t *length, size_t bytes, int thread, int threads) {
    const size_t lines = bytes / 1024, from = lines * (size_t)thread / (size_t)threads,
                 to = lines * (size_t)(thread + 1) / (size_t)threads;
    *length = 1024 * (to - from);
    return 1024 * from;
}

static void read_piece(int thread, int threads) {
    size_t length;
    const size_t from = piece_of(&length, READ, thread, threads);
    best_loops()->read(read_from + from, length);
}

double bench_read(void) {
    if (!read_from) {
        read_from = bench_get(READ);
        memset(read_from, 1, READ);
    }
    return READ / seconds_of(read_piece);
}

static void triad_piece(int thread, int threads) {
    size_t length;
    const size_t from = piece_of(&length, STREAM, thread, threads) / sizeof *stream_a;
    best_loops()->triad(stream_a + from, stream_b + from, stream_c + from, length / sizeof *stream_a);
}

double bench_triad(void) {
    if (!stream_a) {
        stream_a = bench_get(STREAM), stream_b = bench_get(STREAM), stream_c = bench_get(STREAM);
        for (size_t i = 0; i < STREAM / sizeof *stream_a; i++) stream_a[i] = 0, stream_b[i] = 1, stream_c[i] = 2;
    }
    return 3.0 * STREAM / seconds_of(triad_piece);
}

/* ------------------------------------------------------------------------------------------------------------------------ rows */

void bench_machine(bench_figures *figures, const bench_row *row, const bench_job *job) {
    for (uint64_t i = 0; i < job->rounds; i++) figures->value = fmax(figures->value, row->machine() / 1e9);
}
