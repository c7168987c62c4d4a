#include "tests/reference/slow_golden.h"

#include "tests/reference/slow_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = {'R', 'P', 'G', 'R', 'A', 'D', '\r', '\n'};
#define VERSION 1u

/* ---- the cases ------------------------------------------------------------------------------- */

typedef struct slow_case {
    const char *name;
    slow_decoder decoder;
    int sequences, seq_len;
} slow_case;

/* The tiny model of executor.md 3.3 in both families: d = 32, 2 blocks, GQA 4/2, V = 97, S = 17.
 * The rotation's base is large enough for Llama's scaling to change half of the frequencies. The
 * deep model has a layer for each of 16 stages: 8 GPUs with two stages each. */
static const slow_case cases[] = {
    {"tied", {2, 32, 4, 2, 8, 48, 97, 1e6, 1e-6, true, true, false}, 4, 17},
    {"untied", {2, 32, 4, 2, 8, 48, 97, 5e5, 1e-5, false, false, true}, 4, 17},
    {"deep", {16, 8, 2, 1, 4, 12, 19, 1e6, 1e-6, true, true, false}, 16, 3},
};

const char *const slow_golden_names[] = {"tied", "untied", "deep"};
const int slow_golden_count = 3;

/* Uniform in -1 to 1, exact in fp32: the upper bits of a linear congruential generator (Knuth,
 * MMIX). */
static double uniform(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 40) / (1 << 23) - 1;
}

/* Norm weights are about 1. Matrices keep the variance of their inputs, except for the 2 L matrices
 * that add to the residual stream, whose outputs together have the variance of one input. The rows
 * of the table have variance 1/3. */
static float initial(const slow_parameter *p, int layers, uint64_t *state)
{
    if (strstr(p->name, "norm") != NULL) {
        return (float)(1 + 0.3 * uniform(state));
    }
    double size = strstr(p->name, "embed_tokens") != NULL ? 1 : sqrt(3.0 / p->columns);
    if (strstr(p->name, "o_proj") != NULL || strstr(p->name, "down_proj") != NULL) {
        size /= sqrt(2.0 * layers);
    }
    return (float)(size * uniform(state));
}

static void make_inputs(slow_golden *g, uint64_t *state)
{
    int tokens = g->sequences * g->seq_len;
    g->ids = slow_alloc((size_t)tokens, sizeof *g->ids);
    g->labels = slow_alloc((size_t)tokens, sizeof *g->labels);
    for (int i = 0; i < tokens; i++) {
        g->ids[i] = (int32_t)floor((uniform(state) + 1) / 2 * g->decoder.vocab);
        g->labels[i] = uniform(state) > 1 - 2.0 / 7
                           ? SLOW_IGNORED
                           : (int32_t)floor((uniform(state) + 1) / 2 * g->decoder.vocab);
    }
}

static void make(const slow_case *c, slow_golden *g)
{
    uint64_t state = 1;
    size_t elements;
    *g = (slow_golden){.decoder = c->decoder, .sequences = c->sequences, .seq_len = c->seq_len};
    make_inputs(g, &state);
    slow_parameter *parameters = slow_decoder_parameters(&g->decoder, &g->count, &elements);
    double *gradients = NULL;
    g->tensors = slow_alloc((size_t)g->count, sizeof *g->tensors);
    for (int i = 0; i < g->count; i++) {
        slow_golden_tensor *t = &g->tensors[i];
        t->shape = parameters[i];
        size_t count = (size_t)t->shape.rows * (size_t)t->shape.columns;
        t->weights = slow_alloc(count, sizeof(float));
        t->gradients = slow_alloc(count, sizeof(float));
        for (size_t k = 0; k < count; k++) {
            t->weights[k] = initial(&t->shape, g->decoder.layers, &state);
        }
    }
    double *weights = slow_golden_weights(g, &gradients);
    const slow_batch batch = {g->sequences, g->seq_len, g->ids, g->labels};
    g->loss = slow_decoder_loss(&g->decoder, &batch, weights, gradients);
    for (int i = 0; i < g->count; i++) {
        slow_golden_tensor *t = &g->tensors[i];
        for (int k = 0; k < t->shape.rows * t->shape.columns; k++) {
            t->gradients[k] = (float)gradients[t->shape.offset + (size_t)k];
        }
    }
    free(weights);
    free(gradients);
    free(parameters);
}

void slow_golden_make(const char *name, slow_golden *golden_out)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(cases[i].name, name) == 0) {
            make(&cases[i], golden_out);
            return;
        }
    }
    slow_require(false, "no such case");
}

double *slow_golden_weights(const slow_golden *g, double **gradients_out)
{
    size_t elements;
    int count;
    free(slow_decoder_parameters(&g->decoder, &count, &elements));
    double *weights = slow_alloc(elements, sizeof *weights);
    *gradients_out = slow_alloc(elements, sizeof *weights);
    for (int i = 0; i < count; i++) {
        const slow_parameter *p = &g->tensors[i].shape;
        for (int k = 0; k < p->rows * p->columns; k++) {
            weights[p->offset + (size_t)k] = (double)g->tensors[i].weights[k];
        }
    }
    return weights;
}

void slow_golden_free(slow_golden *g)
{
    for (int i = 0; i < g->count; i++) {
        free(g->tensors[i].weights);
        free(g->tensors[i].gradients);
    }
    free(g->tensors);
    free(g->ids);
    free(g->labels);
    *g = (slow_golden){.count = 0};
}

/* ---- the format: the same walk over all fields writes and reads ------------------------------ */

typedef struct slow_walk {
    FILE *stream;
    bool reading, failed;
    uint64_t hash;
} slow_walk;

/* The low `bytes` bytes of *value, little-endian. */
static void walk_bits(slow_walk *w, uint64_t *value, int bytes)
{
    unsigned char raw[8] = {0};
    for (int i = 0; i < bytes && !w->reading; i++) {
        raw[i] = (unsigned char)(*value >> (8 * i));
    }
    size_t done = w->reading ? fread(raw, 1, (size_t)bytes, w->stream)
                             : fwrite(raw, 1, (size_t)bytes, w->stream);
    w->failed |= done != (size_t)bytes;
    *value = 0;
    for (int i = 0; i < bytes; i++) {
        *value |= (uint64_t)raw[i] << (8 * i);
        w->hash = (w->hash ^ raw[i]) * UINT64_C(1099511628211);
    }
}

static void walk_int(slow_walk *w, int *value)
{
    uint64_t bits = (uint32_t)*value;
    walk_bits(w, &bits, 4);
    *value = (int)(int32_t)(uint32_t)bits;
}

static void walk_double(slow_walk *w, double *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    walk_bits(w, &bits, 8);
    memcpy(value, &bits, sizeof bits);
}

static void walk_floats(slow_walk *w, float **values, size_t count)
{
    *values = w->reading ? slow_alloc(count, sizeof(float)) : *values;
    for (size_t i = 0; i < count && !w->failed; i++) {
        uint32_t bits;
        memcpy(&bits, *values + i, sizeof bits);
        uint64_t wide = bits;
        walk_bits(w, &wide, 4);
        bits = (uint32_t)wide;
        memcpy(*values + i, &bits, sizeof bits);
    }
}

static void walk_ints(slow_walk *w, int32_t **values, int count)
{
    *values = w->reading ? slow_alloc((size_t)count, sizeof(int32_t)) : *values;
    for (int i = 0; i < count && !w->failed; i++) {
        int value = (*values)[i];
        walk_int(w, &value);
        (*values)[i] = value;
    }
}

/* True if the sizes are those of a test; a larger file is no golden file. */
static bool plausible(const slow_golden *g)
{
    const slow_decoder *d = &g->decoder;
    const int sizes[] = {d->layers,       d->hidden, d->heads,     d->kv_heads, d->head_dim,
                         d->intermediate, d->vocab,  g->sequences, g->seq_len};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i] < 1 || sizes[i] > 4096) {
            return false;
        }
    }
    return true;
}

static void walk_header(slow_walk *w, slow_golden *g)
{
    slow_decoder *d = &g->decoder;
    int *const sizes[] = {&d->layers,   &d->hidden,       &d->heads, &d->kv_heads,
                          &d->head_dim, &d->intermediate, &d->vocab};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        walk_int(w, sizes[i]);
    }
    walk_double(w, &d->theta);
    walk_double(w, &d->eps);
    int flags = (d->tied ? 1 : 0) | (d->qk_norm ? 2 : 0) | (d->llama ? 4 : 0);
    walk_int(w, &flags);
    d->tied = (flags & 1) != 0;
    d->qk_norm = (flags & 2) != 0;
    d->llama = (flags & 4) != 0;
    walk_int(w, &g->sequences);
    walk_int(w, &g->seq_len);
}

/* Names and shapes must be those of the configuration, in its order. */
static void walk_tensor(slow_walk *w, slow_golden_tensor *t)
{
    int length = (int)strlen(t->shape.name);
    int expected = length;
    walk_int(w, &length);
    w->failed |= length != expected;
    for (int i = 0; i < expected && !w->failed; i++) {
        uint64_t letter = (unsigned char)t->shape.name[i];
        walk_bits(w, &letter, 1);
        w->failed |= (char)letter != t->shape.name[i];
    }
    int rank = t->shape.rows == 1 ? 1 : 2;
    walk_int(w, &rank);
    w->failed |= rank != (t->shape.rows == 1 ? 1 : 2);
    uint64_t rows = (uint64_t)t->shape.rows;
    uint64_t columns = (uint64_t)t->shape.columns;
    if (rank == 2) {
        walk_bits(w, &rows, 8);
    }
    walk_bits(w, &columns, 8);
    w->failed |= rows != (uint64_t)t->shape.rows || columns != (uint64_t)t->shape.columns;
    walk_floats(w, &t->weights, (size_t)t->shape.rows * (size_t)t->shape.columns);
    walk_floats(w, &t->gradients, (size_t)t->shape.rows * (size_t)t->shape.columns);
}

static void prepare_tensors(slow_golden *g)
{
    size_t elements;
    slow_parameter *parameters = slow_decoder_parameters(&g->decoder, &g->count, &elements);
    g->tensors = slow_alloc((size_t)g->count, sizeof *g->tensors);
    for (int i = 0; i < g->count; i++) {
        g->tensors[i].shape = parameters[i];
    }
    free(parameters);
}

static const char *walk(slow_walk *w, slow_golden *g)
{
    w->hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof magic; i++) {
        uint64_t letter = (unsigned char)magic[i];
        walk_bits(w, &letter, 1);
        if (w->failed || (char)letter != magic[i]) {
            return "wrong magic";
        }
    }
    int version = (int)VERSION;
    walk_int(w, &version);
    if (version != (int)VERSION) {
        return "wrong version";
    }
    walk_header(w, g);
    if (w->failed || !plausible(g)) {
        return "sizes out of range";
    }
    walk_ints(w, &g->ids, g->sequences * g->seq_len);
    walk_ints(w, &g->labels, g->sequences * g->seq_len);
    walk_double(w, &g->loss);
    if (w->reading) {
        prepare_tensors(g);
    }
    int count = g->count;
    walk_int(w, &count);
    w->failed |= count != g->count;
    for (int i = 0; i < g->count && !w->failed; i++) {
        walk_tensor(w, &g->tensors[i]);
    }
    uint64_t sum = w->hash;
    uint64_t expected = sum;
    walk_bits(w, &sum, 8);
    return w->failed ? "cut short, or other tensors" : sum != expected ? "wrong checksum" : NULL;
}

bool slow_golden_write(const slow_golden *golden, FILE *stream)
{
    slow_golden copy = *golden; /* the walk only reads it when it writes the file */
    slow_walk w = {.stream = stream};
    return walk(&w, &copy) == NULL;
}

const char *slow_golden_read(const char *path, slow_golden *golden_out)
{
    *golden_out = (slow_golden){.count = 0};
    slow_walk w = {.stream = fopen(path, "rb"), .reading = true};
    if (w.stream == NULL) {
        return "cannot be opened";
    }
    const char *wrong = walk(&w, golden_out);
    if (wrong == NULL && fgetc(w.stream) != EOF) {
        wrong = "bytes behind the checksum";
    }
    fclose(w.stream);
    if (wrong != NULL) {
        slow_golden_free(golden_out);
    }
    return wrong;
}
