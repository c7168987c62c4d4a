#include "sim/run/memory/memory.h"

#include "common/base/log.h"
#include "common/base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB 1073741824.0
#define FEW_CHANGES 32u /* up to this number, changes are sorted by insertion */

/* A buffer is allocated or freed. */
typedef struct change {
    uint64_t time_ps;
    uint32_t buffer;
    bool freed;
} change;

typedef struct place {
    int64_t live;   /* bytes of live buffers */
    uint64_t peak;  /* peak of all bytes, fixed bytes and overhead included */
    uint64_t limit; /* 0: no limit */
    uint64_t fixed;
    double overhead;
    double reserved; /* bytes that an allocator takes for live buffers */
    double most_reserved;
} place;

typedef struct meter {
    const rp_timeline *timeline;
    const rp_program *program;
    place *places; /* [gpu_count + 1], the host last */
    const rpsim_memory_limits *limits;
    bool host_first; /* the host has overflowed before any GPU */
    rpsim_memory *out;
} meter;

/* Usable memory of a GPU of a node, in GB. */
static double usable_gb(const rp_platform *p, uint32_t gpu)
{
    double all_gb = p->memory_gb * rp_platform_share(&p->each.memory_gb, gpu);
    double left_gb = all_gb - 1e-9 * GIB * rp_platform_card(p, gpu)->reserved_gib;
    double given_gb = p->usable_memory_gb * rp_platform_share(&p->each.usable_memory_gb, gpu);
    given_gb = p->each.memory_gb.count > 0 && given_gb > all_gb ? all_gb : given_gb;
    return given_gb > 0 ? given_gb : left_gb > 0 ? left_gb : 0;
}

static void list_gpus(const rp_platform *p, rpsim_memory_limits *limits)
{
    if (p->each.memory_gb.count == 0 && p->each.usable_memory_gb.count == 0 && p->cards == NULL) {
        return;
    }
    uint32_t of_node = p->gpus / p->nodes;
    limits->listed = of_node < RP_LISTED_GPUS ? of_node : RP_LISTED_GPUS;
    limits->gpu_bytes = UINT64_MAX;
    for (uint32_t gpu = 0; gpu < limits->listed; gpu++) {
        uint64_t bytes = (uint64_t)(usable_gb(p, gpu) * 1e9);
        limits->each_bytes[gpu] = bytes;
        limits->gpu_bytes = bytes < limits->gpu_bytes ? bytes : limits->gpu_bytes;
    }
}

uint64_t rpsim_memory_limit(const rpsim_memory_limits *limits, uint32_t gpu, uint32_t gpus)
{
    uint32_t inner = limits->inner > 0 ? limits->inner : 1;
    uint32_t outer = limits->outer > 0 ? limits->outer : 1;
    uint64_t least = limits->listed > 0 ? UINT64_MAX : limits->gpu_bytes;
    for (uint32_t copy = 0; limits->listed > 0 && copy < inner * outer; copy++) {
        uint32_t real = copy / inner * inner * gpus + gpu * inner + copy % inner;
        uint64_t bytes = limits->each_bytes[real % limits->listed];
        least = bytes < least ? bytes : least;
    }
    return least;
}

rpsim_memory_limits rpsim_memory_limits_of(const rp_platform *platform, const rp_traits *traits,
                                           uint32_t gpus)
{
    uint32_t of_server = platform->gpus / platform->nodes;
    uint32_t servers = (gpus - 1) / of_server + 1;
    double fixed_gb = platform->context_gb + platform->workspace_gb;
    fixed_gb += traits->communicator ? platform->communicator_gb : 0;
    fixed_gb += traits->one_dispatcher ? platform->process_gb : 0;
    rpsim_memory_limits limits = {.gpu_bytes = (uint64_t)(usable_gb(platform, 0) * 1e9),
                                  .gpu_fixed_bytes = (uint64_t)(fixed_gb * 1e9),
                                  .gpu_overhead = platform->allocator_overhead_pct / 100,
                                  .host_bytes =
                                      (uint64_t)(servers * platform->host_memory_gb * 1e9),
                                  .host_servers = servers};
    list_gpus(platform, &limits);
    return limits;
}

bool rpsim_memory_host_fits(const rpsim_memory *memory)
{
    return memory->host_bytes == 0 || memory->peak_host_bytes <= memory->host_bytes;
}

/* Keeps the parts in their order, largest first. */
static void add_part(rpsim_memory_need *need, const char *name, uint64_t bytes)
{
    if (bytes == 0 || need->part_count == RPSIM_NEED_PARTS) {
        return;
    }
    uint32_t at = need->part_count++;
    for (; at > 0 && need->parts[at - 1].bytes < bytes; at--) {
        need->parts[at] = need->parts[at - 1];
    }
    need->parts[at].name = name;
    need->parts[at].bytes = bytes;
}

void rpsim_memory_say_need(const rpsim_memory_need *need, uint32_t columns, char *text, size_t size)
{
    static const char more[] = ", …";
    size_t length =
        (size_t)snprintf(text, size, "needs %.1f of %.1f GB ", 1e-9 * (double)need->need_bytes,
                         1e-9 * (double)need->limit_bytes);
    if (need->host) {
        length += (size_t)snprintf(text + length, size - length, "of host memory");
    } else {
        length += (size_t)snprintf(text + length, size - length, "on GPU %u%s", need->gpu,
                                   need->step ? " in the optimizer's step" : "");
    }
    for (uint32_t i = 0; i < need->part_count; i++) {
        char part[64];
        bool last = i + 1 == need->part_count;
        size_t more_length = last ? 0 : 3;
        int wide = snprintf(part, sizeof part, "%s%s %.1f", i == 0 ? ": " : ", ",
                            need->parts[i].name, 1e-9 * (double)need->parts[i].bytes);
        if (length + (size_t)wide + more_length > columns || length + (size_t)wide + 8 > size) {
            (void)snprintf(text + length, size - length, "%s", i > 0 ? more : "");
            return;
        }
        length += (size_t)snprintf(text + length, size - length, "%s", part);
    }
}

void rpsim_memory_blame_host(rpsim_memory *memory)
{
    char where[48] = "host memory";
    char parts[128] = "";
    if (memory->host_servers > 1) {
        snprintf(where, sizeof where, "the host memory of %u servers", memory->host_servers);
    }
    if (memory->host_fixed_bytes > 0) {
        snprintf(parts, sizeof parts,
                 ": weights, gradients and optimizer %.1f GB, activations on top",
                 1e-9 * (double)memory->host_fixed_bytes);
    }
    memory->fits = false;
    uint64_t fixed = memory->host_fixed_bytes;
    uint64_t rest = memory->peak_host_bytes > fixed ? memory->peak_host_bytes - fixed : 0;
    memory->need = (rpsim_memory_need){
        .host = true, .need_bytes = memory->peak_host_bytes, .limit_bytes = memory->host_bytes};
    add_part(&memory->need, "weights, gradients and optimizer", fixed);
    add_part(&memory->need, "activations", rest);
    snprintf(memory->oom_reason, sizeof memory->oom_reason,
             "needs %.1f of %.1f GB of %s (%llu of %llu bytes)%s",
             1e-9 * (double)memory->peak_host_bytes, 1e-9 * (double)memory->host_bytes, where,
             (unsigned long long)memory->peak_host_bytes, (unsigned long long)memory->host_bytes,
             parts);
}

/* ---- in the order of time -------------------------------------------------------------------- */

/* Compares by time; changes of the same time keep the order of the list: frees first. */
static int compare_changes(const void *left, const void *right)
{
    const change *a = left;
    const change *b = right;
    if (a->time_ps != b->time_ps) {
        return a->time_ps < b->time_ps ? -1 : 1;
    }
    return a->freed != b->freed ? (a->freed ? -1 : 1)
                                : (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

static void insert_sorted(change *changes, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        change c = changes[i];
        uint32_t to = i;
        for (; to > 0 && changes[to - 1].time_ps > c.time_ps; to--) {
            changes[to] = changes[to - 1];
        }
        changes[to] = c;
    }
}

/* Sorts by buckets, as many as there are changes, chosen by the first bits of the time: times are
 * spread over the run, so that few changes are left to sort in each bucket. The order of changes of
 * the same time is kept.
 * @param begins [count + 3] zeroed */
static void sort_changes(const change *changes, uint32_t count, uint32_t *begins, change *sorted)
{
    uint64_t last_ps = 0;
    uint32_t shift = 0;
    for (uint32_t i = 0; i < count; i++) {
        last_ps = changes[i].time_ps > last_ps ? changes[i].time_ps : last_ps;
    }
    while (last_ps >> shift > count) {
        shift++;
    }
    uint32_t buckets = (uint32_t)(last_ps >> shift) + 1;
    for (uint32_t i = 0; i < count; i++) {
        begins[(changes[i].time_ps >> shift) + 1]++;
    }
    for (uint32_t k = 0; k < buckets; k++) {
        begins[k + 1] += begins[k];
    }
    for (uint32_t i = 0; i < count; i++) {
        sorted[begins[changes[i].time_ps >> shift]++] = changes[i];
    }
    uint32_t begin = 0;
    for (uint32_t k = 0; k < buckets; k++) { /* begins[k] is the end of bucket k by now */
        uint32_t of_bucket = begins[k] - begin;
        if (of_bucket > FEW_CHANGES) {
            qsort(&sorted[begin], of_bucket, sizeof *sorted, compare_changes);
        } else {
            insert_sorted(&sorted[begin], of_bucket);
        }
        begin = begins[k];
    }
}

/* Lists all frees before all allocations, so that a stable sort puts frees first among changes of
 * the same time. A buffer that never lives is left out: its free would precede its allocation. */
static uint32_t list_changes(const meter *m, change *changes)
{
    const rp_program *p = m->program;
    uint32_t count = 0;
    for (uint32_t b = 0; b < p->buffer_count; b++) {
        int64_t begin_ps = m->timeline->start_ps[p->buffers[b].alloc_op];
        int64_t end_ps = m->timeline->end_ps[p->buffers[b].free_op];
        if (end_ps > begin_ps) {
            changes[count++] = (change){(uint64_t)end_ps, b, true};
        }
    }
    uint32_t lives = count;
    for (uint32_t i = 0; i < lives; i++) {
        uint32_t b = changes[i].buffer;
        int64_t begin_ps = m->timeline->start_ps[p->buffers[b].alloc_op];
        changes[count++] = (change){(uint64_t)begin_ps, b, false};
    }
    return count;
}

/* ---- over time ------------------------------------------------------------------------------- */

static uint64_t used(const place *at)
{
    double overhead = at->overhead * (double)at->live;
    return at->fixed + (uint64_t)at->live + (uint64_t)overhead;
}

static void explain(const meter *m, uint32_t where, const change *c)
{
    const place *at = &m->places[where];
    char held[64] = "what is always there";
    if (c != NULL) {
        const rp_buffer *buffer = &m->program->buffers[c->buffer];
        const rp_op *op = &m->program->ops[buffer->alloc_op];
        bool whole = buffer->kind == RP_BUFFER_OPTIMIZER || buffer->kind == RP_BUFFER_LOGITS;
        const char *kind = rp_buffer_kind_text((rp_buffer_kind)buffer->kind);
        if (rp_op_kind_is_update(op->kind)) {
            snprintf(held, sizeof held, "%s copies of the optimizer's step", kind);
        } else if (whole) {
            snprintf(held, sizeof held, "%s", kind);
        } else {
            snprintf(held, sizeof held, "%s of stage %u, microbatch %u", kind, op->stage,
                     op->microbatch);
        }
    }
    double time_ms = c == NULL ? 0 : rp_ps_to_ms((int64_t)c->time_ps);
    uint64_t bytes = c == NULL ? at->fixed : m->program->buffers[c->buffer].bytes;
    uint64_t all = used(at);
    snprintf(m->out->oom_reason, sizeof m->out->oom_reason,
             "GPU %u at %.3f ms: %s (%llu bytes) makes it %llu bytes, %llu more than the usable "
             "%llu",
             where, time_ms, held, (unsigned long long)bytes, (unsigned long long)all,
             (unsigned long long)(all - at->limit), (unsigned long long)at->limit);
}

static void check(meter *m, uint32_t where, const change *c)
{
    place *at = &m->places[where];
    uint64_t now = used(at);
    at->peak = now > at->peak ? now : at->peak;
    if (at->limit != 0 && now > at->limit && m->out->fits) {
        m->out->fits = false;
        m->host_first = where == m->program->gpu_count;
        if (!m->host_first) {
            explain(m, where, c);
        }
    }
}

/* Counts a buffer as the allocator of a stack takes it. Blocks of logits differ in size by a token,
 * and do not fit into each other's place. */
static void reserve(const meter *m, place *at, const rp_buffer *buffer, bool freed)
{
    bool logits = buffer->kind == RP_BUFFER_LOGITS;
    double bytes =
        (double)buffer->bytes * (logits ? m->limits->logit_reserve : m->limits->gpu_reserve);
    at->reserved += freed ? -bytes : bytes;
    at->most_reserved = at->reserved > at->most_reserved ? at->reserved : at->most_reserved;
}

static void follow(meter *m, const change *changes, uint32_t count)
{
    for (uint32_t i = 0; i <= m->program->gpu_count; i++) {
        check(m, i, NULL);
    }
    for (uint32_t i = 0; i < count; i++) {
        const rp_buffer *buffer = &m->program->buffers[changes[i].buffer];
        uint32_t where = buffer->place == RP_PLACE_HOST ? m->program->gpu_count : buffer->place;
        int64_t bytes = (int64_t)buffer->bytes;
        m->places[where].live += changes[i].freed ? -bytes : bytes;
        reserve(m, &m->places[where], buffer, changes[i].freed);
        if (!changes[i].freed) {
            check(m, where, &changes[i]);
        }
    }
}

/* The GPU that exceeds its limit most; gpu_count if no GPU does. */
static uint32_t find_worst_gpu(const meter *m)
{
    uint32_t worst = m->program->gpu_count;
    uint64_t most = 0;
    for (uint32_t i = 0; i < m->program->gpu_count; i++) {
        bool over = m->places[i].limit != 0 && m->places[i].peak > m->places[i].limit;
        uint64_t excess = over ? m->places[i].peak - m->places[i].limit : 0;
        if (excess > most) {
            most = excess;
            worst = i;
        }
    }
    return worst;
}

/* Goes through the changes again up to the moment of the GPU's peak, and sums the bytes of each
 * kind. */
static void break_down(const meter *m, uint32_t gpu, const change *changes, uint32_t count)
{
    static const char *const names[] = {
#define NAME(name, text) text,
        RP_BUFFER_KIND_LIST(NAME)
#undef NAME
    };
    const place *at = &m->places[gpu];
    place now = {.fixed = at->fixed, .overhead = at->overhead};
    int64_t sums[RP_BUFFER_KIND_COUNT] = {0};
    bool step = false;
    for (uint32_t i = 0; i < count && used(&now) < at->peak; i++) {
        const rp_buffer *buffer = &m->program->buffers[changes[i].buffer];
        if (buffer->place == gpu) {
            step = rp_op_kind_is_update(m->program->ops[buffer->alloc_op].kind);
            int64_t bytes = changes[i].freed ? -(int64_t)buffer->bytes : (int64_t)buffer->bytes;
            now.live += bytes;
            sums[buffer->kind] += bytes;
        }
    }
    rpsim_memory_need *need = &m->out->need;
    *need = (rpsim_memory_need){
        .gpu = gpu, .step = step, .need_bytes = at->peak, .limit_bytes = at->limit};
    add_part(need, "context and libraries", at->fixed);
    for (int kind = 0; kind < RP_BUFFER_KIND_COUNT; kind++) {
        add_part(need, names[kind],
                 sums[kind] > 0 ? (uint64_t)((1 + at->overhead) * (double)sums[kind]) : 0);
    }
}

/* The allocator takes no more than there is: it gives back free segments first. */
static uint64_t reserved_of(const place *at)
{
    uint64_t live = at->peak - at->fixed;
    uint64_t most = at->limit > at->peak ? at->limit - at->fixed : live;
    uint64_t reserved = (uint64_t)at->most_reserved;
    reserved = reserved > live ? reserved : live;
    return reserved < most ? reserved : most;
}

static rp_status measure(meter *m, const rpsim_memory_limits *limits, rp_arena *scratch,
                         rp_arena *arena)
{
    const rp_program *p = m->program;
    change *changes = NULL;
    change *sorted = NULL;
    uint32_t *begins = NULL;
    RP_TRY(rp_arena_alloc_raw(scratch, 2 * (size_t)p->buffer_count, sizeof *changes, &changes));
    RP_TRY(rp_arena_alloc_raw(scratch, 2 * (size_t)p->buffer_count, sizeof *sorted, &sorted));
    RP_TRY(rp_arena_alloc(scratch, (size_t)p->gpu_count + 1, sizeof(place), &m->places));
    RP_TRY(rp_arena_alloc(arena, m->out->gpu_count, sizeof(uint64_t), &m->out->peak_gpu_bytes));
    if (limits->gpu_reserve > 0) {
        RP_TRY(rp_arena_alloc(arena, m->out->gpu_count, sizeof(uint64_t),
                              &m->out->reserved_gpu_bytes));
    }
    for (uint32_t i = 0; i < p->gpu_count; i++) {
        m->places[i] = (place){.limit = rpsim_memory_limit(limits, i, p->gpu_count),
                               .fixed = limits->gpu_fixed_bytes,
                               .overhead = limits->gpu_overhead};
    }
    m->places[p->gpu_count] =
        (place){.limit = limits->host_bytes, .fixed = limits->host_fixed_bytes};
    uint32_t count = list_changes(m, changes);
    RP_TRY(rp_arena_alloc(scratch, (size_t)count + 3, sizeof *begins, &begins));
    sort_changes(changes, count, begins, sorted);
    follow(m, sorted, count);
    m->out->gpu_fixed_bytes = limits->gpu_fixed_bytes;
    for (uint32_t i = 0; i < m->out->gpu_count; i++) {
        const place *at = &m->places[i % p->gpu_count];
        m->out->peak_gpu_bytes[i] = at->peak;
        if (m->out->reserved_gpu_bytes != NULL) {
            m->out->reserved_gpu_bytes[i] = reserved_of(at);
        }
    }
    m->out->peak_host_bytes = m->places[p->gpu_count].peak;
    m->out->host_bytes = limits->host_bytes;
    m->out->host_fixed_bytes = limits->host_fixed_bytes;
    m->out->host_servers = limits->host_servers;
    uint32_t worst = find_worst_gpu(m);
    if (m->host_first) {
        rpsim_memory_blame_host(m->out);
    } else if (worst < p->gpu_count) {
        break_down(m, worst, sorted, count);
    } else if (!m->out->fits) { /* never: if the host does not overflow first, a GPU exceeds its
                                   limit */
        return rp_broken();
    }
    return RP_OK;
}

rp_status rpsim_memory_measure(const rp_timeline *timeline, const rpsim_memory_limits *limits,
                               rp_arena *arena, rpsim_memory *memory_out)
{
    const rp_program *p = timeline->program;
    *memory_out = (rpsim_memory){.gpu_count = rp_program_ranks(p)};
    bool sized = false;
    for (uint32_t b = 0; b < p->buffer_count; b++) {
        sized |= p->buffers[b].bytes != 0;
    }
    if (!sized) {
        return RP_OK;
    }
    rp_arena *scratch = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rpsim_memory memory = {.known = true, .fits = true, .gpu_count = rp_program_ranks(p)};
    meter m = {.timeline = timeline, .program = p, .limits = limits, .out = &memory};
    rp_status status = measure(&m, limits, scratch, arena);
    rp_arena_destroy(scratch);
    if (status == RP_OK) {
        *memory_out = memory;
    }
    return status;
}

rp_status rpsim_memory_copy(const rpsim_memory *memory, rp_arena *arena, rpsim_memory *copy_out)
{
    rpsim_memory copy = *memory;
    if (memory->known) {
        size_t size = sizeof *copy.peak_gpu_bytes;
        RP_TRY(rp_arena_alloc(arena, copy.gpu_count, size, &copy.peak_gpu_bytes));
        memcpy(copy.peak_gpu_bytes, memory->peak_gpu_bytes, copy.gpu_count * size);
        if (memory->reserved_gpu_bytes != NULL) {
            RP_TRY(rp_arena_alloc(arena, copy.gpu_count, size, &copy.reserved_gpu_bytes));
            memcpy(copy.reserved_gpu_bytes, memory->reserved_gpu_bytes, copy.gpu_count * size);
        }
    }
    *copy_out = copy;
    return RP_OK;
}
