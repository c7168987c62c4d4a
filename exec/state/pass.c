#include "exec/state/pass.h"

#include <stdatomic.h>
#include <string.h>
/* Sanitizers do not see the stores of these instructions. */
#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#define STREAMS 1
#endif

/* Values processed at a time: their intermediate results stay in a core's first cache. */
#define BLOCK 256u
/* Bytes of a cache line, which a core also gathers before it writes past the cache. */
#define LINE 64u

/* Bytes by which an array begins later than the array before it: a page and a line. */
#define APART 4160u

rp_status rpexec_pass_array(rp_arena *arena, uint32_t number, uint64_t count, size_t width,
                            void *array_out)
{
    unsigned char *array = NULL;
    uint64_t apart = (uint64_t)number * APART;
    RP_TRY(rp_arena_alloc_raw(arena, apart + count * width, 1, &array));
    array += apart;
    memcpy(array_out, &array, sizeof array);
    return RP_OK;
}

/* ---- past the caches ------------------------------------------------------------------------- */

/* Copies from a cache to memory that is not read soon, past the caches. */
static void stream(void *to, const void *from, size_t bytes)
{
#ifdef STREAMS
    unsigned char *at = to;
    const unsigned char *source = from;
    size_t head = (LINE - (uintptr_t)at % LINE) % LINE;
    if (bytes >= head + LINE) {
        memcpy(at, source, head);
        at += head;
        source += head;
        bytes -= head;
        for (; bytes >= LINE; bytes -= LINE, at += LINE, source += LINE) {
            for (size_t i = 0; i < LINE; i += sizeof(__m128i)) {
                _mm_stream_si128((__m128i *)(void *)(at + i),
                                 _mm_loadu_si128((const __m128i *)(const void *)(source + i)));
            }
        }
    }
    memcpy(at, source, bytes);
#else
    memcpy(to, from, bytes);
#endif
}

/* Orders streamed stores; needed before a piece is reported as done. */
static void end_stream(void)
{
#ifdef STREAMS
    _mm_sfence();
#endif
}

/* Values of the next block of a piece: the first block ends at the end of a line of `to`, so that
 * later blocks fill whole lines. */
static uint64_t block_of(rp_dtype dtype, const void *to, uint64_t left)
{
    uint64_t past = (uintptr_t)to % LINE / rp_dtype_bytes(dtype);
    uint64_t values = BLOCK - past;
    return values < left ? values : left;
}

/* ---- zeroes ---------------------------------------------------------------------------------- */

typedef struct zeroing {
    unsigned char *to;
    size_t width;
} zeroing;

static void zero_piece(void *context, uint64_t first, uint64_t count)
{
    const zeroing *z = context;
    memset(z->to + first * z->width, 0, count * z->width);
}

void rpexec_pass_zero(rpexec_pool *pool, uint64_t count, size_t width, void *to)
{
    zeroing z = {.to = to, .width = width};
    rpexec_pool_run(pool, count, zero_piece, &z);
}

/* ---- collecting ------------------------------------------------------------------------------ */

typedef struct collecting {
    rp_dtype dtype;
    const void *from;
    float scale;
    bool add;
    float *to;
    atomic_bool overflows;
} collecting;

static void collect_piece(void *context, uint64_t first, uint64_t count)
{
    collecting *c = context;
    bool finite = true;
    uint64_t values = 0;
    for (uint64_t i = first; i < first + count; i += values) {
        float block[BLOCK];
        const void *from = rpexec_element_const(c->dtype, c->from, i);
        values = block_of(RP_DTYPE_F32, c->to + i, first + count - i);
        if (c->add) { /* values of `to` that were just read are in the caches */
            finite &= rpexec_unscale(c->dtype, values, from, c->scale, true, c->to + i);
        } else if (c->dtype == RP_DTYPE_F32) {
            stream(c->to + i, from, values * sizeof(float));
        } else {
            finite &= rpexec_unscale(c->dtype, values, from, c->scale, false, block);
            stream(c->to + i, block, values * sizeof(float));
        }
    }
    end_stream();
    if (!finite) {
        atomic_store_explicit(&c->overflows, true, memory_order_relaxed);
    }
}

bool rpexec_pass_collect(rpexec_pool *pool, rp_dtype dtype, uint64_t count, const void *from,
                         float scale, bool add, float *to)
{
    collecting c = {.dtype = dtype, .from = from, .scale = scale, .add = add, .to = to};
    rpexec_pool_run(pool, count, collect_piece, &c);
    return !atomic_load(&c.overflows);
}

typedef struct squaring {
    rp_dtype dtype;
    const void *gradients;
    const void *more;
    float scale;
    atomic_ullong limbs[RPEXEC_SQUARES_LIMBS];
    atomic_ullong not_finite;
} squaring;

/* Sums of limbs are whole numbers: the order of the pieces does not matter. */
static void square_piece(void *context, uint64_t first, uint64_t count)
{
    squaring *s = context;
    rpexec_squares sum = {0};
    for (uint64_t i = first; i < first + count; i += BLOCK) {
        float gradients[BLOCK];
        uint64_t values = first + count - i < BLOCK ? first + count - i : BLOCK;
        (void)rpexec_unscale(s->dtype, values, rpexec_element_const(s->dtype, s->gradients, i),
                             s->scale, false, gradients);
        if (s->more != NULL) {
            (void)rpexec_unscale(s->dtype, values, rpexec_element_const(s->dtype, s->more, i),
                                 s->scale, true, gradients);
        }
        rpexec_squares_add(RP_DTYPE_F32, values, gradients, &sum);
    }
    for (uint32_t i = 0; i < RPEXEC_SQUARES_LIMBS; i++) {
        atomic_fetch_add_explicit(&s->limbs[i], sum.limbs[i], memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&s->not_finite, sum.not_finite, memory_order_relaxed);
}

void rpexec_pass_squares(rpexec_pool *pool, rp_dtype dtype, uint64_t count, const void *gradients,
                         const void *more, float scale, rpexec_squares *sum)
{
    squaring s = {.dtype = dtype, .gradients = gradients, .more = more, .scale = scale};
    rpexec_squares all;
    rpexec_pool_run(pool, count, square_piece, &s);
    for (uint32_t i = 0; i < RPEXEC_SQUARES_LIMBS; i++) {
        all.limbs[i] = atomic_load(&s.limbs[i]);
    }
    all.not_finite = atomic_load(&s.not_finite);
    rpexec_squares_merge(&all, sum);
}

/* ---- refreshing ------------------------------------------------------------------------------ */

/* Writes `values` masters as working weights, and into `copy` too unless it is NULL. */
static void write_working(rp_dtype dtype, uint64_t values, const float *masters, void *to,
                          void *copy)
{
    uint16_t block[BLOCK];
    bool wide = dtype == RP_DTYPE_F32;
    const void *rounded = wide ? (const void *)masters : block;
    if (!wide) {
        rpexec_narrow(dtype, values, masters, block);
    }
    stream(to, rounded, values * rp_dtype_bytes(dtype));
    if (copy != NULL) {
        stream(copy, rounded, values * rp_dtype_bytes(dtype));
    }
}

typedef struct refreshing {
    rp_dtype dtype;
    const float *from;
    void *to;
} refreshing;

static void refresh_piece(void *context, uint64_t first, uint64_t count)
{
    const refreshing *r = context;
    uint64_t values = 0;
    for (uint64_t i = first; i < first + count; i += values) {
        void *to = rpexec_element(r->dtype, r->to, i);
        values = block_of(r->dtype, to, first + count - i);
        write_working(r->dtype, values, r->from + i, to, NULL);
    }
    end_stream();
}

void rpexec_pass_refresh(rpexec_pool *pool, rp_dtype dtype, uint64_t count, const float *from,
                         void *to)
{
    refreshing r = {.dtype = dtype, .from = from, .to = to};
    rpexec_pool_run(pool, count, refresh_piece, &r);
}

/* ---- Adam ------------------------------------------------------------------------------------ */

typedef struct stepping {
    const rpexec_adam_factors *factors;
    const rpexec_pass_step *step;
} stepping;

static rpexec_adam_slice part_of(const rpexec_adam_slice *s, uint64_t first, uint64_t count)
{
    return (rpexec_adam_slice){.parameters = s->parameters + first,
                               .gradients = s->gradients == NULL ? NULL : s->gradients + first,
                               .m = s->m + first,
                               .v = s->v + first,
                               .count = count};
}

static void update_piece(void *context, uint64_t first, uint64_t count)
{
    const stepping *s = context;
    const rpexec_adam_slice part = part_of(&s->step->slice, first, count);
    rpexec_adam_update(s->factors, &part);
}

void rpexec_pass_adam(rpexec_pool *pool, const rpexec_adam_factors *factors,
                      const rpexec_adam_slice *slice)
{
    const rpexec_pass_step step = {.slice = *slice};
    stepping s = {.factors = factors, .step = &step};
    rpexec_pool_run(pool, slice->count, update_piece, &s);
}

static void step_piece(void *context, uint64_t first, uint64_t count)
{
    const stepping *s = context;
    const rpexec_pass_step *p = s->step;
    uint64_t values = 0;
    for (uint64_t i = first; i < first + count; i += values) {
        float gradients[BLOCK];
        void *to = rpexec_element(p->dtype, p->working, i);
        values = block_of(p->dtype, to, first + count - i);
        rpexec_adam_slice part = part_of(&p->slice, i, values);
        if (part.gradients == NULL) {
            (void)rpexec_unscale(p->dtype, values, rpexec_element_const(p->dtype, p->gradients, i),
                                 p->scale, false, gradients);
            part.gradients = gradients;
        }
        if (p->more != NULL) {
            (void)rpexec_unscale(p->dtype, values, rpexec_element_const(p->dtype, p->more, i),
                                 p->scale, true, gradients);
        }
        rpexec_adam_update(s->factors, &part);
        write_working(p->dtype, values, part.parameters, to, rpexec_element(p->dtype, p->copy, i));
    }
    end_stream();
}

void rpexec_pass_run_step(rpexec_pool *pool, const rpexec_adam_factors *factors,
                          const rpexec_pass_step *step)
{
    stepping s = {.factors = factors, .step = step};
    rpexec_pool_run(pool, step->slice.count, step_piece, &s);
}
