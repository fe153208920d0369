/* html_page.h - a page from its template: assets, data and the hashes of its styles and scripts take the places of "@{name}". Private. */
#ifndef REIN_REPORT_HTML_PAGE_H
#define REIN_REPORT_HTML_PAGE_H

#include <jansson.h>

#include "rein/text.h"

/* Appends the page of the template asset `name`. `data` becomes the JSON in the page, where no text of it can be markup; `title` is text. */
rein_status rein_page_put(rein_text *html, const char *name, const char *title, const char *data, rein_error *err);

/* Appends the Content-Security-Policy of a page of that template on a server: its own styles and scripts by their hashes, requests to the same
 * server, and nothing else. */
rein_status rein_page_put_policy(rein_text *policy, const char *name, rein_error *err);

#endif
