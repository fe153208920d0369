/* limits.c - what this machine gives: fused multiply-adds, reading, and a triad, on all cores, with threads of our own: the library's
 * are what is measured. */
#define _GNU_SOURCE /* cpu_set_t */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>

#include "bench/bench.h"
#ifdef REIN_HAVE_AVX2
#include <immintrin.h>
#endif

enum { MOST = 256 };

static cpu_set_t allowed; /* before anything was bound */
static int cores;

int rein_bench_cores(void) {
    if (!cores && sched_getaffinity(0, sizeof allowed, &allowed) == 0) cores = CPU_COUNT(&allowed);
    if (cores < 1) cores = 1;
    if (cores > MOST) cores = MOST;
    return cores;
}

void rein_bench_bind(void) {
    (void)rein_bench_cores();
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
    s->began = rein_bench_now();
    s->work(s->thread, cores);
    s->ended = rein_bench_now();
    return NULL;
}

/* The place-th of the cores: a thread that is made inherits the one core of its maker otherwise. */
static void set_core(pthread_attr_t *attributes, int place) {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && place-- == 0) CPU_SET(cpu, &one);
    if (CPU_COUNT(&one)) (void)pthread_attr_setaffinity_np(attributes, sizeof one, &one);
}

/* Seconds that all cores take for their shares, from the first that begins: one that must wait for its core may begin when others end. */
static double seconds_of(void (*work)(int thread, int threads)) {
    static share shares[MOST];
    const int n = rein_bench_cores();
    if (pthread_barrier_init(&start_line, NULL, (unsigned)n)) rein_bench_give_up("a barrier cannot be made");
    for (int i = 0; i < n; i++) {
        pthread_attr_t attributes;
        shares[i] = (share){.work = work, .thread = i};
        if (i == 0) continue; /* ours */
        pthread_attr_init(&attributes);
        set_core(&attributes, i);
        if (pthread_create(&shares[i].id, &attributes, do_share, &shares[i])) rein_bench_give_up("a thread cannot be started");
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

/* ------------------------------------------------------------------------------------------------------------------ arithmetic */

static volatile float kept; /* so that nothing is left out as unused */

#ifdef REIN_HAVE_AVX2
enum { CHAINS = 12, TIMES = 3000000, OPERATIONS = 2 * 8 * CHAINS }; /* of one time */

__attribute__((target("avx2,fma"))) static void multiply_avx2(int thread) {
    __m256 sums[CHAINS];
    const __m256 x = _mm256_set1_ps(0.9f + 0.0001f * (float)thread), y = _mm256_set1_ps(1e-3f);
    float lanes[8];
    for (int i = 0; i < CHAINS; i++) sums[i] = _mm256_set1_ps((float)i);
    for (int n = 0; n < TIMES; n++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) sums[i] = _mm256_fmadd_ps(sums[i], x, y);
    for (int i = 1; i < CHAINS; i++) sums[0] = _mm256_add_ps(sums[0], sums[i]);
    _mm256_storeu_ps(lanes, sums[0]);
    kept = lanes[0];
}

/* As much work in half the times. */
__attribute__((target("avx512f"))) static void multiply_avx512(int thread) {
    __m512 sums[CHAINS];
    const __m512 x = _mm512_set1_ps(0.9f + 0.0001f * (float)thread), y = _mm512_set1_ps(1e-3f);
    for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < TIMES / 2; n++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_fmadd_ps(sums[i], x, y);
    for (int i = 1; i < CHAINS; i++) sums[0] = _mm512_add_ps(sums[0], sums[i]);
    kept = _mm512_cvtss_f32(sums[0]);
}
#else
enum { CHAINS = 4, TIMES = 3000000, OPERATIONS = 2 * CHAINS };
#endif

static void multiply(int thread, int threads) {
    (void)threads;
#ifdef REIN_HAVE_AVX2
    if (rein_isa_available(REIN_ISA_AVX512)) {
        multiply_avx512(thread);
        return;
    }
    if (rein_isa_available(REIN_ISA_AVX2)) {
        multiply_avx2(thread);
        return;
    }
#endif
    float sums[4] = {1, 2, 3, 4};
    const float x = 0.9f + 0.0001f * (float)thread;
    for (int n = 0; n < TIMES * (OPERATIONS / 8); n++)
        for (int i = 0; i < 4; i++) sums[i] = fmaf(sums[i], x, 1e-3f);
    kept = sums[0] + sums[1] + sums[2] + sums[3];
}

double rein_bench_fma(void) { return (double)rein_bench_cores() * OPERATIONS * (double)TIMES / seconds_of(multiply); }

/* ---------------------------------------------------------------------------------------------------------------------- memory */

enum { READ = 256 << 20, STREAM = 64 << 20 }; /* bytes; of each of the triad's three */

static char *read_from;
static float *stream_a, *stream_b, *stream_c;

/* Piece `thread` of n bytes, in whole kilobytes. */
static size_t piece_of(size_t *length, size_t bytes, int thread, int threads) {
    const size_t lines = bytes / 1024, from = lines * (size_t)thread / (size_t)threads,
                 to = lines * (size_t)(thread + 1) / (size_t)threads;
    *length = 1024 * (to - from);
    return 1024 * from;
}

#ifdef REIN_HAVE_AVX2
/* At four places at a time: one core gets a quarter more from memory so than at one. */
__attribute__((target("avx2"))) static void add_up_avx2(const char *from, size_t length) {
    const size_t part = length / 4;
    __m256i sums[8];
    for (int i = 0; i < 8; i++) sums[i] = _mm256_setzero_si256();
    for (size_t at = 0; at < part; at += 64)
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; i++) {
            const char *line = from + i / 2 * part + at + i % 2 * 32;
            sums[i] = _mm256_xor_si256(sums[i], _mm256_load_si256((const __m256i *)(const void *)line));
        }
    for (int i = 1; i < 8; i++) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
    kept = (float)_mm256_extract_epi32(sums[0], 0);
}
#endif

static void add_up(int thread, int threads) {
    size_t length;
    const char *from = read_from + piece_of(&length, READ, thread, threads);
#ifdef REIN_HAVE_AVX2
    if (rein_isa_available(REIN_ISA_AVX2)) {
        add_up_avx2(from, length);
        return;
    }
#endif
    uint64_t sums[32] = {0}, line[32];
    for (size_t at = 0; at < length; at += 256) {
        memcpy(line, from + at, sizeof line);
        for (int i = 0; i < 32; i++) sums[i] ^= line[i];
    }
    for (int i = 1; i < 32; i++) sums[0] ^= sums[i];
    kept = (float)sums[0];
}

double rein_bench_read(void) {
    if (!read_from) {
        read_from = rein_bench_get(READ);
        memset(read_from, 1, READ);
    }
    return READ / seconds_of(add_up);
}

static void triad(int thread, int threads) { /* a = b + s·c past the caches */
    size_t length;
    const size_t first = piece_of(&length, STREAM, thread, threads) / 4, last = first + length / 4;
    for (size_t i = first; i < last; i += 4) {
#ifdef REIN_HAVE_AVX2
        _mm_stream_ps(stream_a + i,
                      _mm_add_ps(_mm_load_ps(stream_b + i), _mm_mul_ps(_mm_set1_ps(0.5f), _mm_load_ps(stream_c + i))));
#else
        for (size_t l = 0; l < 4; l++) stream_a[i + l] = stream_b[i + l] + 0.5f * stream_c[i + l];
#endif
    }
}

double rein_bench_triad(void) {
    if (!stream_a) {
        stream_a = rein_bench_get(STREAM), stream_b = rein_bench_get(STREAM), stream_c = rein_bench_get(STREAM);
        for (size_t i = 0; i < STREAM / sizeof *stream_a; i++) stream_a[i] = 0, stream_b[i] = 1, stream_c[i] = 2;
    }
    return 3.0 * STREAM / seconds_of(triad);
}

/* ------------------------------------------------------------------------------------------------------------------------ rows */

void rein_bench_machine(rein_bench_figures *figures, const rein_bench_row *row, const rein_bench_job *job) {
    for (uint64_t i = 0; i < job->rounds; i++) figures->value = fmax(figures->value, row->machine() / 1e9);
}
