#include "exec/cuda/tests/trial.h"

#include "exec/operators/random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_NAMES = 128 }; /* names of operators; trials of further operators all run */
enum { GUARD = 256, GUARD_BYTE = 0xa5, SMALL = 48 << 10 /* bytes of a trial's tensors */ };
/* Runs on the GPU: run MOVED_ALL moves all tensors, run MOVED_ALONE + n only tensor n. */
enum { MOVED_ALL = 2, MOVED_ALONE = 3 };
/* k of the error model: sums have other orders, and other operations follow. */
#define FACTOR 8.0

rp_arena *trial_lane_arena;
rp_arena *trial_arena;
double trial_worst;
uint32_t trial_share = 1;
static uint64_t stream; /* stream of random numbers */

int trial_open(void)
{
    if (rp_arena_create(&trial_lane_arena) != RP_OK || rp_arena_create(&trial_arena) != RP_OK ||
        trial_host_open() != RP_OK) {
        return 1;
    }
    return trial_device_open();
}

bool trial_forget(void)
{
    trial_worst = 0;
    rp_arena_destroy(trial_arena);
    return rp_arena_create(&trial_arena) == RP_OK;
}

void trial_close(void)
{
    trial_device_close();
    rp_arena_destroy(trial_arena);
    rp_arena_destroy(trial_lane_arena);
}

trial trial_begin(const char *name, rp_dtype dtype)
{
    return (trial){.name = name, .dtype = dtype};
}

static void *room(size_t bytes)
{
    void *memory = NULL;
    if (rp_arena_alloc(trial_arena, bytes + 1, 1, &memory) != RP_OK) {
        printf("no memory for a trial\n");
    }
    return memory;
}

static uint32_t append(trial *t, trial_tensor tensor)
{
    tensor.host = room(tensor.bytes);
    memcpy(tensor.host, tensor.start, tensor.bytes);
    t->tensors[t->count] = tensor;
    return t->count++;
}

uint32_t trial_normal(trial *t, rp_dtype dtype, uint64_t count, double size)
{
    trial_tensor tensor = {.dtype = dtype, .count = count, .bytes = count * rp_dtype_bytes(dtype)};
    float *wide = room(count * sizeof *wide);
    rpexec_random_normal(7, stream++, size, count, wide);
    tensor.start = room(tensor.bytes);
    if (dtype == RP_DTYPE_F32) {
        memcpy(tensor.start, wide, tensor.bytes);
    } else {
        rpexec_narrow(dtype, count, wide, tensor.start);
    }
    return append(t, tensor);
}

uint32_t trial_values(trial *t, uint64_t count, double size)
{
    return trial_normal(t, t->dtype, count, size);
}

uint32_t trial_raw(trial *t, size_t bytes, const void *content)
{
    trial_tensor tensor = {.raw = true, .bytes = bytes, .start = room(bytes)};
    memcpy(tensor.start, content, bytes);
    return append(t, tensor);
}

void trial_allow(trial *t, uint32_t tensor, double length, double loose)
{
    t->tensors[tensor].length = length;
    t->tensors[tensor].loose = loose;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* Largest relative error of rounding to the type. */
static double unit(rp_dtype dtype)
{
    return dtype == RP_DTYPE_F32   ? ldexp(1, -24)
           : dtype == RP_DTYPE_F16 ? ldexp(1, -11)
                                   : ldexp(1, -8);
}

static const float *wide_of(const trial_tensor *x, const void *values)
{
    if (x->dtype == RP_DTYPE_F32) {
        return values;
    }
    float *wide = room(x->count * sizeof *wide);
    rpexec_widen(x->dtype, x->count, values, wide);
    return wide;
}

/* The largest error divided by the allowed error. Host and GPU both round to the type, hence twice
 * its unit is allowed, and a value too small for fp16's normal numbers may be off by a
 * subnormal. */
static double worst_of(const trial_tensor *x, uint64_t *where)
{
    const float *right = wide_of(x, x->host);
    const float *got = wide_of(x, x->device[0]);
    double squares = 0;
    double worst = 0;
    for (uint64_t i = 0; i < x->count; i++) {
        squares += isfinite(right[i]) ? (double)right[i] * (double)right[i] : 0;
    }
    double rms = sqrt(squares / (double)x->count);
    double smallest = x->dtype == RP_DTYPE_F16 ? ldexp(1, -24) : 0;
    for (uint64_t i = 0; i < x->count; i++) {
        double size = fmax(rms, fabs((double)right[i]));
        double allowed = FACTOR * ldexp(1, -24) * sqrt(x->length) * size + x->loose +
                         2 * unit(x->dtype) * fabs((double)right[i]) + smallest;
        double error = fabs((double)got[i] - (double)right[i]) / allowed;
        bool same = got[i] == right[i] || (isnan(got[i]) && isnan(right[i]));
        if (!same && !(error <= worst)) {
            worst = isnan(error) ? INFINITY : error;
            *where = i;
        }
    }
    return worst;
}

static double worst_of_doubles(const trial_tensor *x)
{
    double right, got;
    memcpy(&right, x->host, sizeof right);
    memcpy(&got, x->device[0], sizeof got);
    bool same = got == right || (isnan(got) && isnan(right));
    double error = fabs(got - right) / (x->relative * fabs(right));
    return same ? 0 : isnan(error) ? INFINITY : error;
}

static bool compare(trial *t, uint32_t number)
{
    trial_tensor *x = &t->tensors[number];
    uint64_t where = 0;
    double worst = 0;
    if (x->raw && x->relative > 0) {
        worst = worst_of_doubles(x);
    } else if (x->raw || (x->length == 0 && x->loose == 0)) {
        worst = memcmp(x->host, x->device[0], x->bytes) == 0 ? 0 : INFINITY;
    } else {
        worst = worst_of(x, &where);
    }
    trial_worst = fmax(trial_worst, worst);
    if (worst <= 1) {
        return true;
    }
    printf("%s, %s, tensor %u: %.3g times what is allowed at %llu of %llu\n", t->name,
           rp_dtype_text(t->dtype), number, worst, (unsigned long long)where,
           (unsigned long long)x->count);
    return false;
}

/* ---- on the GPU ------------------------------------------------------------------------------ */

static size_t room_of(const trial_tensor *x)
{
    return (x->bytes + GUARD - 1) / GUARD * GUARD + 3 * GUARD;
}

/* Bytes from the beginning of a tensor's memory to the tensor. */
static size_t offset_of(const trial_tensor *x, bool moved)
{
    size_t value = x->raw ? 8 : rp_dtype_bytes(x->dtype);
    return GUARD + (moved ? value : 0);
}

static bool guards_stand(const unsigned char *memory, size_t offset, size_t bytes, size_t all)
{
    for (size_t i = 0; i < all; i++) {
        if ((i < offset || i >= offset + bytes) && memory[i] != GUARD_BYTE) {
            return false;
        }
    }
    return true;
}

static bool is_moved(uint32_t tensor, uint32_t run)
{
    return run == MOVED_ALL || run == MOVED_ALONE + tensor;
}

static bool place(const trial *t, uint32_t run, unsigned char *mirror[], void *memory[], void *p[])
{
    for (uint32_t i = 0; i < t->count; i++) {
        const trial_tensor *x = &t->tensors[i];
        memory[i] = trial_device_memory(room_of(x));
        mirror[i] = room(room_of(x));
        memset(mirror[i], GUARD_BYTE, room_of(x));
        size_t offset = offset_of(x, is_moved(i, run));
        memcpy(mirror[i] + offset, x->start, x->bytes);
        if (memory[i] == NULL || !trial_to_device(memory[i], mirror[i], room_of(x))) {
            printf("%s: the GPU's memory cannot be had\n", t->name);
            return false;
        }
        p[i] = (unsigned char *)memory[i] + offset;
    }
    return true;
}

/* Runs the operator once, and keeps the results as the tensors' device[number]. */
static bool run_on_device(trial *t, uint32_t number, trial_operator operator, const void * context)
{
    bool well = true;
    unsigned char *mirror[TRIAL_TENSORS];
    void *memory[TRIAL_TENSORS];
    void *p[TRIAL_TENSORS];
    if (!place(t, number, mirror, memory, p)) {
        return false;
    }
    trial_reverse(number == 1);
    operator(context, trial_device_lane(t->dtype), trial_device_table(t->dtype), p);
    trial_reverse(false);
    for (uint32_t i = 0; i < t->count; i++) {
        trial_tensor *x = &t->tensors[i];
        size_t offset = offset_of(x, is_moved(i, number));
        if (!trial_from_device(mirror[i], memory[i], room_of(x))) {
            printf("%s, %s: reading back failed\n", t->name, rp_dtype_text(t->dtype));
            well = false;
        } else if (!guards_stand(mirror[i], offset, x->bytes, room_of(x))) {
            printf("%s, %s, tensor %u: written outside, run %u\n", t->name, rp_dtype_text(t->dtype),
                   i, number);
            well = false;
        }
        x->device[number < MOVED_ALL ? number : MOVED_ALL] = mirror[i] + offset;
        trial_device_memory_back(memory[i]);
    }
    if (trial_device_status(t->dtype) != RP_OK) {
        printf("%s, %s: the lane has failed\n", t->name, rp_dtype_text(t->dtype));
        well = false;
    }
    return well;
}

static bool same_bits(const trial *t, uint32_t run)
{
    bool same = true;
    for (uint32_t i = 0; i < t->count; i++) {
        const trial_tensor *x = &t->tensors[i];
        const void *left = x->device[run < MOVED_ALL ? run : MOVED_ALL];
        if (memcmp(x->device[0], left, x->bytes) != 0) {
            printf("%s, %s, tensor %u: run %u leaves other bits%s\n", t->name,
                   rp_dtype_text(t->dtype), i, run, run >= MOVED_ALL ? " at other addresses" : "");
            same = false;
        }
    }
    return same;
}

static bool is_small(const trial *t)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        bytes += t->tensors[i].bytes;
    }
    return bytes <= SMALL;
}

/* Number of runs. Only bf16 moves single tensors, since kernels check the addresses of all types in
 * the same way, and races are found at any address. */
static uint32_t runs_of(const trial *t)
{
    bool alone = is_small(t) && t->dtype == RP_DTYPE_BF16 && !trial_goes_by_barriers();
    uint32_t most = MOVED_ALONE + (alone ? t->count : 0);
    return t->once ? 1 : t->keep_aligned ? MOVED_ALL : most;
}

/* The sample has the first trial of each operator. A hash of the trial's number chooses among the
 * others, so that the sample is not in step with a loop over shapes.
 */
static bool is_left_out(const trial *t)
{
    static const char *seen[MOST_NAMES];
    static uint32_t number;
    uint32_t at = 0;
    while (at < MOST_NAMES && seen[at] != NULL && strcmp(seen[at], t->name) != 0) {
        at++;
    }
    bool first = at == MOST_NAMES || seen[at] == NULL;
    if (at < MOST_NAMES) {
        seen[at] = t->name;
    }
    return (number++ * 2654435761U >> 16) % trial_share != 0 && !first;
}

bool trial_run(trial *t, trial_operator operator, const void * context)
{
    void *p[TRIAL_TENSORS];
    for (uint32_t i = 0; i < t->count; i++) {
        p[i] = t->tensors[i].host;
    }
    operator(context, trial_host_lane(t->dtype), trial_host_table(t->dtype), p);
    if (is_left_out(t)) { /* after the host's run, since later trials may begin with its results */
        return true;
    }
    bool well = run_on_device(t, 0, operator, context);
    uint32_t runs = runs_of(t);
    for (uint32_t i = trial_goes_by_barriers() ? 2 : 1; i < runs && well; i++) {
        well = run_on_device(t, i, operator, context) && same_bits(t, i);
    }
    for (uint32_t i = 0; i < t->count && well; i++) {
        well = compare(t, i);
    }
    return well;
}
