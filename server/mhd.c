/* mhd.c - finds the functions of libmicrohttpd. In the static program (REIN_STATIC) they are linked in. */
#include "mhd.h"

#ifdef REIN_STATIC

#define FOUND(name) .name = MHD_##name,
mhd_calls mhd = {MHD_CALLS(FOUND)};

rein_status mhd_load(rein_error *err) {
    (void)err;
    return REIN_OK;
}

#else

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

mhd_calls mhd;
static const char *missing; /* NULL: all were found */
static char why[300];

/* POSIX gives functions as objects: their pointers are copied, because ISO C has no cast between them. */
static void find(void *library, const char *name, void *member, size_t size) {
    void *found = dlsym(library, name);
    if (!found) missing = name;
    memcpy(member, &found, size);
}

static void load(void) {
    void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        missing = "libmicrohttpd.so.12";
        snprintf(why, sizeof why, " (%s)", dlerror());
        return;
    }
#define FIND(name) find(library, "MHD_" #name, &mhd.name, sizeof mhd.name);
    MHD_CALLS(FIND)
}

rein_status mhd_load(rein_error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return missing ? rein_fail(err, REIN_ESYSTEM, "%s is missing%s: install libmicrohttpd (Debian: libmicrohttpd12)", missing, why)
                   : REIN_OK;
}

#endif
