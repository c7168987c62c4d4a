/* Reads the text form of a program, described in text.c. */
#include "common/program/read_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- stages and chains ----------------------------------------------------------------------- */

/* Reads the rest of the line `lowered`: a number of sequences for each microbatch. */
static rp_status read_lowered(rp_reader *r)
{
    rp_program *p = r->program;
    if (p->op_bytes != NULL) {
        RP_READ_FAIL(r, "lowered: repeated");
    }
    RP_TRY(rp_arena_alloc(p->arena, r->op_capacity, sizeof(uint64_t), &p->op_bytes));
    if (!rp_read_word(r) || !rp_dtype_parse(r->word, &p->dtype)) {
        RP_READ_FAIL(r, "lowered: '%s' is no type; valid values are fp32, fp16, bf16", r->word);
    }
    /* Most words that the line can have, so that a large microbatch count by itself allocates
     * nothing. */
    size_t most = (size_t)(r->line_end - r->word_begin) / 2 + 1;
    if (p->microbatch_count > most) {
        RP_READ_FAIL(r, "lowered: valid are %u numbers of sequences, one per microbatch",
                     p->microbatch_count);
    }
    RP_TRY(rp_arena_alloc(p->arena, p->microbatch_count, sizeof(uint32_t), &p->sequences));
    for (uint32_t m = 0; m < p->microbatch_count; m++) {
        uint64_t sequences = 0;
        RP_TRY(rp_read_number(r, "sequences of a microbatch", 0, RP_MAX_SEQUENCES, &sequences));
        p->sequences[m] = (uint32_t)sequences;
    }
    return rp_read_line_end(r);
}

static rp_status parse_layers(rp_reader *r, rp_stage *stage)
{
    uint64_t begin = 0;
    uint64_t end = 0;
    char *dots = rp_read_word(r) ? strstr(r->word, "..") : NULL;
    bool valid = false;
    if (dots != NULL) {
        *dots = '\0';
        valid = rp_parse_u64(r->word, 0, RP_MAX_LAYERS, &begin) &&
                rp_parse_u64(dots + 2, begin, RP_MAX_LAYERS, &end);
    }
    if (!valid) {
        RP_READ_FAIL(
            r, "stage: layers are missing or no range; valid are ranges such as 0..7 within the "
               "model's layers");
    }
    stage->layer_begin = (uint32_t)begin;
    stage->layer_end = (uint32_t)end;
    return RP_OK;
}

static rp_status read_stage(rp_reader *r)
{
    rp_program *p = r->program;
    if (p->stage_count == 2 * RP_MAX_STAGES) {
        RP_READ_FAIL(r, "more than %u stages", 2 * RP_MAX_STAGES);
    }
    rp_stage *stage = &p->stages[p->stage_count];
    RP_TRY(parse_layers(r, stage));
    while (rp_read_word(r)) {
        uint32_t role = strcmp(r->word, "forward") == 0    ? RP_STAGE_FORWARD_LAYERS
                        : strcmp(r->word, "backward") == 0 ? RP_STAGE_BACKWARD_LAYERS
                        : strcmp(r->word, "head") == 0     ? RP_STAGE_HEAD
                                                           : 0;
        if (role == 0 || (stage->roles & role) != 0) {
            RP_READ_FAIL(
                r,
                "stage: role '%s' is unknown or repeated; valid values are forward, backward, "
                "head",
                r->word);
        }
        stage->roles |= role;
    }
    p->stage_count++;
    return RP_OK;
}

static rp_status read_stages(rp_reader *r)
{
    RP_TRY(
        rp_arena_alloc(r->program->arena, r->op_capacity, sizeof(rp_stage), &r->program->stages));
    for (;;) {
        if (!rp_read_line(r)) {
            RP_READ_FAIL(r, "the file ends where 'stage' or 'forward-chain' is expected");
        }
        rp_read_word(r);
        if (strcmp(r->word, "lowered") == 0 && r->program->stage_count == 0) {
            RP_TRY(read_lowered(r));
            continue;
        }
        if (strcmp(r->word, "stage") != 0) {
            return RP_OK;
        }
        RP_TRY(read_stage(r));
    }
}

/* Reads a chain, after the key has been read into r->word. */
static rp_status read_chain(rp_reader *r, const char *key, uint16_t **chain_out,
                            uint32_t *count_out)
{
    const rp_program *p = r->program;
    if (strcmp(r->word, key) != 0) {
        RP_READ_FAIL(r, "'%s' where '%s' is expected", r->word, key);
    }
    RP_TRY(rp_arena_alloc(p->arena, p->stage_count, sizeof(uint16_t), chain_out));
    uint32_t count = 0;
    while (r->word_begin < r->line_end) {
        uint64_t stage = 0;
        if (!rp_read_word(r)) {
            break;
        }
        if (count == p->stage_count || !rp_parse_u64(r->word, 0, p->stage_count - 1, &stage)) {
            RP_READ_FAIL(
                r, "%s: '%s' is no stage or one too many; valid are stages 0 to %u, each once", key,
                r->word, p->stage_count == 0 ? 0 : p->stage_count - 1);
        }
        (*chain_out)[count++] = (uint16_t)stage;
    }
    *count_out = count;
    return RP_OK;
}

/* ---- queues, ops, buffers -------------------------------------------------------------------- */

static rp_status read_queue(rp_reader *r)
{
    rp_program *p = r->program;
    rp_queue *queue = &p->queues[p->queue_count];
    if (!rp_read_word(r)) {
        RP_READ_FAIL(r, "queue: the kind is missing");
    }
    queue->kind = RP_QUEUE_KIND_COUNT;
    for (int k = 0; k < RP_QUEUE_KIND_COUNT; k++) {
        if (strcmp(r->word, rp_queue_kind_text((rp_queue_kind)k)) == 0) {
            queue->kind = (uint16_t)k;
        }
    }
    if (queue->kind == RP_QUEUE_KIND_COUNT) {
        RP_READ_FAIL(
            r,
            "queue: unknown kind '%s'; valid values are compute, param-upload, act-upload, "
            "download, peer, dispatch, optimizer, peer-receive, tensor-group, data-group, "
            "expert-group, replica-group",
            r->word);
    }
    if (rp_queue_kind_on_gpu((rp_queue_kind)queue->kind)) {
        uint64_t gpu = 0;
        RP_TRY(rp_read_number(r, "queue's GPU", 0, p->gpu_count - 1, &gpu));
        queue->gpu = (uint16_t)gpu;
    }
    queue->op_begin = queue->op_end = p->op_count;
    p->queue_count++;
    return rp_read_line_end(r);
}

static int compare_waits(const void *a, const void *b)
{
    uint32_t left = rp_wait_op(*(const rp_wait *)a);
    uint32_t right = rp_wait_op(*(const rp_wait *)b);
    return left < right ? -1 : left > right;
}

/* Reads bytes and adds them to `total`; the limits keep sums of read numbers from wrapping. */
static rp_status read_size(rp_reader *r, const char *of, uint64_t low, uint64_t *total,
                           uint64_t *bytes_out)
{
    char what[32];
    snprintf(what, sizeof what, "bytes of the %s", of);
    RP_TRY(rp_read_number(r, what, low, RP_MAX_BYTES, bytes_out));
    *total += *bytes_out;
    if (*total > RP_MAX_TOTAL_BYTES) {
        RP_READ_FAIL(r, "the %ss up to here have %llu bytes; valid are up to %llu in a program", of,
                     (unsigned long long)*total, (unsigned long long)RP_MAX_TOTAL_BYTES);
    }
    return RP_OK;
}

static rp_status read_bytes(rp_reader *r, const rp_op *op)
{
    rp_program *p = r->program;
    if (p->op_bytes == NULL) {
        RP_READ_FAIL(r, "bytes: valid only in lowered programs");
    }
    return read_size(r, "op", 1, &r->op_total, &p->op_bytes[op - p->ops]);
}

static uint8_t flag_of(const char *word)
{
    return strcmp(word, "join") == 0      ? RP_OP_JOIN
           : strcmp(word, "overlap") == 0 ? RP_OP_OVERLAP
                                          : 0;
}

static rp_status read_waits(rp_reader *r, rp_op *op)
{
    rp_program *p = r->program;
    op->wait_begin = p->wait_count;
    int mode = 0; /* 1: data waits follow, 2: control waits */
    while (rp_read_word(r)) {
        uint8_t flag = flag_of(r->word);
        if (flag != 0 && mode == 0 && op->flags == 0) {
            op->flags = flag;
            continue;
        }
        if (strcmp(r->word, "bytes") == 0 && mode == 0) {
            RP_TRY(read_bytes(r, op));
            continue;
        }
        int word = strcmp(r->word, "after") == 0 ? 1 : strcmp(r->word, "order") == 0 ? 2 : 0;
        if (word > mode) {
            mode = word;
            continue;
        }
        uint64_t target = 0;
        if (mode == 0 || !rp_parse_u64(r->word, 0, RP_MAX_OPS - 1, &target)) {
            RP_READ_FAIL(
                r,
                "'%s' is not valid here; an op's line goes on with join or overlap, after OP…, "
                "order OP…",
                r->word);
        }
        if (target > r->last_wait) {
            r->last_wait = target;
            r->last_wait_line = r->line;
        }
        p->waits[p->wait_count++] = (rp_wait)target | (mode == 2 ? RP_WAIT_CONTROL : 0);
    }
    qsort(&p->waits[op->wait_begin], p->wait_count - op->wait_begin, sizeof(rp_wait),
          compare_waits);
    return RP_OK;
}

/* Cuts a number from 1 to `most` and the mark before it off r->word; 0 if the mark is missing.
 */
static bool cut_number(rp_reader *r, char mark, uint64_t most, uint16_t *number_out)
{
    uint64_t number = 0;
    char *at = strchr(r->word, mark);
    if (at != NULL) {
        *at = '\0';
        if (!rp_parse_u64(at + 1, 1, most, &number)) {
            return false;
        }
    }
    *number_out = (uint16_t)number;
    return true;
}

/* Cuts "/5@7", layer and iteration, off r->word. Collectives of a group have their number instead
 * of a layer. */
static bool parse_place(rp_reader *r, rp_op *op)
{
    const rp_program *p = r->program;
    uint64_t layers = p->layer_count + UINT64_C(1);
    uint16_t queue = p->queues[p->queue_count - 1].kind; /* a queue comes before every op */
    layers = rp_queue_kind_is_group((rp_queue_kind)queue) ? UINT16_MAX : layers;
    return cut_number(r, '@', r->program->iteration_count - 1, &op->iteration) &&
           cut_number(r, '/', layers < UINT16_MAX ? layers : UINT16_MAX, &op->part);
}

/* Parses "2F0": the kind is the text between the digits. */
static bool parse_op_name(rp_reader *r, rp_op *op)
{
    if (!parse_place(r, op)) {
        return false;
    }
    char *kind = r->word + strspn(r->word, "0123456789");
    char *number = kind + strcspn(kind, "0123456789");
    char kind_text[RP_READ_MAX_WORD];
    memcpy(kind_text, kind, (size_t)(number - kind));
    kind_text[number - kind] = '\0';
    rp_op_kind op_kind = RP_OP_KIND_COUNT;
    if (!rp_op_kind_parse(kind_text, &op_kind)) {
        return false;
    }
    op->kind = (uint8_t)op_kind;
    uint64_t microbatch = 0;
    if (rp_op_kind_class((rp_op_kind)op->kind) == RP_CLASS_HOST) {
        bool layer = *number != '\0' && r->program->op_bytes != NULL &&
                     rp_parse_u64(number, 1, r->program->layer_count + 1, &microbatch);
        op->microbatch = (uint32_t)microbatch;
        return kind == r->word && (*number == '\0' || layer);
    }
    uint64_t stage = 0;
    bool valid = rp_parse_u64(number, 0, r->program->microbatch_count - 1, &microbatch);
    *kind = '\0';
    valid = valid && rp_parse_u64(r->word, 0, r->program->stage_count - 1, &stage);
    op->microbatch = (uint32_t)microbatch;
    op->stage = (uint16_t)stage;
    return valid;
}

static rp_status read_op(rp_reader *r)
{
    rp_program *p = r->program;
    if (p->queue_count == 0) {
        RP_READ_FAIL(r, "'%s' before the first queue", r->word);
    }
    if (p->buffer_count != 0) {
        RP_READ_FAIL(r, "'%s' after the first buffer; valid are ops before buffers", r->word);
    }
    char name[RP_READ_MAX_WORD];
    memcpy(name, r->word, sizeof name);
    rp_op *op = &p->ops[p->op_count];
    *op = (rp_op){0};
    if (!parse_op_name(r, op)) {
        RP_READ_FAIL(
            r,
            "'%s' is no op of this program; valid are STAGE KIND MICROBATCH [/LAYER] [@ITERATION] "
            "such "
            "as 2F0 with stages below %u, microbatches below %u, iterations below %u, and host ops "
            "such as OPTIMIZER",
            name, p->stage_count, p->microbatch_count, p->iteration_count);
    }
    p->op_count++;
    p->queues[p->queue_count - 1].op_end = p->op_count;
    return read_waits(r, op);
}

static rp_status read_buffer(rp_reader *r)
{
    rp_program *p = r->program;
    rp_buffer *buffer = &p->buffers[p->buffer_count];
    buffer->kind = RP_BUFFER_KIND_COUNT;
    bool word = rp_read_word(r);
    for (int k = 0; word && k < RP_BUFFER_KIND_COUNT; k++) {
        if (strcmp(r->word, rp_buffer_kind_text((rp_buffer_kind)k)) == 0) {
            buffer->kind = (uint16_t)k;
        }
    }
    if (buffer->kind == RP_BUFFER_KIND_COUNT) {
        RP_READ_FAIL(
            r,
            "buffer: unknown kind '%s'; valid values are activation, gradient, weight, tape, "
            "temporary, logits, optimizer",
            r->word);
    }
    uint64_t value = 0;
    RP_TRY(read_size(r, "buffer", 0, &r->buffer_total, &buffer->bytes));
    buffer->place = RP_PLACE_HOST;
    if (rp_read_word(r) && strcmp(r->word, "gpu") == 0) {
        RP_TRY(rp_read_number(r, "buffer's GPU", 0, p->gpu_count - 1, &value));
        buffer->place = (uint16_t)value;
    } else if (strcmp(r->word, "host") != 0) {
        RP_READ_FAIL(r, "buffer: unknown place '%s'; valid values are host and gpu N", r->word);
    }
    uint64_t last = p->op_count > 0 ? p->op_count - 1 : 0; /* ops come before buffers */
    RP_TRY(rp_read_number(r, "buffer's first op", 0, last, &value));
    buffer->alloc_op = (uint32_t)value;
    RP_TRY(rp_read_number(r, "buffer's last op", 0, last, &value));
    buffer->free_op = (uint32_t)value;
    p->buffer_count++;
    return rp_read_line_end(r);
}

static rp_status read_body_line(rp_reader *r)
{
    rp_read_word(r);
    if (strcmp(r->word, "queue") == 0) {
        if (r->program->buffer_count != 0) {
            RP_READ_FAIL(r, "queue after the first buffer; valid are queues before buffers");
        }
        return read_queue(r);
    }
    if (strcmp(r->word, "buffer") == 0) {
        return read_buffer(r);
    }
    if (strcmp(r->word, "end") == 0) {
        r->saw_end = true;
        return rp_read_line_end(r);
    }
    return read_op(r);
}

static rp_status read_body(rp_reader *r)
{
    rp_program *p = r->program;
    rp_arena *arena = p->arena;
    RP_TRY(rp_arena_alloc(arena, r->op_capacity, sizeof(rp_queue), &p->queues));
    RP_TRY(rp_arena_alloc(arena, (size_t)r->op_capacity + 1, sizeof(rp_op), &p->ops));
    RP_TRY(rp_arena_alloc(arena, r->wait_capacity, sizeof(rp_wait), &p->waits));
    RP_TRY(rp_arena_alloc(arena, r->op_capacity, sizeof(rp_buffer), &p->buffers));
    while (rp_read_line(r)) {
        if (r->saw_end) {
            RP_READ_FAIL(r, "the program has ended; nothing may follow 'end'");
        }
        RP_TRY(read_body_line(r));
    }
    if (!r->saw_end) {
        RP_READ_FAIL(r, "the file ends where 'end' is expected: it is cut off");
    }
    if (r->last_wait >= p->op_count && r->last_wait_line != 0) {
        rp_log_error_at(r->name, r->last_wait_line,
                        "op %llu, which is waited for, does not exist; valid values are 0 to %lld",
                        (unsigned long long)r->last_wait, (long long)p->op_count - 1);
        return RP_INPUT;
    }
    p->ops[p->op_count] = (rp_op){.wait_begin = p->wait_count};
    return RP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static rp_status set_capacities(rp_reader *r)
{
    uint64_t lines = 1;
    uint64_t blanks = 0;
    for (const char *c = r->cursor; c < r->end; c++) {
        lines += *c == '\n' ? 1 : 0;
        blanks += *c == ' ' ? 1 : 0;
    }
    if (lines > RP_MAX_OPS || blanks > UINT32_MAX) {
        RP_READ_FAIL(r, "the file is too long; valid are up to %u ops", RP_MAX_OPS);
    }
    r->op_capacity = (uint32_t)lines;
    r->wait_capacity = blanks;
    return RP_OK;
}

static rp_status read_all(rp_reader *r)
{
    rp_program *p = r->program;
    RP_TRY(set_capacities(r));
    RP_TRY(rp_read_header(r));
    RP_TRY(read_stages(r));
    RP_TRY(read_chain(r, "forward-chain", &p->forward_chain, &p->forward_count));
    RP_TRY(rp_read_key(r, "backward-chain"));
    RP_TRY(read_chain(r, "backward-chain", &p->backward_chain, &p->backward_count));
    RP_TRY(read_body(r));
    return rp_program_check(p);
}

rp_status rp_program_read(const char *name, const char *text, size_t length,
                          rp_program **program_out)
{
    *program_out = NULL;
    rp_reader r = {.name = name, .cursor = text, .end = text + length};
    RP_TRY(rp_program_create(&r.program));
    rp_status status = read_all(&r);
    if (status != RP_OK) {
        rp_program_destroy(r.program);
        return status;
    }
    *program_out = r.program;
    return RP_OK;
}
