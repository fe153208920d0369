/* html_assets.h - the files of the page, embedded in the library. Private. */
#ifndef REIN_REPORT_HTML_ASSETS_H
#define REIN_REPORT_HTML_ASSETS_H

#include <stddef.h>

typedef struct rein_asset {
    const char *name; /* as the template has it: "@{page.css}" */
    const char *data;
    size_t size;
} rein_asset;

/* Asset number i; its name is NULL past the last one. The first is the template. Static storage. */
rein_asset rein_asset_at(size_t i);

#endif
