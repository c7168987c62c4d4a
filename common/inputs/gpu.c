#include "common/inputs/gpu.h"

#include "common/base/log.h"
#include "common/formats/config_rows.h"
#include "common/inputs/data.h"
#include "common/inputs/provenance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sections of platform_rows.inc whose keys a GPU's file has. */
#define IN_FILE(...) __VA_ARGS__,
#define IN_GPU(...) __VA_ARGS__,
#define IN_ORIGIN(...) __VA_ARGS__,
#define IN_SERVER(...)
#define IN_LINK(...)
#define IN_PEERS(...)
#define IN_HOST(...)
#define IN_KERNELS(...)
#define IN_SYSTEMS(...)

#define EACH(key) .list = 0 /* a GPU has no lists */
static const rp_config_field fields[] = {
#define KEY(member, kind, section, ...)                                                            \
    IN_##section(RP_CONFIG_FIELD(rp_platform, member, #member, kind, section, __VA_ARGS__))
#include "common/inputs/platform_rows.inc"
#undef KEY
};

/* The platform's keys of these fields. */
static const rp_platform_key keys[] = {
#define KEY(member, kind, section, ...) IN_##section(RP_PLATFORM_##member)
#include "common/inputs/platform_rows.inc"
#undef KEY
};

enum {
#define KEY(member, kind, section, ...) IN_##section(GPU_##member)
#include "common/inputs/platform_rows.inc"
#undef KEY
    GPU_KEYS
};

static const rp_config_either either[] = {{{GPU_memory_gb, GPU_memory_gib}}};

const rp_config_schema rp_gpu_schema = {.what = "a GPU",
                                        RP_CONFIG_FIELDS(fields),
                                        .either = either,
                                        .either_count = sizeof either / sizeof *either};

const char *rp_platform_file_of(const rp_platform_lines *at, size_t key)
{
    return at->of_gpu[key] ? at->gpu_file : at->file;
}

/* ---- the file of a GPU ----------------------------------------------------------------------- */

static rp_status parse(const char *name, const char *path, rp_arena *arena, rp_platform *gpu_out,
                       size_t *lines)
{
    rp_text text = {0};
    *gpu_out = (rp_platform){0};
    rp_status status = rp_text_read_file(path, RP_CONFIG_MAX_BYTES, &text);
    if (status == RP_OK) {
        status =
            rp_config_parse(path, text.bytes, text.length, &rp_gpu_schema, arena, gpu_out, lines);
    }
    rp_text_fini(&text);
    RP_TRY(status);
    if (lines[GPU_memory_gb] != 0 && lines[GPU_memory_gib] != 0) {
        rp_log_error_at(path, lines[GPU_memory_gib],
                        "'memory_gib' beside 'memory_gb'; valid values are those of one key alone");
        return RP_INPUT;
    }
    return rp_data_check_name(name, path, gpu_out->name);
}

rp_status rp_gpu_load(const char *name, rp_arena *arena, rp_platform *gpu_out)
{
    const char *path = NULL;
    size_t lines[RP_CONFIG_MAX_FIELDS];
    RP_TRY(rp_data_path(&rp_data_gpus, name, arena, &path));
    RP_TRY(parse(name, path, arena, gpu_out, lines));
    if (lines[GPU_memory_gib] != 0) {
        gpu_out->memory_gb = gpu_out->memory_gib * RP_GB_PER_GIB;
    }
    return RP_OK;
}

/* ---- a part of a platform -------------------------------------------------------------------- */

static bool is_of_card(size_t field)
{
    return strcmp(fields[field].table, "GPU") == 0;
}

/* @return whether the file itself has the key, or the same value in another unit. */
static bool has_key(const size_t *lines, size_t field)
{
    for (size_t i = 0; i < sizeof either / sizeof *either; i++) {
        size_t a = either[i].fields[0];
        size_t b = either[i].fields[1];
        if (field == a || field == b) {
            return lines[keys[a]] != 0 || lines[keys[b]] != 0;
        }
    }
    return lines[keys[field]] != 0;
}

/* @return keys that every GPU must have, and the platform's file lacks. */
static size_t count_missing(const size_t *lines, size_t *needed_out)
{
    size_t missing = 0;
    *needed_out = 0;
    for (size_t i = 0; i < GPU_KEYS; i++) {
        bool needed = is_of_card(i) && (!fields[i].optional || i == GPU_memory_gb);
        *needed_out += needed;
        missing += needed && !has_key(lines, i);
    }
    return missing;
}

static size_t size_of(const rp_config_field *field)
{
    return field->type == RP_CONFIG_DOUBLE ? sizeof(double)
           : field->type == RP_CONFIG_U32  ? sizeof(uint32_t)
                                           : sizeof(const char *);
}

/* Refuses an unknown GPU. @param key that names it @param more valid values beside known names */
static rp_status refuse_gpu(const char *gpu, const rp_platform_lines *at, rp_platform_key key,
                            const char *more, rp_arena *arena)
{
    const char **names = NULL;
    uint32_t count = 0;
    RP_TRY(rp_data_list(rp_data_gpus.folder, arena, &names, &count));
    const char *nearest = rp_text_nearest(gpu, names, count);
    rp_log_error_at(at->file, at->lines[key],
                    "'%s' %s '%s', of which there is no gpus/%s.yaml%s%s%s; valid values are "
                    "names of rpsim --list gpus%s",
                    rp_platform_schema.fields[key].key, key == RP_PLATFORM_gpu ? "is" : "names",
                    gpu, gpu, nearest != NULL ? ", did you mean '" : "",
                    nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "", more);
    return RP_INPUT;
}

/* Copies the keys that the platform's own file lacks. */
static rp_status take_keys(const rp_platform *gpu, const size_t *lines, rp_arena *arena,
                           rp_platform *platform, rp_platform_lines *at, const uint8_t **kinds_out)
{
    const uint8_t *kinds = NULL;
    uint8_t *all = NULL;
    size_t own[RP_CONFIG_MAX_FIELDS];
    RP_TRY(rp_provenance_read(at->gpu_file, &rp_gpu_schema, lines, gpu, arena, &kinds));
    RP_TRY(rp_arena_alloc(arena, rp_platform_schema.field_count, sizeof *all, &all));
    memset(all, RP_ASSUMED, rp_platform_schema.field_count);
    memcpy(own, at->lines, sizeof own);
    for (size_t i = 0; i < GPU_KEYS; i++) {
        if (is_of_card(i) && lines[i] != 0 && !has_key(own, i)) {
            memcpy((char *)platform + fields[i].offset, (const char *)gpu + fields[i].offset,
                   size_of(&fields[i]));
            at->lines[keys[i]] = lines[i];
            at->of_gpu[keys[i]] = true;
            all[keys[i]] = kinds[i];
        }
    }
    *kinds_out = all;
    return RP_OK;
}

rp_status rp_platform_add_gpu(size_t first_line, const rp_changes *changes, rp_arena *arena,
                              rp_platform *platform, rp_platform_lines *at,
                              const uint8_t **kinds_out)
{
    size_t needed = 0;
    size_t missing = count_missing(at->lines, &needed);
    *kinds_out = NULL;
    if (missing > 0 && platform->gpu != NULL) {
        const char *path = NULL;
        bool found = false;
        rp_platform gpu;
        size_t lines[RP_CONFIG_MAX_FIELDS];
        RP_TRY(rp_data_find(&rp_data_gpus, platform->gpu, arena, &path, &found));
        if (!found && missing == needed) {
            return refuse_gpu(platform->gpu, at, RP_PLATFORM_gpu,
                              ", or any beside the keys of a GPU, as fp16_tflops_fp16_acc", arena);
        }
        if (found) {
            RP_TRY(parse(platform->gpu, path, arena, &gpu, lines));
            at->gpu_file = path;
            RP_TRY(rp_changes_name(changes, &rp_platform_schema, arena, &at->gpu_file));
            RP_TRY(take_keys(&gpu, lines, arena, platform, at, kinds_out));
        }
    }
    return rp_config_check_missing(at->file, first_line, &rp_platform_schema, at->lines);
}

/* ---- measured products ----------------------------------------------------------------------- */

#define LARGEST_SIDE 1e9
#define MOST_WATTS 1e5

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static rp_status find_median(const rp_product *rows, uint32_t count, rp_arena *arena,
                             double *median_out)
{
    double *shares = NULL;
    RP_TRY(rp_arena_alloc(arena, count, sizeof *shares, &shares));
    for (uint32_t i = 0; i < count; i++) {
        shares[i] = rows[i].share;
    }
    qsort(shares, count, sizeof *shares, by_size);
    *median_out = (shares[(count - 1) / 2] + shares[count / 2]) / 2;
    return RP_OK;
}

static rp_status read_layout(const rp_csv *csv, uint32_t row, const char *cell,
                             rp_product_layout *layout_out)
{
    static const char *const names[RP_PRODUCT_LAYOUTS] = {"TN", "NN", "NT"};
    for (uint32_t i = 0; i < RP_PRODUCT_LAYOUTS; i++) {
        if (strcmp(cell, names[i]) == 0) {
            *layout_out = (rp_product_layout)i;
            return RP_OK;
        }
    }
    char shown[RP_CSV_SHOW_SIZE];
    rp_log_error_at(csv->name, csv->lines[row], "'layout' is '%s'; valid values are TN, NN, NT",
                    rp_csv_show(cell, shown));
    return RP_INPUT;
}

static rp_status read_products(const rp_csv *csv, rp_arena *arena, rp_products *products)
{
    enum { LAYOUT, M, N, K, SHARE, POWER, COLUMNS };
    static const char *const headers[COLUMNS] = {"layout", "m", "n", "k", "share", "power_limit_w"};
    uint32_t columns[COLUMNS];
    rp_product *rows = NULL;
    for (int i = 0; i < COLUMNS; i++) {
        RP_TRY(rp_csv_column(csv, headers[i], &columns[i]));
    }
    if (csv->rows < RP_PRODUCTS_LEAST) {
        rp_log_error_at(csv->name, 1, "%u products; valid are tables of at least %u", csv->rows,
                        RP_PRODUCTS_LEAST);
        return RP_INPUT;
    }
    RP_TRY(rp_arena_alloc(arena, csv->rows, sizeof *rows, &rows));
    for (uint32_t i = 0; i < csv->rows; i++) {
        double power_w = 0;
        RP_TRY(read_layout(csv, i, rp_csv_cell(csv, i, columns[LAYOUT]), &rows[i].layout));
        RP_TRY(rp_csv_double(csv, i, columns[M], 1, LARGEST_SIDE, &rows[i].m));
        RP_TRY(rp_csv_double(csv, i, columns[N], 1, LARGEST_SIDE, &rows[i].n));
        RP_TRY(rp_csv_double(csv, i, columns[K], 1, LARGEST_SIDE, &rows[i].k));
        RP_TRY(rp_csv_double(csv, i, columns[SHARE], 1e-6, 1, &rows[i].share));
        RP_TRY(rp_csv_double(csv, i, columns[POWER], 1, MOST_WATTS, &power_w));
        if (i > 0 && power_w != products->power_limit_w) {
            rp_log_error_at(csv->name, csv->lines[i],
                            "'power_limit_w' differs between rows; valid is one for all");
            return RP_INPUT;
        }
        products->power_limit_w = power_w;
    }
    products->rows = rows;
    products->count = csv->rows;
    return find_median(rows, csv->rows, arena, &products->median_share);
}

rp_status rp_products_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                            const rp_products **products_out)
{
    rp_csv csv;
    rp_products *products = NULL;
    size_t head = 0;
    uint32_t lines = 0;
    while (head < length && bytes[head] == '#') {
        const char *end = memchr(bytes + head, '\n', length - head);
        head = end != NULL ? (size_t)(end - bytes) + 1 : length;
        lines++;
    }
    RP_TRY(rp_csv_parse(name, bytes + head, length - head, ',', arena, &csv));
    for (uint32_t i = 0; i < csv.rows; i++) {
        csv.lines[i] += lines;
    }
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *products, &products));
    RP_TRY(read_products(&csv, arena, products));
    *products_out = products;
    return RP_OK;
}

rp_status rp_products_load(const char *gpu, rp_arena *arena, const rp_products **products_out)
{
    char file[256];
    const char *path = NULL;
    bool found = false;
    rp_text text = {0};
    *products_out = NULL;
    int length = snprintf(file, sizeof file, "products/%s.csv", gpu);
    if (length < 0 || (size_t)length >= sizeof file || strchr(gpu, '/') != NULL) {
        return RP_OK; /* no registered name */
    }
    RP_TRY(rp_data_file(file, arena, &path, &found));
    if (!found) {
        return RP_OK;
    }
    rp_status status = rp_text_read_file(path, RP_CSV_MAX_BYTES, &text);
    if (status == RP_OK) {
        status = rp_products_parse(path, text.bytes != NULL ? text.bytes : "", text.length, arena,
                                   products_out);
    }
    rp_text_fini(&text);
    return status;
}

/* ---- other cards of a server ----------------------------------------------------------------- */

rp_status rp_platform_read_card(const char *name, const rp_platform_lines *at, rp_arena *arena,
                                rp_card *card_out)
{
    bool found = false;
    size_t lines[RP_CONFIG_MAX_FIELDS];
    rp_platform *gpu = &card_out->gpu;
    *card_out = (rp_card){.lines = {.file = at->file}};
    RP_TRY(rp_data_find(&rp_data_gpus, name, arena, &card_out->lines.gpu_file, &found));
    if (!found) {
        return refuse_gpu(name, at, RP_PLATFORM_gpu_list, "", arena);
    }
    RP_TRY(parse(name, card_out->lines.gpu_file, arena, gpu, lines));
    RP_TRY(rp_products_load(name, arena, &gpu->products));
    gpu->gpu = gpu->name;
    for (size_t i = 0; i < GPU_KEYS; i++) {
        card_out->lines.lines[keys[i]] = is_of_card(i) ? lines[i] : 0;
        card_out->lines.of_gpu[keys[i]] = is_of_card(i);
    }
    gpu->memory_gb = gpu->memory_gib > 0 ? gpu->memory_gib * RP_GB_PER_GIB : gpu->memory_gb;
    return RP_OK;
}

void rp_platform_put_card(const rp_card *card, rp_platform *platform, rp_platform_lines *at)
{
    for (size_t i = 0; i < GPU_KEYS; i++) {
        if (is_of_card(i)) {
            memcpy((char *)platform + fields[i].offset, (const char *)&card->gpu + fields[i].offset,
                   size_of(&fields[i]));
            at->lines[keys[i]] = card->lines.lines[keys[i]];
            at->of_gpu[keys[i]] = true;
        }
    }
    at->gpu_file = card->lines.gpu_file;
    platform->products = card->gpu.products;
    platform->gpu = card->gpu.gpu;
}
