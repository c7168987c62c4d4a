/* Reads the cells of a schedule CSV. */
#include "common/base/log.h"
#include "common/formats/csv.h"
#include "common/torch/torch_csv.h"

#include <string.h>

#define ACTION_WANTED                                                                              \
    "valid are cells such as 0F1, 2B0, 1UNSHARD, 3SEND_F1 and (0F7;7B3)OVERLAP_F_B"
/* bytes; a longer cell is not an action: stages and microbatches have few digits. */
#define MAX_CELL 96

static const struct {
    const char *text;
    bool has_microbatch;
    bool computes;
} types[RP_TORCH_TYPE_COUNT] = {
#define TYPE_ENTRY(name, text, has_microbatch, computes, meaning)                                  \
    [RP_TORCH_##name] = {text, has_microbatch, computes},
    RP_TORCH_TYPE_LIST(TYPE_ENTRY)
#undef TYPE_ENTRY
};

typedef struct reader {
    const char *name;
    const char *at;
    const char *end;
    uint32_t row;    /* number from 0; a row is a line */
    uint32_t column; /* from 0 */
    uint32_t count;  /* actions so far */
    rp_torch_csv *csv;
    bool blank; /* a blank cell was seen, the first at: */
    uint32_t blank_row, blank_column;
    bool pairs;
    bool full_cell; /* a BW was seen: legacy */
    uint32_t full_row, full_column;
    bool has[RP_TORCH_TYPE_COUNT];
} reader;

const char *rp_torch_type_text(rp_torch_type type)
{
    return types[type].text;
}

bool rp_torch_type_has_microbatch(rp_torch_type type)
{
    return types[type].has_microbatch;
}

bool rp_torch_type_computes(rp_torch_type type)
{
    return types[type].computes;
}

const char *rp_torch_action_name(const rp_torch_action *a, char text[static RP_TORCH_NAME_SIZE])
{
    int length = snprintf(text, RP_TORCH_NAME_SIZE, "%u%s", a->stage, types[a->type].text);
    if (types[a->type].has_microbatch) {
        snprintf(text + length, RP_TORCH_NAME_SIZE - (size_t)length, "%u", a->microbatch);
    }
    return text;
}

_Static_assert(RP_MAX_STAGES == 32767 && RP_MAX_MICROBATCHES == 1048576, "texts below");

static rp_status refuse(const reader *r, const char *cell, const char *cause, const char *valid)
{
    char shown[RP_CSV_SHOW_SIZE];
    rp_log_error_at(r->name, r->row + 1, "row %u, column %u: '%s' %s; %s", r->row + 1,
                    r->column + 1, rp_csv_show(cell, shown), cause, valid);
    return RP_INPUT;
}

/* ---- a cell ---------------------------------------------------------------------------------- */

/* Reads decimal digits. @return the end of the number; NULL if there is no number or it is `limit`
 * or more */
static const char *take_number(const char *at, uint32_t limit, uint32_t *value_out)
{
    uint64_t value = 0;
    const char *begin = at;
    for (; *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
        if (value >= limit) {
            return NULL;
        }
    }
    *value_out = (uint32_t)value;
    return at == begin ? NULL : at;
}

/* Reads a type; BW, the legacy full backward, is read as RP_TORCH_TYPE_COUNT. */
static const char *take_type(const char *at, uint8_t *type_out)
{
    size_t length = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    for (uint8_t t = 0; t < RP_TORCH_TYPE_COUNT; t++) {
        if (strlen(types[t].text) == length && memcmp(types[t].text, at, length) == 0) {
            *type_out = t;
            return at + length;
        }
    }
    *type_out = RP_TORCH_TYPE_COUNT;
    return length == 2 && memcmp(at, "BW", 2) == 0 ? at + 2 : NULL;
}

/* Cause of a mistake in an action, and the valid values. */
typedef struct mistake {
    const char *cause;
    const char *valid;
} mistake;

/* @return the text after the action, or NULL; *full_out: the action was a BW */
static const char *scan_action(const char *text, rp_torch_action *action, bool *full_out,
                               mistake *mistake_out)
{
    const char *at = take_number(text, RP_MAX_STAGES, &action->stage);
    if (at == NULL) {
        *mistake_out = (mistake){"does not begin with a stage from 0 to 32766", ACTION_WANTED};
        return NULL;
    }
    at = take_type(at, &action->type);
    if (at == NULL) {
        *mistake_out = (mistake){"has no known type",
                                 "valid types are F, I, W, B, UNSHARD, RESHARD, REDUCE_GRAD, "
                                 "SEND_F, RECV_F, SEND_B, RECV_B, WAIT_SEND_F, WAIT_SEND_B, "
                                 "WAIT_REDUCE_GRAD"};
        return NULL;
    }
    *full_out = action->type == RP_TORCH_TYPE_COUNT;
    action->type = *full_out ? RP_TORCH_BACKWARD : action->type;
    if (types[action->type].has_microbatch) {
        at = take_number(at, RP_MAX_MICROBATCHES, &action->microbatch);
        *mistake_out = (mistake){"has no microbatch from 0 to 1048575", ACTION_WANTED};
    }
    return at;
}

uint32_t rp_torch_action_parse(const char *text, rp_torch_action parts_out[static 2])
{
    bool full = false;
    mistake ignored;
    uint32_t count = *text == '(' ? 2 : 1;
    const char *at = text + (count - 1);
    for (uint32_t i = 0; i < count && at != NULL; i++) {
        parts_out[i] = (rp_torch_action){.overlaps_next = i + 1 < count};
        at = scan_action(at, &parts_out[i], &full, &ignored);
        bool ends = at != NULL && !full && strcmp(at, count == 2 ? ")OVERLAP_F_B" : "") == 0;
        if (i + 1 == count) {
            return ends ? count : 0;
        }
        at = at != NULL && !full && *at == ';' ? at + 1 : NULL;
    }
    return 0;
}

/* Adds an action. @param text a whole action @param cell text that messages show */
static rp_status add_action(reader *r, const char *text, const char *cell, bool overlaps_next)
{
    rp_torch_action action = {.column = r->column, .overlaps_next = overlaps_next};
    bool full = false;
    mistake wrong;
    const char *at = scan_action(text, &action, &full, &wrong);
    if (at == NULL) {
        return refuse(r, cell, wrong.cause, wrong.valid);
    }
    if (*at != '\0') {
        return refuse(r, cell, "goes on behind the action", ACTION_WANTED);
    }
    if (full && !r->full_cell) {
        r->full_cell = true;
        r->full_row = r->row;
        r->full_column = r->column;
    }
    /* Distinguishes a BW from a legacy B, the input's gradient, until all cells are read. */
    action.unused = full;
    r->has[action.type] = r->has[action.type] || !full;
    r->csv->lowered = r->csv->lowered || !types[action.type].computes;
    rp_torch_csv *csv = r->csv;
    csv->actions[r->count++] = action;
    csv->stage_count = action.stage >= csv->stage_count ? action.stage + 1 : csv->stage_count;
    csv->microbatch_count =
        action.microbatch >= csv->microbatch_count ? action.microbatch + 1 : csv->microbatch_count;
    return RP_OK;
}

static char *trim(char *text)
{
    text += strspn(text, " ");
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ') {
        text[--length] = '\0';
    }
    return text;
}

#define PAIR_WANTED                                                                                \
    "valid are a forward and a full backward of another stage or microbatch, as "                  \
    "(0F7;7B3)OVERLAP_F_B"

static rp_status add_pair(reader *r, char *text, const char *cell)
{
    char *close = strchr(text, ')');
    char *middle = strchr(text, ';');
    if (close == NULL || strcmp(close + 1, "OVERLAP_F_B") != 0) {
        return refuse(r, cell, "is no pair", PAIR_WANTED);
    }
    *close = '\0';
    if (middle == NULL || middle > close || strchr(middle + 1, ';') != NULL) {
        return refuse(r, cell, "is not made of two actions", PAIR_WANTED);
    }
    *middle = '\0';
    RP_TRY(add_action(r, trim(text + 1), cell, true));
    RP_TRY(add_action(r, trim(middle + 1), cell, false));
    r->pairs = true;
    const rp_torch_action *pair = &r->csv->actions[r->count - 2];
    if (pair[0].type != RP_TORCH_FORWARD || pair[1].type != RP_TORCH_BACKWARD ||
        (pair[0].stage == pair[1].stage && pair[0].microbatch == pair[1].microbatch)) {
        return refuse(r, cell, "does not overlap a forward with a backward", PAIR_WANTED);
    }
    return RP_OK;
}

/* @param raw the text of a cell between the commas */
static rp_status add_cell(reader *r, const char *raw, size_t length)
{
    char cell[MAX_CELL + 1];
    char text[MAX_CELL + 1];
    size_t kept = length < MAX_CELL ? length : MAX_CELL;
    memcpy(cell, raw, kept);
    cell[kept] = '\0';
    for (size_t i = 0; i < kept; i++) { /* messages are a single line of ASCII */
        cell[i] = cell[i] >= ' ' && cell[i] <= '~' ? cell[i] : '?';
    }
    if (length > MAX_CELL) {
        return refuse(r, cell, "is too long for an action", ACTION_WANTED);
    }
    memcpy(text, cell, kept + 1);
    char *action = trim(text);
    size_t size = strlen(action);
    if (*action == '"') {
        if (size < 2 || action[size - 1] != '"') {
            return refuse(r, cell, "has one quote only", "valid are cells quoted as a whole");
        }
        action[size - 1] = '\0';
        action = trim(action + 1);
    }
    if (*action == '\0') {
        r->blank_row = r->blank ? r->blank_row : r->row;
        r->blank_column = r->blank ? r->blank_column : r->column;
        r->blank = true;
        return RP_OK;
    }
    return *action == '(' ? add_pair(r, action, cell) : add_action(r, action, cell, false);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static rp_status read_row(reader *r)
{
    const char *newline = memchr(r->at, '\n', (size_t)(r->end - r->at));
    const char *stop = newline != NULL ? newline : r->end;
    const char *next = newline != NULL ? newline + 1 : r->end;
    stop -= stop > r->at && stop[-1] == '\r' ? 1 : 0;
    if (r->row == RP_MAX_GPUS) {
        rp_log_error_at(r->name, r->row + 1, "row %u: too many ranks; valid are up to %u rows",
                        r->row + 1, RP_MAX_GPUS);
        return RP_INPUT;
    }
    uint32_t before = r->count;
    r->csv->row_begin[r->row] = before;
    for (r->column = 0;; r->column++) {
        const char *comma = memchr(r->at, ',', (size_t)(stop - r->at));
        const char *cell_end = comma != NULL ? comma : stop;
        RP_TRY(add_cell(r, r->at, (size_t)(cell_end - r->at)));
        if (comma == NULL) {
            break;
        }
        r->at = comma + 1;
    }
    if (r->count == before) {
        rp_log_error_at(r->name, r->row + 1,
                        "row %u: a rank without actions; valid are rows with at least one action, "
                        "such as 0F0,0B0",
                        r->row + 1);
        return RP_INPUT;
    }
    r->at = next;
    r->row++;
    r->csv->row_begin[r->row] = r->count;
    return RP_OK;
}

/* Decides the dialect; see the head of torch_csv.h. */
static rp_status settle_dialect(reader *r)
{
    rp_torch_csv *csv = r->csv;
    if (r->full_cell && r->pairs) {
        rp_log_error_at(r->name, r->full_row + 1,
                        "row %u, column %u: BW is of the legacy dialect, which has no pairs, and "
                        "the file has some; valid is B for a full backward",
                        r->full_row + 1, r->full_column + 1);
        return RP_INPUT;
    }
    csv->legacy = r->full_cell || (r->has[RP_TORCH_BACKWARD_WEIGHT] && r->has[RP_TORCH_BACKWARD] &&
                                   !r->has[RP_TORCH_BACKWARD_INPUT] && !r->pairs);
    for (uint32_t i = 0; i < r->count; i++) {
        rp_torch_action *action = &csv->actions[i];
        if (csv->legacy && action->type == RP_TORCH_BACKWARD && action->unused == 0) {
            action->type = RP_TORCH_BACKWARD_INPUT;
        }
        action->unused = 0;
    }
    return RP_OK;
}

static size_t count_bytes(const char *text, size_t length, char byte)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        count += text[i] == byte ? 1 : 0;
    }
    return count;
}

rp_status rp_torch_csv_parse(const char *name, const char *text, size_t length, rp_arena *arena,
                             rp_torch_csv *csv_out)
{
    *csv_out = (rp_torch_csv){.name = name};
    if (length == 0) {
        rp_log_error_at(name, 1, "the file is empty; valid is one row of actions per rank");
        return RP_INPUT;
    }
    if (length > RP_CSV_MAX_BYTES) {
        rp_log_error_at(name, 1, "%zu bytes; valid are files of up to %zu bytes", length,
                        RP_CSV_MAX_BYTES);
        return RP_INPUT;
    }
    size_t rows = count_bytes(text, length, '\n') + 1;
    size_t cells = rows + count_bytes(text, length, ',') + count_bytes(text, length, ';');
    rows = rows < RP_MAX_GPUS ? rows : RP_MAX_GPUS;
    RP_TRY(rp_arena_alloc(arena, rows + 1, sizeof *csv_out->row_begin, &csv_out->row_begin));
    RP_TRY(rp_arena_alloc_raw(arena, cells, sizeof *csv_out->actions, &csv_out->actions));
    reader r = {.name = name, .at = text, .end = text + length, .csv = csv_out};
    while (r.at < r.end) {
        RP_TRY(read_row(&r));
    }
    csv_out->rank_count = r.row;
    if (csv_out->lowered && r.blank) {
        rp_log_error_at(name, r.blank_row + 1,
                        "row %u, column %u: a blank cell in a lowered schedule; valid are actions "
                        "without gaps, or computations (F, I, W, B) alone",
                        r.blank_row + 1, r.blank_column + 1);
        return RP_INPUT;
    }
    return settle_dialect(&r);
}
