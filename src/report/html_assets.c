/* html_assets.c - the assembler includes the files unchanged (.incbin), so no tool must be built and nothing is generated. Paths start at
 * the top of the project, where make runs the compiler; the Makefile lists them as prerequisites of this object. */
#include "html_assets.h"

#include <stdint.h>

/* The bytes and their number. Hidden: librein.so exports public functions only. */
#define EMBED(name, file)                                                                                          \
    extern const char name[] __attribute__((visibility("hidden")));                                                \
    extern const uint64_t name##_size __attribute__((visibility("hidden")));                                       \
    __asm__(".pushsection .rodata\n"                                                                               \
            ".globl " #name "\n"                                                                                   \
            ".globl " #name "_size\n"                                                                              \
            ".balign 8\n" #name "_size: .8byte " #name "_end - " #name "\n" #name ": .incbin \"" file "\"\n" #name \
            "_end: .byte 0\n"                                                                                      \
            ".popsection\n")

EMBED(rein_asset_report, "src/report/assets/report.html");
EMBED(rein_asset_live, "src/report/assets/live.html");
EMBED(rein_asset_style, "src/report/assets/page.css");
EMBED(rein_asset_base, "src/report/assets/base.js");
EMBED(rein_asset_charts, "src/report/assets/charts.js");
EMBED(rein_asset_responses, "src/report/assets/responses.js");
EMBED(rein_asset_parts, "src/report/assets/parts.js");
EMBED(rein_asset_report_script, "src/report/assets/report.js");
EMBED(rein_asset_live_style, "src/report/assets/live.css");
EMBED(rein_asset_api, "src/report/assets/api.js");
EMBED(rein_asset_chat, "src/report/assets/chat.js");
EMBED(rein_asset_live_script, "src/report/assets/live.js");
EMBED(rein_asset_uplot, "third_party/uplot/uPlot.iife.min.js");
EMBED(rein_asset_uplot_style, "third_party/uplot/uPlot.min.css");
EMBED(rein_asset_uplot_licence, "third_party/uplot/LICENSE");

#define ASSET(name, data) \
    (rein_asset) { name, data, (size_t)data##_size }

rein_asset rein_asset_at(size_t i) {
    switch (i) {
    case 0: return ASSET("report.html", rein_asset_report);
    case 1: return ASSET("live.html", rein_asset_live);
    case 2: return ASSET("page.css", rein_asset_style);
    case 3: return ASSET("base.js", rein_asset_base);
    case 4: return ASSET("charts.js", rein_asset_charts);
    case 5: return ASSET("responses.js", rein_asset_responses);
    case 6: return ASSET("parts.js", rein_asset_parts);
    case 7: return ASSET("report.js", rein_asset_report_script);
    case 8: return ASSET("live.css", rein_asset_live_style);
    case 9: return ASSET("api.js", rein_asset_api);
    case 10: return ASSET("chat.js", rein_asset_chat);
    case 11: return ASSET("live.js", rein_asset_live_script);
    case 12: return ASSET("uplot.js", rein_asset_uplot);
    case 13: return ASSET("uplot.css", rein_asset_uplot_style);
    case 14: return ASSET("uplot.licence", rein_asset_uplot_licence);
    default: return (rein_asset){0};
    }
}
