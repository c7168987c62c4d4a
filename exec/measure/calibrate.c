/* Measures links by piece size. */
#include "exec/measure/calibrate.h"

#include "common/base/host_limits.h"
#include "common/base/median.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Copies of a series; the first copy does not count. */
#define COPIES 7u
#define LEAST_BYTES (UINT64_C(64) << 10)
#define MOST_BYTES (UINT64_C(256) << 20)
#define GROWTH 4u
#define MOST_SIZES 7u
#define BUDGET_S 2.0

static const char *const way_texts[] = {
#define WAY_TEXT(name, text) text,
    RPEXEC_WAY_LIST(WAY_TEXT)
#undef WAY_TEXT
};

static const char *const beside_texts[] = {
#define BESIDE_TEXT(name, text) text,
    RPEXEC_BESIDE_LIST(BESIDE_TEXT)
#undef BESIDE_TEXT
};

/* ---- the line -------------------------------------------------------------------------------- */

static double deviation(uint32_t count, const double *bytes, const double *seconds, double overhead,
                        double slope)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += fabs((overhead + slope * bytes[i]) / seconds[i] - 1);
    }
    return sum;
}

typedef struct best_line {
    rpexec_link_fit fit;
    double deviation;
} best_line;

static void consider(uint32_t count, const double *bytes, const double *seconds, double overhead,
                     double slope, best_line *best)
{
    if (slope > 0 && isfinite(slope)) {
        double now = deviation(count, bytes, seconds, overhead, slope);
        if (now < best->deviation) {
            *best = (best_line){{.Bps = 1 / slope, .overhead_s = overhead}, now};
        }
    }
}

/* A line of least absolute deviations goes through two of the points. If such a line would begin
 * outside [0, most_overhead_s], the line goes through a point and an end of that range instead. */
rpexec_link_fit rpexec_link_fit_of(uint32_t count, const double *bytes, const double *seconds,
                                   double most_overhead_s)
{
    best_line best = {.deviation = INFINITY};
    for (uint32_t i = 0; i < count; i++) {
        consider(count, bytes, seconds, 0, seconds[i] / bytes[i], &best);
        for (uint32_t k = i + 1; k < count; k++) {
            double slope = (seconds[k] - seconds[i]) / (bytes[k] - bytes[i]);
            double overhead = seconds[i] - slope * bytes[i];
            if (overhead >= 0 && overhead <= most_overhead_s) {
                consider(count, bytes, seconds, overhead, slope, &best);
            }
        }
        if (isfinite(most_overhead_s)) {
            consider(count, bytes, seconds, most_overhead_s,
                     (seconds[i] - most_overhead_s) / bytes[i], &best);
        }
    }
    return best.fit;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Successive copies of the same kind. */
typedef struct series {
    rpexec_way way;
    rpexec_beside beside;
    uint32_t gpu;
    uint32_t numbers[COPIES];
} series;

typedef struct measuring {
    const rpexec_site *site;
    bool peers;
    uint64_t bytes; /* size of a piece */
    rpexec_trial trial;
    series *all;
    uint32_t count;
    uint32_t *series_of; /* [number of the copy] */
    uint32_t *last;      /* last copies of the previous group, for which the next group waits */
    uint32_t last_count;
} measuring;

/* Pieces in a GPU's arena. Host memory has the first two of them for each GPU. */
enum { PLACE_UP, PLACE_DOWN, PLACE_SENT, PLACE_RECEIVED, PLACES };
#define HOST_PLACES 2u

static const rp_queue_kind queues[] = {
    [RPEXEC_WAY_UP] = RP_QUEUE_PARAM_UPLOAD,
    [RPEXEC_WAY_DOWN] = RP_QUEUE_DOWNLOAD,
    [RPEXEC_WAY_PEER] = RP_QUEUE_PEER,
};

static const rp_op_kind kinds[] = {
    [RPEXEC_WAY_UP] = RP_OP_UPLOAD_ACT, /* memory near the GPU (common/machine/machine.h) */
    [RPEXEC_WAY_DOWN] = RP_OP_DOWNLOAD_ACT,
    [RPEXEC_WAY_PEER] = RP_OP_SEND,
};

static uint32_t receiver_of(const measuring *m, uint32_t gpu)
{
    return (gpu + 1) % m->site->gpus;
}

static rp_status add_series(measuring *m, rpexec_way way, rpexec_beside beside, uint32_t gpu)
{
    series *s = &m->all[m->count];
    *s = (series){.way = way, .beside = beside, .gpu = gpu};
    for (uint32_t i = 0; i < COPIES; i++) {
        s->numbers[i] = m->trial.op_count;
        m->series_of[s->numbers[i]] = m->count;
        RP_TRY(rpexec_trial_append(&m->trial, gpu, queues[way], kinds[way], m->bytes, m->last,
                                   i == 0 ? m->last_count : 0));
    }
    m->count++;
    for (uint32_t i = 0; way == RPEXEC_WAY_PEER && i < COPIES; i++) {
        m->series_of[m->trial.op_count] = UINT32_MAX;
        RP_TRY(rpexec_trial_append(&m->trial, receiver_of(m, gpu), RP_QUEUE_RECEIVE, RP_OP_RECV,
                                   m->bytes, &s->numbers[i], 1));
    }
    return RP_OK;
}

/* Ends a group: the series that are added next wait for all series from `first` on. */
static void end_group(measuring *m, uint32_t first)
{
    m->last_count = 0;
    for (uint32_t i = first; i < m->count; i++) {
        m->last[m->last_count++] = m->all[i].numbers[COPIES - 1];
    }
}

/* Adds series that run at the same time, for GPUs [begin, end), in one direction or in both. */
static rp_status add_group(measuring *m, rpexec_beside beside, bool up, bool down, uint32_t begin,
                           uint32_t end)
{
    uint32_t first = m->count;
    for (uint32_t gpu = begin; gpu < end; gpu++) {
        if (up) {
            RP_TRY(add_series(m, RPEXEC_WAY_UP, beside, gpu));
        }
        if (down) {
            RP_TRY(add_series(m, RPEXEC_WAY_DOWN, beside, gpu));
        }
    }
    end_group(m, first);
    return RP_OK;
}

static rp_status add_groups(measuring *m)
{
    uint32_t gpus = m->site->gpus;
    for (uint32_t gpu = 0; gpu < gpus; gpu++) {
        m->series_of[m->trial.op_count] = UINT32_MAX;
        RP_TRY(rpexec_trial_append(&m->trial, gpu, RP_QUEUE_COMPUTE, RP_OP_FORWARD, 0, NULL, 0));
    }
    for (uint32_t gpu = 0; gpu < gpus; gpu++) {
        RP_TRY(add_group(m, RPEXEC_BESIDE_NOTHING, true, false, gpu, gpu + 1));
        RP_TRY(add_group(m, RPEXEC_BESIDE_NOTHING, false, true, gpu, gpu + 1));
        RP_TRY(add_group(m, RPEXEC_BESIDE_BACK, true, true, gpu, gpu + 1));
    }
    if (gpus > 1) {
        RP_TRY(add_group(m, RPEXEC_BESIDE_ALL, true, false, 0, gpus));
        RP_TRY(add_group(m, RPEXEC_BESIDE_ALL, false, true, 0, gpus));
        RP_TRY(add_group(m, RPEXEC_BESIDE_ALL_BACK, true, true, 0, gpus));
    }
    for (uint32_t gpu = 0; m->peers && gpu < gpus; gpu++) {
        uint32_t first = m->count;
        RP_TRY(add_series(m, RPEXEC_WAY_PEER, RPEXEC_BESIDE_NOTHING, gpu));
        end_group(m, first);
    }
    return RP_OK;
}

static uint64_t gpu_bytes(const measuring *m, uint64_t bytes)
{
    return bytes * (m->peers ? PLACES : PLACE_SENT);
}

/* Writes to all pages, since untouched pages have no memory behind them. */
static rp_status prepare_memory(void *context, rpexec_driver *driver)
{
    measuring *m = context;
    const rpexec_driver_type *type = m->site->driver_type;
    unsigned char *host = type->memory(driver, m->site->gpus);
    memset(host, 1, m->trial.host_bytes);
    for (uint32_t gpu = 0; gpu < m->site->gpus; gpu++) {
        unsigned char *memory = type->memory(driver, gpu);
        for (uint64_t at = 0; at < m->trial.gpu_bytes; at += m->bytes) {
            RP_TRY(type->transfer(driver, memory + at, host, m->bytes));
        }
    }
    return RP_OK;
}

static rp_status copy_piece(void *context, uint32_t number, uint32_t op, rpexec_driver *driver,
                            rpexec_lane *lane)
{
    measuring *m = context;
    const rpexec_driver_type *type = m->site->driver_type;
    (void)lane;
    if (m->series_of[number] == UINT32_MAX) {
        return RP_OK; /* the SEND has copied it, or there is nothing to copy */
    }
    const series *s = &m->all[m->series_of[number]];
    unsigned char *gpu = type->memory(driver, s->gpu);
    unsigned char *host =
        type->memory(driver, m->site->gpus) + HOST_PLACES * (uint64_t)s->gpu * m->bytes;
    if (s->way == RPEXEC_WAY_UP) {
        type->copy(driver, op, gpu + PLACE_UP * m->bytes, host, m->bytes);
    } else if (s->way == RPEXEC_WAY_DOWN) {
        type->copy(driver, op, host + m->bytes, gpu + PLACE_DOWN * m->bytes, m->bytes);
    } else {
        unsigned char *other = type->memory(driver, receiver_of(m, s->gpu));
        type->copy(driver, op, other + PLACE_RECEIVED * m->bytes, gpu + PLACE_SENT * m->bytes,
                   m->bytes);
    }
    return RP_OK;
}

/* Measures a single piece size. */
static rp_status measure_size(measuring *m, rp_arena *arena)
{
    uint32_t gpus = m->site->gpus;
    uint32_t most = 9 * gpus + 1;
    rpexec_trial_begin(m->site, arena, &m->trial);
    m->count = m->last_count = 0;
    RP_TRY(rp_arena_alloc(arena, most, sizeof *m->all, &m->all));
    RP_TRY(
        rp_arena_alloc(arena, 2 * (size_t)most * COPIES + gpus, sizeof(uint32_t), &m->series_of));
    RP_TRY(rp_arena_alloc(arena, most, sizeof(uint32_t), &m->last));
    RP_TRY(add_groups(m));
    m->trial.gpu_bytes = gpu_bytes(m, m->bytes);
    m->trial.host_bytes = HOST_PLACES * (uint64_t)gpus * m->bytes;
    return rpexec_trial_run(&m->trial, prepare_memory, copy_piece, m);
}

static rpexec_link_row row_of(const measuring *m, const series *s)
{
    double values[COPIES - 1];
    double least_s = INFINITY;
    for (uint32_t i = 1; i < COPIES; i++) {
        values[i - 1] = 1e-12 * (double)m->trial.work_ps[s->numbers[i]];
        least_s = fmin(least_s, values[i - 1]);
    }
    return (rpexec_link_row){.way = s->way,
                             .beside = s->beside,
                             .gpu = s->gpu,
                             .bytes = m->bytes,
                             .repetitions = COPIES - 1,
                             .median_s = rp_median(values, COPIES - 1),
                             .least_s = least_s};
}

/* At most half of the available memory is used: other processes need some, too. */
static bool has_memory(const measuring *m, uint64_t bytes)
{
    const rpexec_site *site = m->site;
    uint64_t all = HOST_PLACES * (uint64_t)site->gpus * bytes;
    all += site->gpu_bytes == 0 ? site->gpus * gpu_bytes(m, bytes) : 0;
    bool on_gpus = site->gpu_bytes == 0 || gpu_bytes(m, bytes) <= site->gpu_bytes / 2;
    return on_gpus && all <= rp_host_memory_available("") / 2;
}

/* Fits lines over the sizes; the value of a size is the median of the GPUs. On a busy machine most
 * copies of the few sizes measured may have waited for a processor, which no fit can tell from
 * overhead; but overhead is never longer than the shortest whole copy, with nothing beside it no
 * longer than the shortest copy of that way at all. */
static rp_status fit(rpexec_link_rates *rates, uint32_t gpus, rp_arena *arena)
{
    double *values = NULL;
    RP_TRY(rp_arena_alloc(arena, gpus, sizeof *values, &values));
    for (int way = 0; way < RPEXEC_WAY_COUNT; way++) {
        for (int beside = 0; beside < RPEXEC_BESIDE_COUNT; beside++) {
            double bytes[MOST_SIZES];
            double seconds[MOST_SIZES];
            double least_s = INFINITY;
            uint32_t sizes = 0;
            for (uint32_t i = 0; i < rates->row_count; i++) {
                const rpexec_link_row *row = &rates->rows[i];
                bool bounds = beside == RPEXEC_BESIDE_NOTHING || (int)row->beside == beside;
                if ((int)row->way == way && bounds) {
                    least_s = fmin(least_s, row->least_s);
                }
            }
            for (uint64_t size = LEAST_BYTES; size <= MOST_BYTES; size *= GROWTH) {
                uint32_t count = 0;
                for (uint32_t i = 0; i < rates->row_count; i++) {
                    const rpexec_link_row *row = &rates->rows[i];
                    if ((int)row->way == way && (int)row->beside == beside && row->bytes == size &&
                        row->median_s > 0) {
                        values[count++] = row->median_s;
                    }
                }
                if (count > 0) {
                    bytes[sizes] = (double)size;
                    seconds[sizes++] = rp_median(values, count);
                }
            }
            rates->fits[way][beside] = rpexec_link_fit_of(sizes, bytes, seconds, least_s);
        }
    }
    return RP_OK;
}

rp_status rpexec_calibrate_links(const rpexec_site *site, bool peers, rp_arena *arena,
                                 rpexec_link_rates *rates)
{
    measuring m = {.site = site, .peers = peers && site->gpus > 1};
    double left_s = BUDGET_S;
    double next_s = 0;
    *rates = (rpexec_link_rates){0};
    RP_TRY(rp_arena_alloc(arena, (size_t)MOST_SIZES * (9 * site->gpus + 1), sizeof *rates->rows,
                          &rates->rows));
    for (m.bytes = LEAST_BYTES; m.bytes <= MOST_BYTES && next_s <= left_s; m.bytes *= GROWTH) {
        rp_arena *own = NULL;
        if (!has_memory(&m, m.bytes)) {
            break;
        }
        RP_TRY(rp_arena_create(&own));
        rp_status status = measure_size(&m, own);
        for (uint32_t i = 0; status == RP_OK && i < m.count; i++) {
            rates->rows[rates->row_count++] = row_of(&m, &m.all[i]);
        }
        rp_arena_destroy(own);
        RP_TRY(status);
        left_s -= m.trial.wall_s;
        next_s = GROWTH * m.trial.wall_s;
    }
    return fit(rates, site->gpus, arena);
}

void rpexec_links_write(const rpexec_link_rates *rates, FILE *stream)
{
    fputs("way,beside,gpu,bytes,repetitions,median_us,gb_per_s\n", stream);
    for (uint32_t i = 0; i < rates->row_count; i++) {
        const rpexec_link_row *r = &rates->rows[i];
        fprintf(stream, "%s,%s,%" PRIu32 ",%" PRIu64 ",%" PRIu32 ",%.3f,%.6g\n", way_texts[r->way],
                beside_texts[r->beside], r->gpu, r->bytes, r->repetitions, 1e6 * r->median_s,
                r->median_s > 0 ? 1e-9 * (double)r->bytes / r->median_s : 0);
    }
}
