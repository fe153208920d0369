/* html_page.c - pages from templates (assets/report.html, assets/live.html) with placeholders such as "@{page.css}".
 *
 * The data is in a script element that is not executed; `<` is written as \u003c there, so no text can end the element. Besides, the
 * Content-Security-Policy names the styles and scripts of a page by their hashes, so a browser runs nothing else. */
#include "html_page.h"

#include <string.h>

#include "base/sha256.h"
#include "base/text.h"
#include "html_assets.h"

/* A placeholder that fails is remembered in `status`; a lack of memory in the text. */
typedef struct page {
    rein_text *text;
    const rein_asset *source;
    const char *title, *data; /* the data is JSON */
    rein_status status;
    rein_error *err;
} page;

/* Puts text; each byte that is in `special` is replaced. */
static void put_escaped(rein_text *to, const char *text, const char *special, const char *const *replacements) {
    for (;;) {
        const size_t n = strcspn(text, special);
        rein_text_put_bytes(to, text, n);
        text += n;
        if (!*text) return;
        rein_text_put(to, replacements[strchr(special, *text++) - special]);
    }
}

static void put_template(page *p, const char *from, const char *to);

/* The hashes of all elements that start with `open`: " 'sha256-…' 'sha256-…'". A browser uses no other style and runs no other script. */
static void put_hashes(page *p, const char *open, const char *close) {
    char base64[REIN_SHA256_BASE64];
    const char *at = p->source->data, *end;
    while ((at = strstr(at, open)) && (end = strstr(at, close))) {
        rein_text text = {0};
        page element = *p;
        element.text = &text;
        put_template(&element, at + strlen(open), end);
        p->text->failed |= text.failed;
        if (element.status) p->status = element.status;
        rein_text_format(p->text, " 'sha256-%s'", rein_sha256_base64(base64, text.data ? text.data : "", text.length));
        rein_text_free(&text);
        at = end;
    }
}

static int is_named(const char *name, size_t length, const char *wanted) {
    return strlen(wanted) == length && !memcmp(name, wanted, length);
}

static rein_asset asset_named(const char *name, size_t length) {
    rein_asset asset;
    for (size_t i = 0; (asset = rein_asset_at(i)).name; i++)
        if (is_named(name, length, asset.name)) break;
    return asset;
}

static void put_asset(page *p, const char *name, size_t length) {
    const rein_asset asset = asset_named(name, length);
    if (asset.name) rein_text_put_bytes(p->text, asset.data, asset.size);
    else
        p->status =
            rein_fail(p->err, REIN_EINVAL, "the page has the placeholder \"%.*s\": no such asset exists", (int)length, name);
}

static void put_named(page *p, const char *name, size_t length) {
    static const char *const escapes[] = {"\\u003c"}, *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    if (is_named(name, length, "data")) put_escaped(p->text, p->data, "<", escapes);
    else if (is_named(name, length, "title")) put_escaped(p->text, p->title, "&<>\"", entities);
    else if (is_named(name, length, "style hashes")) put_hashes(p, "<style>", "</style>");
    else if (is_named(name, length, "script hashes")) put_hashes(p, "<script>", "</script>");
    else put_asset(p, name, length);
}

/* A part of the template, its placeholders replaced. */
static void put_template(page *p, const char *from, const char *to) {
    const char *open, *close;
    while ((open = strstr(from, "@{")) && open < to && (close = strchr(open, '}'))) {
        rein_text_put_bytes(p->text, from, (size_t)(open - from));
        put_named(p, open + 2, (size_t)(close - open - 2));
        from = close + 1;
    }
    rein_text_put_bytes(p->text, from, (size_t)(to - from));
}

rein_status rein_page_put(rein_text *html, const char *name, const char *title, const char *data, rein_error *err) {
    const rein_asset source = asset_named(name, strlen(name));
    page p = {.text = html, .source = &source, .title = title, .data = data, .err = err};
    put_template(&p, source.data, source.data + source.size);
    return p.status ? p.status : rein_text_status(html, err);
}

rein_status rein_page_put_policy(rein_text *policy, const char *name, rein_error *err) {
    const rein_asset source = asset_named(name, strlen(name));
    page p = {.text = policy, .source = &source, .err = err};
    rein_text_put(policy, "default-src 'none'; style-src");
    put_hashes(&p, "<style>", "</style>");
    rein_text_put(policy, "; script-src");
    put_hashes(&p, "<script>", "</script>");
    rein_text_put(policy, "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    return p.status ? p.status : rein_text_status(policy, err);
}
