#include "exec/cuda/attention_trial.h"

#include "common/base/median.h"
#include "exec/operators/random.h"

#include <math.h>
#include <string.h>

/* PERIOD is prime, so that no two rows, heads or sequences of a tensor have equal values. */
enum { WARM_UP = 2, REPETITIONS = 9, PERIOD = 1000003, PIECE = 1 << 18 };

/* Allowed error of an element (executor.md 3, 1): this share of its value plus the same share of
 * the tensor's rms. It also keeps the bound of the cosine. */
static const double allowed[RP_DTYPE_COUNT] = {
    [RP_DTYPE_F32] = 1e-5, [RP_DTYPE_BF16] = 2e-2, [RP_DTYPE_F16] = 5e-3};
enum { OWN, CUDNN, BOTH, AGAIN = BOTH /* a second call of cuDNN */, OUTPUTS };

typedef struct data {
    rpexec_lane lanes[BOTH]; /* copies, so that a failure here is not the run's */
    const rpexec_attention_sizes *sizes;
    rp_arena *arena;
    unsigned char *memory; /* the GPU's memory of all tensors */
    void *q, *k, *v;
    void *o[OUTPUTS];
    float *logsumexp[OUTPUTS];
    uint64_t queries, keys, rows; /* numbers of values in q and o, in k and v, in logsumexp */
    cudaEvent_t begin, end;
} data;

static uint64_t whole(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static rp_status allocate(data *d)
{
    const rpexec_attention_sizes *s = d->sizes;
    uint64_t size = rp_dtype_bytes(d->lanes[OWN].dtype);
    d->rows = (uint64_t)s->sequences * s->seq_len * s->heads;
    d->queries = d->rows * s->head_dim;
    d->keys = d->queries / s->heads * s->kv_heads;
    const struct {
        void *pointer;
        uint64_t bytes;
    } tensors[] = {{&d->q, d->queries * size},
                   {&d->k, d->keys * size},
                   {&d->v, d->keys * size},
                   {&d->o[OWN], d->queries * size},
                   {&d->o[CUDNN], d->queries * size},
                   {&d->o[AGAIN], d->queries * size},
                   {&d->logsumexp[OWN], d->rows * sizeof(float)},
                   {&d->logsumexp[CUDNN], d->rows * sizeof(float)},
                   {&d->logsumexp[AGAIN], d->rows * sizeof(float)}};
    uint64_t total = 0;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        total += whole(tensors[i].bytes);
    }
    RPEXEC_CUDA_TRY(cudaMalloc((void **)&d->memory, total));
    unsigned char *at = d->memory;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        memcpy(tensors[i].pointer, &at, sizeof at);
        at += whole(tensors[i].bytes);
    }
    /* Elements that no kernel writes stay NaN. */
    RPEXEC_CUDA_TRY(cudaMemsetAsync(d->memory, 0xff, total, d->lanes[OWN].stream));
    RPEXEC_CUDA_TRY(cudaEventCreateWithFlags(&d->begin, cudaEventBlockingSync));
    RPEXEC_CUDA_TRY(cudaEventCreateWithFlags(&d->end, cudaEventBlockingSync));
    return RP_OK;
}

/* Normally distributed values, which begin at another place for each tensor. */
static rp_status fill(data *d)
{
    rp_dtype dtype = d->lanes[OWN].dtype;
    uint64_t size = rp_dtype_bytes(dtype);
    float *wide = NULL;
    unsigned char *narrow = NULL;
    void *const to[] = {d->q, d->k, d->v};
    const uint64_t counts[] = {d->queries, d->keys, d->keys};
    RP_TRY(rp_arena_alloc_raw(d->arena, PERIOD, sizeof *wide, &wide));
    RP_TRY(rp_arena_alloc_raw(d->arena, PERIOD, size, &narrow));
    rpexec_random_normal(11, 0, 1, PERIOD, wide);
    rpexec_narrow(dtype, PERIOD, wide, narrow);
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t from = i * (PERIOD / 3);
        for (uint64_t at = 0; at < counts[i];) {
            uint64_t piece = PERIOD - from < counts[i] - at ? PERIOD - from : counts[i] - at;
            RPEXEC_CUDA_TRY(cudaMemcpyAsync((unsigned char *)to[i] + at * size,
                                            narrow + from * size, piece * size,
                                            cudaMemcpyHostToDevice, d->lanes[OWN].stream));
            at += piece;
            from = 0;
        }
    }
    RPEXEC_CUDA_TRY(cudaStreamSynchronize(d->lanes[OWN].stream));
    return RP_OK;
}

static void call(data *d, int by, int output)
{
    rpexec_lane *lane = &d->lanes[by];
    rpexec_cuda_operators[lane->dtype]->attention(lane, d->sizes, d->q, d->k, d->v, d->o[output],
                                                  d->logsumexp[output]);
}

/* Calls both in turn, so that neither has the faster clock of a colder GPU. */
static rp_status measure(data *d, rpexec_attention_trial *trial_out)
{
    double seconds[BOTH][REPETITIONS];
    for (int i = -WARM_UP; i < REPETITIONS; i++) {
        for (int by = 0; by < BOTH; by++) {
            float ms = 0;
            cudaStream_t stream = d->lanes[by].stream;
            RPEXEC_CUDA_TRY(cudaEventRecord(d->begin, stream));
            call(d, by, by);
            RP_TRY(d->lanes[by].status);
            RPEXEC_CUDA_TRY(cudaEventRecord(d->end, stream));
            RPEXEC_CUDA_TRY(cudaEventSynchronize(d->end));
            RPEXEC_CUDA_TRY(cudaEventElapsedTime(&ms, d->begin, d->end));
            if (i >= 0) {
                seconds[by][i] = 1e-3 * (double)ms;
            }
        }
    }
    call(d, CUDNN, AGAIN);
    RP_TRY(d->lanes[CUDNN].status);
    trial_out->own_s = rp_median(seconds[OWN], REPETITIONS);
    trial_out->cudnn_s = rp_median(seconds[CUDNN], REPETITIONS);
    return RP_OK;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Arrays of the GPU that are compared piece by piece on the host. */
typedef struct pair {
    rp_dtype dtype;
    uint64_t count;
    const void *from[OUTPUTS];
    unsigned char *narrow[OUTPUTS];
    float *wide[BOTH];
    bool same_bits; /* cuDNN's two results have the same bits */
} pair;

static rp_status read_piece(const data *d, pair *p, uint64_t at, uint64_t *count_out)
{
    uint64_t size = rp_dtype_bytes(p->dtype);
    *count_out = p->count - at < PIECE ? p->count - at : PIECE;
    for (int i = 0; i < OUTPUTS; i++) {
        RPEXEC_CUDA_TRY(cudaMemcpyAsync(p->narrow[i], (const unsigned char *)p->from[i] + at * size,
                                        *count_out * size, cudaMemcpyDeviceToHost,
                                        d->lanes[OWN].stream));
        RPEXEC_CUDA_TRY(cudaStreamSynchronize(d->lanes[OWN].stream));
    }
    rpexec_widen(p->dtype, *count_out, p->narrow[OWN], p->wide[OWN]);
    rpexec_widen(p->dtype, *count_out, p->narrow[CUDNN], p->wide[CUDNN]);
    p->same_bits &= memcmp(p->narrow[CUDNN], p->narrow[AGAIN], *count_out * size) == 0;
    return RP_OK;
}

/* NaN is larger than everything. */
static double larger(double a, double b)
{
    return isnan(a) || b <= a ? a : b;
}

/* The largest difference divided by the allowed error. */
static rp_status compare(const data *d, pair *p, double *worst)
{
    double squares = 0;
    uint64_t count = 0;
    for (uint64_t at = 0; at < p->count; at += count) {
        RP_TRY(read_piece(d, p, at, &count));
        for (uint64_t i = 0; i < count; i++) {
            squares += (double)p->wide[OWN][i] * (double)p->wide[OWN][i];
        }
    }
    double rms = sqrt(squares / (double)p->count);
    for (uint64_t at = 0; at < p->count; at += count) {
        RP_TRY(read_piece(d, p, at, &count));
        for (uint64_t i = 0; i < count; i++) {
            double own = (double)p->wide[OWN][i];
            double error =
                fabs((double)p->wide[CUDNN][i] - own) / (allowed[p->dtype] * (fabs(own) + rms));
            *worst = larger(*worst, error);
        }
    }
    return RP_OK;
}

static rp_status compare_all(data *d, rpexec_attention_trial *trial_out)
{
    pair p = {.dtype = d->lanes[OWN].dtype, .count = d->queries, .same_bits = true};
    double o = 0;
    double l = 0;
    for (int i = 0; i < OUTPUTS; i++) {
        RP_TRY(rp_arena_alloc_raw(d->arena, PIECE, sizeof(float), &p.narrow[i]));
        p.from[i] = d->o[i];
    }
    RP_TRY(rp_arena_alloc_raw(d->arena, PIECE, sizeof(float), &p.wide[OWN]));
    RP_TRY(rp_arena_alloc_raw(d->arena, PIECE, sizeof(float), &p.wide[CUDNN]));
    RP_TRY(compare(d, &p, &o));
    p.dtype = RP_DTYPE_F32;
    p.count = d->rows;
    for (int i = 0; i < OUTPUTS; i++) {
        p.from[i] = d->logsumexp[i];
    }
    RP_TRY(compare(d, &p, &l));
    trial_out->worst = larger(o, l);
    trial_out->same_bits = p.same_bits;
    return RP_OK;
}

static void give_back(data *d)
{
    if (d->begin != NULL) {
        (void)cudaEventDestroy(d->begin);
    }
    if (d->end != NULL) {
        (void)cudaEventDestroy(d->end);
    }
    (void)cudaFree(d->memory); /* NULL is allowed */
    rp_arena_destroy(d->arena);
}

rp_status rpexec_cuda_attention_try(rpexec_lane *lane, const rpexec_attention_sizes *sizes,
                                    rpexec_attention_trial *trial_out, const char **why_out)
{
    data d = {.lanes = {*lane, *lane}, .sizes = sizes};
    d.lanes[OWN].cudnn = NULL;
    *why_out = "the trial of cuDNN's attention has failed";
    RP_TRY(rp_arena_create(&d.arena));
    rp_status status = allocate(&d);
    status = status == RP_OK ? fill(&d) : status;
    status = status == RP_OK ? measure(&d, trial_out) : status;
    status = status == RP_OK ? compare_all(&d, trial_out) : status;
    if (status != RP_OK) {
        (void)cudaStreamSynchronize(lane->stream);
        (void)cudaGetLastError(); /* otherwise the next launch reports the error */
    }
    give_back(&d);
    return status == RP_OK ? RP_OK : RP_TOOL; /* a run can go on without it */
}
