/* html_assets.h - the files of the pages, embedded in the library. Private. */
#ifndef REIN_REPORT_HTML_ASSETS_H
#define REIN_REPORT_HTML_ASSETS_H

#include <stddef.h>

typedef struct rein_asset {
    const char *name; /* as templates have it: "@{page.css}" */
    const char *data;
    size_t size;
} rein_asset;

/* Asset number i; its name is NULL past the last one. Static storage. */
rein_asset rein_asset_at(size_t i);

#endif
