#include "experiments/report/report.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "experiments/report/internal.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* Makes the page's default name: NAME.html for the store NAME.db, NAME.sqlite or NAME. */
static rp_status default_page(const char *path, rp_arena *arena, const char **html_out)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(file, '.');
    size_t length = dot != NULL && dot != file ? (size_t)(dot - path) : strlen(path);
    return rp_arena_print(arena, html_out, "%.*s.html", (int)length, path);
}

static rp_status refuse_store(const char *path, const char *html)
{
    struct stat store;
    struct stat page;
    if (stat(path, &store) == 0 && stat(html, &page) == 0 && store.st_dev == page.st_dev &&
        store.st_ino == page.st_ino) {
        rp_log_error("--html-out: %s is the store itself; valid is another name", html);
        return RP_USAGE;
    }
    return RP_OK;
}

static rp_status write_page(rpsweep_findings *findings, const char *html)
{
    rpsweep_plot *plots = NULL;
    uint32_t count = 0;
    bool drawn = false;
    rp_output output;
    RP_TRY(rpsweep_find(findings));
    RP_TRY(rp_output_open(html, &output));
    rp_status status = rpsweep_draw(findings, &plots, &count, &drawn);
    if (status == RP_OK) {
        status = rpsweep_page(findings, plots, count, drawn, output.stream);
    }
    if (status != RP_OK) {
        rp_output_discard(&output);
        return status;
    }
    RP_TRY(rp_output_commit(&output));
    if (!drawn && count > 0) {
        rp_log_warning("no pictures: gnuplot is missing (package gnuplot-nox)");
    }
    if (strcmp(html, "-") != 0) {
        uint32_t pictures = drawn ? count : 0;
        printf("%s: %" PRIu64 " run%s, %u parameter%s that varied, %u picture%s\n", html,
               findings->latest, findings->latest == 1 ? "" : "s", findings->varied.count,
               findings->varied.count == 1 ? "" : "s", pictures, pictures == 1 ? "" : "s");
    }
    return RP_OK;
}

rp_status rpsweep_report(const char *path, const char *html_or_null, rp_arena *arena)
{
    rpsweep_findings findings = {.arena = arena, .path = path};
    const char *html = html_or_null;
    if (html == NULL) {
        RP_TRY(default_page(path, arena, &html));
    }
    RP_TRY(refuse_store(path, html));
    RP_TRY(rp_store_open_existing(path, &findings.store));
    rp_status status = write_page(&findings, html);
    rp_store_close(findings.store);
    return status;
}
