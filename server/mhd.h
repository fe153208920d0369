/* mhd.h - libmicrohttpd, loaded when a server starts: every other command begins without it and the libraries that it needs, and so does a
 * program on a machine where it is not installed. */
#ifndef SERVER_MHD_H
#define SERVER_MHD_H

#include <microhttpd.h>

#include "rein/base.h"

#define MHD_CALLS(CALL)                 \
    CALL(start_daemon)                  \
    CALL(stop_daemon)                   \
    CALL(get_connection_info)           \
    CALL(set_connection_option)         \
    CALL(is_feature_supported)          \
    CALL(lookup_connection_value)       \
    CALL(suspend_connection)            \
    CALL(resume_connection)             \
    CALL(create_response_from_buffer)   \
    CALL(create_response_from_callback) \
    CALL(add_response_header)           \
    CALL(queue_response)                \
    CALL(destroy_response)

/* MHD_start_daemon is mhd.start_daemon, and so on. */
#define MHD_MEMBER(name) __typeof__(MHD_##name) *name;
typedef struct mhd_calls {
    MHD_CALLS(MHD_MEMBER)
} mhd_calls;
extern mhd_calls mhd;

/* Loads it, once. REIN_ESYSTEM: it is not installed. Thread-safe. */
rein_status mhd_load(rein_error *err);

#endif
