/* tensorboard.c - TFRecord framing around Event messages, both written without protobuf: only four kinds of field are needed.
 *
 *     record  = length (8 bytes), masked crc of length (4), data [length], masked crc of data (4); all little-endian
 *     Event   = { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; SessionLog session_log = 7 }
 *     Summary = { repeated Value value = 1 }, Value = { string tag = 1; float simple_value = 2 }
 *     SessionLog = { Status status = 1 }, START = 1
 * (tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto). As in
 * protobuf, fields that are 0 are left out, except for the members of a oneof: file_version, summary, session_log, simple_value. */
#include "tensorboard.h"

#include <dirent.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "append.h"
#include "base/file.h"
#include "model/unicode.h"

#define PREFIX "events.out.tfevents."

enum {
    RECORD_HEAD = 12, /* length and its crc */
    RECORD_EXTRA = RECORD_HEAD + 4,
    EVENT_EXTRA = 9 + 11 + 11, /* wall_time, step, and the tag and length of what it holds */
    START_SIZE = 2 * (RECORD_EXTRA + EVENT_EXTRA) + 13 + 2,
    NAME_SIZE = 200
};
static const double LATEST = 9999999999.0; /* ten digits: names are compared as text */

struct rein_tensorboard {
    char *directory, *path; /* of the file being written, or NULL */
    int fd;                 /* -1: there is none yet */
    int64_t purge_step;     /* to write in the next file; -1: already written */
    unsigned char *data;    /* the bytes of the next write */
    size_t size, capacity;
};

/* ----------------------------------------------------------------------------------------------------------------------- bytes */

/* Reflected polynomial 0x82F63B78, four bits at a time: fast enough for the few kilobytes of a step. */
uint32_t rein_crc32c(const void *data, size_t size) {
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                       0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const unsigned char *from = data;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= from[i];
        crc = table[crc & 15] ^ crc >> 4;
        crc = table[crc & 15] ^ crc >> 4;
    }
    return ~crc;
}

/* A crc that is stored beside what it covers is rotated and shifted, so that a crc of both does not degenerate. */
static uint32_t masked_crc(const void *data, size_t size) {
    const uint32_t crc = rein_crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static int reserve(rein_tensorboard *tb, size_t size) {
    if (size <= tb->capacity) return 1;
    unsigned char *data = realloc(tb->data, size);
    if (!data) return 0;
    tb->data = data;
    tb->capacity = size;
    return 1;
}

/* The put_ functions write into the reserved memory. */
static void put_byte(rein_tensorboard *tb, unsigned byte) { tb->data[tb->size++] = (unsigned char)byte; }

static void put_little(unsigned char *to, uint64_t x, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) to[i] = (unsigned char)(x >> 8 * i);
}

static void put_fixed(rein_tensorboard *tb, uint64_t x, size_t bytes) {
    put_little(tb->data + tb->size, x, bytes);
    tb->size += bytes;
}

static void put_varint(rein_tensorboard *tb, uint64_t x) {
    for (; x > 127; x >>= 7) put_byte(tb, (unsigned)(x & 127) | 128);
    put_byte(tb, (unsigned)x);
}

static size_t varint_size(uint64_t x) {
    size_t size = 1;
    for (; x > 127; x >>= 7) size++;
    return size;
}

static void put_text(rein_tensorboard *tb, const char *text) {
    const size_t length = strlen(text);
    put_varint(tb, length);
    memcpy(tb->data + tb->size, text, length);
    tb->size += length;
}

/* ---------------------------------------------------------------------------------------------------------------------- events */

static size_t begin_event(rein_tensorboard *tb, double wall_time, int64_t step) {
    const size_t start = tb->size;
    uint64_t bits;
    memcpy(&bits, &wall_time, sizeof bits);
    tb->size += RECORD_HEAD;
    if (bits != 0) put_byte(tb, 1 << 3 | 1), put_fixed(tb, bits, 8);
    if (step != 0) put_byte(tb, 2 << 3), put_varint(tb, (uint64_t)step);
    return start;
}

static void end_event(rein_tensorboard *tb, size_t start) {
    unsigned char *head = tb->data + start;
    const size_t length = tb->size - start - RECORD_HEAD;
    put_little(head, length, 8);
    put_little(head + 8, masked_crc(head, 8), 4);
    put_fixed(tb, masked_crc(head + RECORD_HEAD, length), 4);
}

/* The first records of a file. TensorBoard takes the first START that it reads as the start of the run and purges only at later ones, so a
 * new run needs a START too. */
static void put_start(rein_tensorboard *tb, double wall_time) {
    size_t start = begin_event(tb, wall_time, 0);
    put_byte(tb, 3 << 3 | 2), put_text(tb, "brain.Event:2");
    end_event(tb, start);
    if (tb->purge_step < 0) return;
    start = begin_event(tb, wall_time, tb->purge_step);
    put_byte(tb, 7 << 3 | 2), put_varint(tb, 2);
    put_byte(tb, 1 << 3), put_varint(tb, 1);
    end_event(tb, start);
}

static size_t value_size(const char *name) {
    const size_t length = strlen(name);
    return 1 + varint_size(length) + length + 5;
}

static size_t summary_size(const rein_named_number *metrics, size_t n) {
    size_t size = 0;
    for (size_t i = 0; i < n; i++) size += 1 + varint_size(value_size(metrics[i].name)) + value_size(metrics[i].name);
    return size;
}

static uint32_t float_bits(double value) {
    const double most = (double)FLT_MAX;
    const float rounded = value > most ? INFINITY : value < -most ? -INFINITY : (float)value;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return bits;
}

static void put_step(rein_tensorboard *tb, int64_t step, double wall_time, const rein_named_number *metrics, size_t n) {
    const size_t start = begin_event(tb, wall_time, step);
    put_byte(tb, 5 << 3 | 2), put_varint(tb, summary_size(metrics, n));
    for (size_t i = 0; i < n; i++) {
        put_byte(tb, 1 << 3 | 2), put_varint(tb, value_size(metrics[i].name));
        put_byte(tb, 1 << 3 | 2), put_text(tb, metrics[i].name);
        put_byte(tb, 2 << 3 | 5), put_fixed(tb, float_bits(metrics[i].value), 4);
    }
    end_event(tb, start);
}

/* ----------------------------------------------------------------------------------------------------------------------- files */

/* *latest is the greatest time in the names of a directory's event files, -1 if there is none. */
static rein_status find_latest(long long *latest, const char *path, rein_error *err) {
    DIR *directory = opendir(path);
    *latest = -1;
    if (!directory) return rein_file_error(err, path, "the directory cannot be read");
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
        const char *digits = entry->d_name + strlen(PREFIX);
        const long long time = strspn(digits, "0123456789") == 10 ? atoll(digits) : -1;
        if (time > *latest) *latest = time;
    }
    closedir(directory);
    return REIN_OK;
}

static void make_name(char to[NAME_SIZE], long long time) {
    char host[65] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !*host) snprintf(host, sizeof host, "localhost");
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '-';
    snprintf(to, NAME_SIZE, PREFIX "%010lld.%s.%ld", time, host, (long)getpid());
}

static void leave_file(rein_tensorboard *tb) {
    if (tb->fd >= 0) close(tb->fd);
    free(tb->path);
    tb->path = NULL;
    tb->fd = -1;
}

static rein_status new_file(rein_tensorboard *tb, double wall_time, rein_error *err) {
    char name[NAME_SIZE];
    long long latest;
    const rein_status status = find_latest(&latest, tb->directory, err);
    if (status) return status;
    make_name(name, (long long)fmin(fmax(wall_time, (double)latest + 1), LATEST));
    tb->path = rein_path_join(tb->directory, name);
    if (!tb->path) return rein_no_memory(err);
    return rein_append_open(&tb->fd, tb->path, 1, err);
}

static rein_status write_step(rein_tensorboard *tb, double wall_time, rein_error *err) {
    const int fresh = tb->fd < 0;
    rein_status status = fresh ? new_file(tb, wall_time, err) : REIN_OK;
    if (!status) {
        status = rein_append(tb->fd, tb->path, tb->data, tb->size, err);
        if (status && fresh) unlink(tb->path);
    }
    if (status) leave_file(tb); /* its last record may be incomplete, so the next step starts a new file */
    else tb->purge_step = -1;
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- the API */

rein_status rein_tensorboard_open(rein_tensorboard **tb, const char *directory, int64_t purge_step, rein_error *err) {
    *tb = NULL;
    if (purge_step < 0)
        return rein_fail_at(err, REIN_EINVAL, "purge_step", -1, "is %lld: 0 or more is needed", (long long)purge_step);
    const rein_status status = rein_make_directories(directory, err);
    if (status) return status;
    rein_tensorboard *out = malloc(sizeof *out);
    if (out) *out = (rein_tensorboard){.directory = malloc(strlen(directory) + 1), .fd = -1, .purge_step = purge_step};
    if (!out || !out->directory) {
        rein_tensorboard_close(out);
        return rein_no_memory(err);
    }
    strcpy(out->directory, directory);
    *tb = out;
    return REIN_OK;
}

static rein_status check_step(int64_t step, double wall_time, const rein_named_number *metrics, size_t n, rein_error *err) {
    if (step < 0) return rein_fail_at(err, REIN_EINVAL, "step", -1, "is %lld: 0 or more is needed", (long long)step);
    if (!(wall_time >= 0 && wall_time <= LATEST))
        return rein_fail_at(err, REIN_EINVAL, "wall_time", -1, "is %g: seconds since 1970 are needed, at most %.0f", wall_time,
                            LATEST);
    for (size_t i = 0; i < n; i++) {
        const char *name = metrics[i].name;
        if (!name || !*name) return rein_fail_at(err, REIN_EINVAL, "metrics", (int64_t)i, "has no name: a metric has one");
        const size_t length = strlen(name), valid = rein_utf8_valid(name, length);
        if (valid < length)
            return rein_fail_at(err, REIN_EINVAL, "metrics", (int64_t)i, "has a name that is not UTF-8, from byte %zu on", valid);
    }
    return REIN_OK;
}

rein_status rein_tensorboard_add(rein_tensorboard *tb, int64_t step, double wall_time, const rein_named_number *metrics, size_t n,
                                 rein_error *err) {
    const rein_status status = check_step(step, wall_time, metrics, n, err);
    if (status || n == 0) return status;
    if (!reserve(tb, START_SIZE + RECORD_EXTRA + EVENT_EXTRA + summary_size(metrics, n))) return rein_no_memory(err);
    tb->size = 0;
    if (tb->fd < 0) put_start(tb, wall_time);
    put_step(tb, step, wall_time, metrics, n);
    return write_step(tb, wall_time, err);
}

void rein_tensorboard_close(rein_tensorboard *tb) {
    if (!tb) return;
    leave_file(tb);
    free(tb->directory);
    free(tb->data);
    free(tb);
}
