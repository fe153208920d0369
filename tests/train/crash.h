/* crash.h - a disk that loses power, fills up, or breaks, at a call that a test chooses.
 *
 * For programs linked with --wrap for the calls below. Between disk_on() and disk_off() every call that concerns a path under the root is
 * done for real and noted down: what each file held when it was last synchronised, and which names were made, changed and removed since
 * their directory was. From that disk_after() builds the directory as a power cut would leave it. POSIX promises no more than was
 * synchronised, and nothing about the rest: it may be there, or not, each name and each file for itself. So there are several outcomes:
 * everything lost, everything there, names without data, data without names, half of the data, zeros in place of the data, and by lot.
 *
 * Calls that are not simulated end the test when they come: nothing shall get past. */
#ifndef REIN_TESTS_CRASH_H
#define REIN_TESTS_CRASH_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern int __real_open(const char *path, int flags, ...);
extern ssize_t __real_write(int fd, const void *data, size_t size);
extern int __real_fsync(int fd);
extern int __real_rename(const char *from, const char *to);
extern int __real_mkdir(const char *path, mode_t mode);
extern int __real_rmdir(const char *path);
extern int __real_unlink(const char *path);
extern int __real_ftruncate(int fd, off_t size);
extern int __real_close(int fd);
extern FILE *__real_fopen(const char *path, const char *mode);
int __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_write(int fd, const void *data, size_t size);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_rmdir(const char *path);
int __wrap_unlink(const char *path);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_close(int fd);
FILE *__wrap_fopen(const char *path, const char *mode);

enum { NODES = 600, NAME = 64, DESCRIPTORS = 256, ROOT = 0, NONE = -1 };

typedef struct bytes {
    unsigned char *data;
    size_t size;
} bytes;

/* A file or a directory, whatever its name is at the moment. */
typedef struct node {
    int directory;
    bytes now, safe; /* of a file: what it holds, and what it held when it was synchronised */
} node;

/* A name in a directory. node is NONE where the entry is free. */
typedef struct name {
    int parent, node;
    char text[NAME];
} name;

/* A name that was made (from is ""), removed (to is ""), or changed, and is not durable. */
typedef struct change {
    int parent, node;
    char from[NAME], to[NAME];
} change;

typedef enum plan { PLAN_NONE, PLAN_CRASH, PLAN_FAIL_ONCE, PLAN_FAIL_ON } plan;

static struct disk {
    char root[300];
    int on, real_sync;
    node nodes[NODES];
    name now[NODES], safe[NODES];
    change changes[NODES];
    int n_nodes, n_changes;
    int node_of[DESCRIPTORS], append_of[DESCRIPTORS]; /* node + 1; 0: not ours */
    long calls, syncs;                                /* so far */
    plan plan;
    long at;      /* the call that the plan is about */
    int code;     /* errno of those that fail. ENOSPC leaves alone what needs no space */
    int half;     /* a write that fails does a half before */
    long ignored; /* the fsync that does nothing; -1: none */
    void (*crashed)(void);
} disk = {.ignored = -1};

static void __attribute__((noreturn)) disk_broken(const char *what, const char *path) {
    fprintf(stderr, "the simulated disk: %s: %s\n", what, path);
    _exit(99);
}

/* ------------------------------------------------------------------------------------------------------------- names and nodes */

static int find_name(const name *names, int parent, const char *text) {
    for (int i = 0; i < NODES; i++)
        if (names[i].node != NONE && names[i].parent == parent && !strcmp(names[i].text, text)) return i;
    return NONE;
}

static void set_name(name *names, int parent, const char *text, int node) {
    int i = find_name(names, parent, text);
    for (int k = 0; i == NONE && k < NODES; k++)
        if (names[k].node == NONE) i = k;
    if (i == NONE || strlen(text) >= NAME) disk_broken("no room for the name", text);
    names[i] = (name){parent, node, ""};
    strcpy(names[i].text, text);
}

static void unset_name(name *names, int parent, const char *text, int node) {
    const int i = find_name(names, parent, text);
    if (i != NONE && names[i].node == node) names[i].node = NONE;
}

static int new_node(int directory) {
    if (disk.n_nodes == NODES) disk_broken("no room for more files", "");
    disk.nodes[disk.n_nodes] = (node){.directory = directory};
    return disk.n_nodes++;
}

static void apply(name *names, const change *c) {
    if (c->from[0]) unset_name(names, c->parent, c->from, c->node);
    if (c->to[0]) set_name(names, c->parent, c->to, c->node);
}

static void change_name(int parent, int node, const char *from, const char *to) {
    if (disk.n_changes == NODES || parent == NONE) disk_broken("no room for more changes, or a lost path", to);
    change *c = &disk.changes[disk.n_changes++];
    *c = (change){.parent = parent, .node = node};
    strcpy(c->from, from);
    strcpy(c->to, to);
    apply(disk.now, c);
}

static int parent_of(int node) {
    for (int i = 0; i < NODES; i++)
        if (disk.now[i].node == node) return disk.now[i].parent;
    return NONE;
}

static int is_inside(const char *path) {
    const size_t n = strlen(disk.root);
    return disk.on && !strncmp(path, disk.root, n) && (!path[n] || path[n] == '/');
}

/* The node of a path under the root, or NONE; in any case its last name, and the directory that would list it. */
static int resolve(int *parent, char last[NAME], const char *path) {
    int at = ROOT;
    *parent = NONE;
    last[0] = 0;
    for (const char *p = path + strlen(disk.root); *p;) {
        while (*p == '/') p++;
        const size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && *p == '.')) {
            p += n;
            continue;
        }
        if (n >= NAME) disk_broken("the name is too long", path);
        if (at == NONE) return *parent = NONE;
        if (n == 2 && !strncmp(p, "..", 2)) at = parent_of(at);
        else {
            snprintf(last, NAME, "%.*s", (int)n, p);
            const int i = find_name(disk.now, at, last);
            *parent = at;
            at = i == NONE ? NONE : disk.now[i].node;
        }
        p += n;
    }
    return at;
}

/* -------------------------------------------------------------------------------------------------------------------- contents */

static void resize(bytes *b, size_t size) {
    b->data = realloc(b->data, size + 1);
    if (size > b->size) memset(b->data + b->size, 0, size - b->size);
    b->size = size;
}

static void put_at(bytes *b, size_t at, const void *data, size_t size) {
    if (at + size > b->size) resize(b, at + size);
    memcpy(b->data + at, data, size);
}

static void copy_bytes(bytes *to, const bytes *from) {
    resize(to, from->size);
    if (from->size) memcpy(to->data, from->data, from->size);
}

static int differ(const bytes *a, const bytes *b) {
    return a->size != b->size || (a->size && memcmp(a->data, b->data, a->size) != 0);
}

/* What stands on the real disk, all of it durable. */
static void load_directory(int parent, const char *path) {
    DIR *directory = opendir(path);
    if (!directory) disk_broken("cannot be listed", path);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char below[1200], block[4096];
        struct stat about;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        if (lstat(below, &about) != 0) disk_broken("cannot be looked at", below);
        const int node = new_node(S_ISDIR(about.st_mode));
        set_name(disk.now, parent, entry->d_name, node);
        set_name(disk.safe, parent, entry->d_name, node);
        if (S_ISDIR(about.st_mode)) {
            load_directory(node, below);
            continue;
        }
        const int fd = __real_open(below, O_RDONLY);
        for (ssize_t n; (n = read(fd, block, sizeof block)) > 0;)
            put_at(&disk.nodes[node].now, disk.nodes[node].now.size, block, (size_t)n);
        __real_close(fd);
        copy_bytes(&disk.nodes[node].safe, &disk.nodes[node].now);
    }
    closedir(directory);
}

static void disk_on(const char *root) {
    for (int i = 0; i < NODES; i++) disk.now[i].node = disk.safe[i].node = NONE;
    snprintf(disk.root, sizeof disk.root, "%s", root);
    disk.n_nodes = disk.n_changes = 0;
    disk.calls = disk.syncs = 0;
    memset(disk.node_of, 0, sizeof disk.node_of);
    new_node(1);
    load_directory(ROOT, root);
    disk.on = 1;
}

/* ------------------------------------------------------------------------------------------------------------------- the calls */

/* Counts a call; 1 if it is to fail. `takes_space`: it is one that a full disk stops. */
static int fails(int takes_space) {
    const long call = disk.calls++;
    if (disk.plan == PLAN_CRASH && call == disk.at) disk.crashed();
    if (disk.plan == PLAN_NONE || disk.plan == PLAN_CRASH || call < disk.at) return 0;
    if (disk.plan == PLAN_FAIL_ONCE && call != disk.at) return 0;
    if (disk.code == ENOSPC && !takes_space) return 0;
    errno = disk.code;
    return 1;
}

static int node_of(int fd) { return disk.on && fd >= 0 && fd < DESCRIPTORS ? disk.node_of[fd] - 1 : NONE; }

int __wrap_open(const char *path, int flags, ...) {
    mode_t mode = 0;
    int parent;
    char last[NAME];
    if (flags & O_CREAT) {
        va_list arguments;
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    if (!is_inside(path)) return __real_open(path, flags, mode);
    int node = resolve(&parent, last, path);
    if (fails(node == NONE && (flags & O_CREAT))) return -1;
    const int fd = __real_open(path, flags, mode);
    if (fd < 0) return fd;
    if (fd >= DESCRIPTORS || (flags & O_TRUNC)) disk_broken("not simulated", path);
    if (node == NONE && !(flags & O_CREAT)) return fd; /* above the root */
    if (node == NONE) change_name(parent, node = new_node(0), "", last);
    disk.node_of[fd] = node + 1;
    disk.append_of[fd] = (flags & O_APPEND) != 0;
    return fd;
}

ssize_t __wrap_write(int fd, const void *data, size_t size) {
    const int node = node_of(fd);
    if (node == NONE) return __real_write(fd, data, size);
    const int failing = fails(1), code = errno;
    if (failing && !disk.half) return -1;
    if (failing) size /= 2;
    bytes *b = &disk.nodes[node].now;
    const off_t at = disk.append_of[fd] ? (off_t)b->size : lseek(fd, 0, SEEK_CUR);
    if (__real_write(fd, data, size) != (ssize_t)size) disk_broken("the real disk fails", "");
    put_at(b, (size_t)at, data, size);
    errno = code;
    return (ssize_t)size;
}

/* The changes of a directory become durable, or what a file holds. */
static void settle(int node) {
    int kept = 0;
    if (!disk.nodes[node].directory) copy_bytes(&disk.nodes[node].safe, &disk.nodes[node].now);
    for (int i = 0; i < disk.n_changes; i++)
        if (disk.changes[i].parent == node) apply(disk.safe, &disk.changes[i]);
        else disk.changes[kept++] = disk.changes[i];
    disk.n_changes = kept;
}

int __wrap_fsync(int fd) {
    const int node = node_of(fd);
    if (node == NONE) return disk.real_sync ? __real_fsync(fd) : 0;
    if (fails(1)) return -1;
    if (disk.syncs++ != disk.ignored) settle(node);
    return 0;
}

int __wrap_rename(const char *from, const char *to) {
    int from_parent, to_parent;
    char from_last[NAME], to_last[NAME];
    if (!is_inside(from) && !is_inside(to)) return __real_rename(from, to);
    const int node = resolve(&from_parent, from_last, from);
    resolve(&to_parent, to_last, to);
    if (fails(0)) return -1;
    if (__real_rename(from, to) != 0) return -1;
    if (from_parent != to_parent) disk_broken("renaming to another directory is not simulated", to);
    change_name(from_parent, node, from_last, to_last);
    return 0;
}

int __wrap_mkdir(const char *path, mode_t mode) {
    int parent;
    char last[NAME];
    if (!is_inside(path)) return __real_mkdir(path, mode);
    resolve(&parent, last, path);
    if (fails(1)) return -1;
    if (__real_mkdir(path, mode) != 0) return -1;
    change_name(parent, new_node(1), "", last);
    return 0;
}

static int remove_name(const char *path, int (*really)(const char *)) {
    int parent;
    char last[NAME];
    if (!is_inside(path)) return really(path);
    const int node = resolve(&parent, last, path);
    if (fails(0) || really(path) != 0) return -1;
    change_name(parent, node, last, "");
    return 0;
}

int __wrap_rmdir(const char *path) { return remove_name(path, __real_rmdir); }
int __wrap_unlink(const char *path) { return remove_name(path, __real_unlink); }

int __wrap_ftruncate(int fd, off_t size) {
    const int node = node_of(fd);
    if (node != NONE && fails(0)) return -1;
    if (__real_ftruncate(fd, size) != 0) return -1;
    if (node != NONE) resize(&disk.nodes[node].now, (size_t)size);
    return 0;
}

int __wrap_close(int fd) {
    const int node = node_of(fd);
    if (node != NONE) disk.node_of[fd] = 0;
    const int failing = node != NONE && fails(0), code = errno, result = __real_close(fd);
    errno = code;
    return failing ? -1 : result;
}

/* No arguments: they are never looked at. */
#define NOT_SIMULATED(function)  \
    int __wrap_##function(void); \
    int __wrap_##function(void) { disk_broken("not simulated", #function); }
NOT_SIMULATED(openat)
NOT_SIMULATED(creat)
NOT_SIMULATED(pwrite)
NOT_SIMULATED(writev)
NOT_SIMULATED(fdatasync)
NOT_SIMULATED(truncate)
NOT_SIMULATED(link)
NOT_SIMULATED(linkat)
NOT_SIMULATED(renameat)
NOT_SIMULATED(mkdirat)
NOT_SIMULATED(unlinkat)
NOT_SIMULATED(remove)

/* Files elsewhere, such as those of /proc, may be read. */
FILE *__wrap_fopen(const char *path, const char *mode) {
    if (is_inside(path)) disk_broken("not simulated", "fopen");
    return __real_fopen(path, mode);
}

/* The process is gone: its descriptors are closed, and with them its locks end. */
static void disk_kill_process(void) {
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        if (disk.node_of[fd]) __real_close(fd);
        disk.node_of[fd] = 0;
    }
}

/* ---------------------------------------------------------------------------------------------------------------- after the cut */

typedef enum outcome { ALL_LOST, ALL_THERE, NAMES_ONLY, DATA_ONLY, HALVES, ZEROS, BY_LOT } outcome;

static unsigned long lot_state;

static unsigned draw(unsigned n) {
    lot_state = lot_state * 6364136223846793005UL + 1442695040888963407UL;
    return (unsigned)(lot_state >> 33) % n;
}

static int name_survives(outcome how) {
    if (how == BY_LOT) return (int)draw(2);
    return how != ALL_LOST && how != DATA_ONLY;
}

/* Of a file that changed since it was synchronised. */
static void contents_after(bytes *to, const node *n, outcome how) {
    if (how == BY_LOT) how = (outcome[]){ALL_LOST, ALL_THERE, HALVES, ZEROS}[draw(4)];
    const int old = how == ALL_LOST || how == NAMES_ONLY;
    copy_bytes(to, old ? &n->safe : &n->now);
    if (n->now.size <= n->safe.size) return;
    if (how == HALVES) resize(to, n->safe.size + (n->now.size - n->safe.size) / 2);
    if (how == ZEROS) memset(to->data + n->safe.size, 0, n->now.size - n->safe.size);
}

static uint64_t mix(uint64_t hash, const void *data, size_t size) { /* FNV-1a */
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211U;
    return hash;
}

static void write_file(const char *path, const bytes *held) {
    const int fd = __real_open(path, O_WRONLY | O_CREAT, 0666);
    if (fd < 0 || __real_write(fd, held->data, held->size) != (ssize_t)held->size) disk_broken("cannot be written", path);
    __real_close(fd);
}

/* Makes a directory and all below it, or with `really` 0 nothing; returns a fingerprint of it. */
static uint64_t build(const name *names, int parent, const char *path, outcome how, int really) {
    uint64_t sum = mix(1, path, strlen(path));
    if (really && __real_mkdir(path, 0777) != 0) disk_broken("cannot be made", path);
    for (int i = 0; i < NODES; i++) {
        char below[1200];
        bytes held = {0};
        if (names[i].node == NONE || names[i].parent != parent) continue;
        const node *n = &disk.nodes[names[i].node];
        snprintf(below, sizeof below, "%s/%s", path, names[i].text);
        if (n->directory) {
            sum += build(names, names[i].node, below, how, really);
            continue;
        }
        if (differ(&n->now, &n->safe)) contents_after(&held, n, how);
        else copy_bytes(&held, &n->safe);
        sum += mix(mix(2, below, strlen(below)), held.data, strcmp(names[i].text, ".lock") != 0 ? held.size : 0);
        if (really) write_file(below, &held);
        free(held.data);
    }
    return sum;
}

/* Builds what is found after a power cut now, at `path`, which must not exist; or nothing. Returns a fingerprint of it: what the number
 * of the process is in the file that locks has no part in it. */
static uint64_t disk_after(const char *path, outcome how, unsigned long seed, int really) {
    static name names[NODES];
    memcpy(names, disk.safe, sizeof names);
    lot_state = seed;
    for (int i = 0; i < disk.n_changes; i++)
        if (name_survives(how)) apply(names, &disk.changes[i]);
    return build(names, ROOT, path, how, really);
}

#endif
