#include "sim/run/memory/layer_tensors.h"

#include "common/base/log.h"
#include "common/formats/csv.h"
#include "common/inputs/data.h"

#include <stdbool.h>
#include <string.h>

#define MOST_BYTES 1048576u
#define MOST_TENSORS 100000u

enum { EVENT, SET, TENSOR, EXPERT, BYTES, OF, UNIT, COLUMNS };

typedef enum tensor_set { SET_LAYER, SET_FORWARD, SET_BACKWARD } tensor_set;

static const char *const columns[COLUMNS] = {"event", "set", "tensor", "expert",
                                             "bytes", "of",  "unit"};

/* Valid texts of each column; a cell's value is its index here. */
static const char *const sets[] = {"layer", "forward", "backward", NULL};
static const char *const experts[] = {"",       "own",  "next", "previous", "first",
                                      "second", "last", "end",  NULL};
static const char *const scopes[] = {"tokens", "share", "weight", NULL};
static const char *const kinds[] = {"alloc",    "free",   "loop",           "end",
                                    "backward", "output", "input_gradient", NULL};

enum {
    EVENT_ALLOC,
    EVENT_FREE,
    EVENT_LOOP,
    EVENT_END,
    EVENT_BACKWARD,
    EVENT_OUTPUT,
    EVENT_GRADIENT
};
enum { WHOSE_NONE, WHOSE_OWN, WHOSE_NEXT, WHOSE_PREVIOUS, WHOSE_FIRST, WHOSE_SECOND, WHOSE_LAST };
enum { OF_TOKENS, OF_SHARE, OF_WEIGHT };

typedef struct reader {
    const rp_model *model;
    uint64_t tokens;
    rp_csv csv;
    uint32_t column[COLUMNS];
    uint64_t slots[3]; /* for each set the largest tensor number + 1 */
    rpsim_layer_tensors *out;
    size_t room;
} reader;

static rp_status choice(const reader *r, uint32_t row, uint32_t column, const char *const *texts,
                        uint32_t *index_out)
{
    const char *cell = rp_csv_cell(&r->csv, row, r->column[column]);
    for (*index_out = 0; texts[*index_out] != NULL; ++*index_out) {
        if (strcmp(cell, texts[*index_out]) == 0) {
            return RP_OK;
        }
    }
    char shown[RP_CSV_SHOW_SIZE];
    rp_log_error("%s:%u: %s '%s' is unknown; see traces/README.md for the valid values",
                 r->csv.name, r->csv.lines[row], columns[column], rp_csv_show(cell, shown));
    return RP_INPUT;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static bool dimension(const rp_model *m, const char *name, size_t length, uint64_t *value_out)
{
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {{"hidden", m->hidden},
               {"query", (uint64_t)m->heads * m->head_dim},
               {"key", (uint64_t)m->kv_heads * m->head_dim},
               {"intermediate", m->intermediate},
               {"heads", m->heads},
               {"kv_heads", m->kv_heads},
               {"experts", m->experts},
               {"active", m->active_experts},
               {"rank", m->lora_rank},
               {"one", 1}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strlen(all[i].name) == length && memcmp(all[i].name, name, length) == 0) {
            *value_out = all[i].value;
            return true;
        }
    }
    return false;
}

static rp_status size_of(const reader *r, uint32_t row, uint64_t *bytes_out, uint32_t *of_out)
{
    RP_TRY(choice(r, row, OF, scopes, of_out));
    RP_TRY(rp_csv_u64(&r->csv, row, r->column[BYTES], 1, MOST_BYTES, bytes_out));
    const char *unit = rp_csv_cell(&r->csv, row, r->column[UNIT]);
    for (const char *at = unit; at != NULL;) {
        const char *star = strchr(at, '*');
        uint64_t value = 0;
        if (!dimension(r->model, at, star == NULL ? strlen(at) : (size_t)(star - at), &value)) {
            char shown[RP_CSV_SHOW_SIZE];
            rp_log_error("%s:%u: unit '%s' is unknown; see traces/README.md for the valid values",
                         r->csv.name, r->csv.lines[row], rp_csv_show(unit, shown));
            return RP_INPUT;
        }
        *bytes_out *= value;
        at = star == NULL ? NULL : star + 1;
    }
    uint64_t share =
        (r->tokens * r->model->active_experts + r->model->experts - 1) / r->model->experts;
    *bytes_out *= *of_out == OF_TOKENS ? r->tokens : *of_out == OF_SHARE ? share : 1;
    return RP_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static rp_status count_slots(reader *r)
{
    for (uint32_t row = 0; row < r->csv.rows; row++) {
        uint32_t kind = 0;
        uint32_t set = 0;
        uint64_t number = 0;
        RP_TRY(choice(r, row, EVENT, kinds, &kind));
        if (kind == EVENT_LOOP || kind == EVENT_END || kind == EVENT_BACKWARD) {
            continue;
        }
        RP_TRY(choice(r, row, SET, sets, &set));
        RP_TRY(rp_csv_u64(&r->csv, row, r->column[TENSOR], 0, MOST_TENSORS, &number));
        r->slots[set] = number + 1 > r->slots[set] ? number + 1 : r->slots[set];
    }
    return RP_OK;
}

/* The number of a row's tensor. A tensor of a loop has an instance per expert and two more: number
 * 0 before the first expert, and "end" after the last. */
static rp_status tensor_of(const reader *r, uint32_t row, uint32_t expert, uint32_t *tensor_out)
{
    uint32_t set = 0;
    uint32_t whose = 0;
    uint64_t number = 0;
    RP_TRY(choice(r, row, SET, sets, &set));
    RP_TRY(choice(r, row, EXPERT, experts, &whose));
    RP_TRY(rp_csv_u64(&r->csv, row, r->column[TENSOR], 0, MOST_TENSORS, &number));
    uint64_t instances = (uint64_t)r->model->experts + 2;
    uint64_t own = (uint64_t)expert + 1; /* the first expert's "previous" is 0 */
    uint64_t last = r->model->experts;
    const uint64_t instance[] = {0, own, own + 1, own - 1, 1, 2, last, last + 1};
    uint64_t base = set == SET_LAYER     ? 0
                    : set == SET_FORWARD ? r->slots[SET_LAYER]
                                         : r->slots[SET_LAYER] + r->slots[SET_FORWARD] * instances;
    *tensor_out =
        (uint32_t)(set == SET_LAYER ? number : base + number * instances + instance[whose]);
    return RP_OK;
}

static rp_status add_row(reader *r, uint32_t row, uint32_t expert)
{
    rpsim_layer_tensors *out = r->out;
    uint32_t kind = 0;
    uint32_t tensor = 0;
    RP_TRY(choice(r, row, EVENT, kinds, &kind));
    if (kind == EVENT_BACKWARD) {
        out->backward = out->count;
        return RP_OK;
    }
    RP_TRY(tensor_of(r, row, expert, &tensor));
    if (kind == EVENT_OUTPUT || kind == EVENT_GRADIENT) {
        *(kind == EVENT_OUTPUT ? &out->output : &out->input_gradient) = tensor;
        return RP_OK;
    }
    rpsim_tensor_event *event = &out->events[out->count++];
    *event = (rpsim_tensor_event){.kind = RPSIM_TENSOR_FREE, .tensor = tensor};
    if (kind == EVENT_ALLOC) {
        uint32_t of = 0;
        event->kind = RPSIM_TENSOR_ALLOC;
        RP_TRY(size_of(r, row, &event->bytes, &of));
        event->weight = of == OF_WEIGHT;
    }
    return RP_OK;
}

/* Adds the events of a loop over experts. The forward's loop goes through the experts in order. The
 * backward's loop goes from the last expert down to the second; the rows of the first expert come
 * after the loop. */
static rp_status add_loop(reader *r, uint32_t begin, uint32_t end)
{
    bool backward = r->out->backward != 0;
    uint32_t count = r->model->experts;
    for (uint32_t i = 0; i < (backward ? count - 1 : count); i++) {
        uint32_t expert = backward ? count - 1 - i : i;
        for (uint32_t row = begin; row < end; row++) {
            RP_TRY(add_row(r, row, expert));
        }
    }
    return RP_OK;
}

static rp_status add_all(reader *r)
{
    for (uint32_t row = 0; row < r->csv.rows; row++) {
        const char *event = rp_csv_cell(&r->csv, row, r->column[EVENT]);
        if (strcmp(event, "loop") != 0) {
            RP_TRY(add_row(r, row, 0));
            continue;
        }
        uint32_t end = row + 1;
        while (end < r->csv.rows &&
               strcmp(rp_csv_cell(&r->csv, end, r->column[EVENT]), "end") != 0) {
            end++;
        }
        RP_TRY(add_loop(r, row + 1, end));
        row = end;
    }
    return RP_OK;
}

static rp_status read_rows(reader *r, rp_arena *arena)
{
    for (uint32_t i = 0; i < COLUMNS; i++) {
        RP_TRY(rp_csv_column(&r->csv, columns[i], &r->column[i]));
    }
    RP_TRY(count_slots(r));
    uint64_t instances = (uint64_t)r->model->experts + 2;
    r->out->tensors = (uint32_t)(r->slots[SET_LAYER] +
                                 (r->slots[SET_FORWARD] + r->slots[SET_BACKWARD]) * instances);
    size_t most = (size_t)r->csv.rows * r->model->experts;
    RP_TRY(rp_arena_alloc(arena, most, sizeof *r->out->events, &r->out->events));
    return add_all(r);
}

static const char *kind_of(const rp_model *model)
{
    bool lora = model->lora_rank != 0;
    if (model->attention_bias) {
        return "gpt-oss";
    }
    if (model->experts > 1) {
        return lora ? "moe-qk-norm-lora" : "moe-qk-norm";
    }
    if (model->qk_norm) {
        return lora ? "dense-qk-norm-lora" : "dense-qk-norm";
    }
    return lora ? "dense-lora" : "dense";
}

rp_status rpsim_layer_tensors_load(const rp_model *model, uint64_t tokens, rp_arena *arena,
                                   rpsim_layer_tensors *tensors_out)
{
    reader r = {.model = model, .tokens = tokens, .out = tensors_out};
    *tensors_out = (rpsim_layer_tensors){0};
    const char *file = NULL;
    RP_TRY(rp_arena_print(arena, &file, "layers/%s.csv", kind_of(model)));
    RP_TRY(rp_data_read_csv(file, arena, &r.csv));
    return read_rows(&r, arena);
}
