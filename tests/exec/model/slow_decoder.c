/* The double-precision reference of the executor's operators is itself compared with central
 * differences (executor.md section 3, 3), and its golden files with the reference's present
 * results. */
#include "tests/reference/slow_golden.h"
#include "tests/support/assertions.h"
#include "tests/support/worse.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Step of the differences, and the allowed relative error. The differences use five points, with an
 * error of order h^4: (8 (f(+h) - f(-h)) - (f(+2h) - f(-2h))) / 12h. */
#define STEP 1e-3
#define TOLERANCE 1e-6

#define MOST 4096

static uint64_t seed;

static double uniform(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(seed >> 40) / (1 << 23) - 1;
}

static double *numbers(int count)
{
    double *x = calloc((size_t)count, sizeof *x);
    cr_assert(x != NULL);
    for (int i = 0; i < count; i++) {
        x[i] = uniform();
    }
    return x;
}

/* An operator with all its arguments. The function to differentiate is the sum of the outputs of
 * `forward`, each times its element of `d_output`. */
typedef struct operator_case {
    const char *name;
    void (*forward)(const struct operator_case *c, double *output);
    /* Adds to gradient[i]. */
    void (*backward)(const struct operator_case *c, double *const *gradients);
    int sizes[6];
    const int32_t *ids;
    int outputs;
    int argument_count;
    int counts[3];
    double *arguments[3];
    double *d_output;
} operator_case;

static double value(const operator_case *c)
{
    double output[MOST];
    double sum = 0;
    c->forward(c, output);
    for (int i = 0; i < c->outputs; i++) {
        sum += c->d_output[i] * output[i];
    }
    return sum;
}

static double difference(double (*f)(const void *), const void *context, double *x)
{
    static const double at[] = {2, 1, -1, -2};
    static const double factors[] = {-1, 8, -8, 1};
    double was = *x;
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        *x = was + at[i] * STEP;
        sum += factors[i] * f(context);
    }
    *x = was;
    return sum / (12 * STEP);
}

static double value_of(const void *context)
{
    return value(context);
}

/* Error relative to the element, or to its tensor's root mean square if that is larger. */
static double worst_error(const double *got, const double *expected, int count)
{
    double squares = 0;
    double worst = 0;
    for (int i = 0; i < count; i++) {
        squares += expected[i] * expected[i];
    }
    double rms = sqrt(squares / count);
    for (int i = 0; i < count; i++) {
        double error = fabs(got[i] - expected[i]) / fmax(fabs(expected[i]), rms);
        worst = rp_test_worse(worst, error);
    }
    return worst;
}

static void check(operator_case *c)
{
    double *gradients[3];
    cr_assert(c->outputs <= MOST);
    c->d_output = numbers(c->outputs);
    for (int a = 0; a < c->argument_count; a++) {
        c->arguments[a] = numbers(c->counts[a]);
        gradients[a] = calloc((size_t)c->counts[a], sizeof(double));
    }
    c->backward(c, gradients);
    for (int a = 0; a < c->argument_count; a++) {
        double *expected = calloc((size_t)c->counts[a], sizeof *expected);
        for (int i = 0; i < c->counts[a]; i++) {
            expected[i] = difference(value_of, c, &c->arguments[a][i]);
        }
        double worst = worst_error(gradients[a], expected, c->counts[a]);
        cr_expect(worst <= TOLERANCE, "%s, argument %d: %g", c->name, a, worst);
        free(expected);
    }
    for (int a = 0; a < c->argument_count; a++) {
        free(c->arguments[a]);
        free(gradients[a]);
    }
    free(c->d_output);
}

/* ---- single operators ------------------------------------------------------------------------ */

#define EPS 1e-2 /* large enough to matter */

static void norm_forward(const operator_case *c, double *y)
{
    slow_rms_norm(c->sizes[0], c->sizes[1], EPS, c->arguments[0], c->arguments[1], y);
}

static void norm_backward(const operator_case *c, double *const *g)
{
    slow_rms_norm_backward(c->sizes[0], c->sizes[1], EPS, c->arguments[0], c->arguments[1],
                           c->d_output, g[0], g[1]);
}

Test(slow_decoder, norm_of_rows)
{
    operator_case c = {.name = "RMSNorm",
                       .forward = norm_forward,
                       .backward = norm_backward,
                       .sizes = {5, 32},
                       .outputs = 160,
                       .argument_count = 2,
                       .counts = {160, 32}};
    check(&c);
}

/* The rows are tokens x heads, and all heads share the weight. */
Test(slow_decoder, norm_of_heads)
{
    operator_case c = {.name = "QK-norm",
                       .forward = norm_forward,
                       .backward = norm_backward,
                       .sizes = {17 * 4, 8},
                       .outputs = 17 * 4 * 8,
                       .argument_count = 2,
                       .counts = {17 * 4 * 8, 8}};
    check(&c);
}

static void linear_forward(const operator_case *c, double *y)
{
    slow_linear(c->sizes[0], c->sizes[1], c->sizes[2], c->arguments[0], c->arguments[1], y);
}

static void linear_backward(const operator_case *c, double *const *g)
{
    slow_linear_backward(c->sizes[0], c->sizes[1], c->sizes[2], c->arguments[0], c->arguments[1],
                         c->d_output, g[0], g[1]);
}

Test(slow_decoder, linear)
{
    operator_case c = {.name = "linear",
                       .forward = linear_forward,
                       .backward = linear_backward,
                       .sizes = {7, 12, 9},
                       .outputs = 7 * 9,
                       .argument_count = 2,
                       .counts = {7 * 12, 9 * 12}};
    check(&c);
}

static void rotate_forward(const operator_case *c, double *y)
{
    double frequencies[4];
    slow_rope_frequencies(8, 5e5, c->sizes[0] != 0, frequencies);
    slow_rotate(2, 17, 3, 8, frequencies, c->arguments[0], y);
}

static void rotate_backward(const operator_case *c, double *const *g)
{
    double frequencies[4];
    slow_rope_frequencies(8, 5e5, c->sizes[0] != 0, frequencies);
    slow_rotate_backward(2, 17, 3, 8, frequencies, c->d_output, g[0]);
}

Test(slow_decoder, rotation)
{
    for (int llama = 0; llama < 2; llama++) {
        operator_case c = {.name = "RoPE",
                           .forward = rotate_forward,
                           .backward = rotate_backward,
                           .sizes = {llama},
                           .outputs = 2 * 17 * 3 * 8,
                           .argument_count = 1,
                           .counts = {2 * 17 * 3 * 8}};
        check(&c);
    }
}

/* Llama-3.1's frequencies for heads of 128 and base 5e5, as computed by transformers 5.23 (rope
 * type llama3) in float32. */
Test(slow_decoder, frequencies_of_llama)
{
    static const struct {
        int i;
        double expected;
    } known[] = {{0, 1},
                 {28, 0.00321144611},
                 {29, 0.00216657063},
                 {30, 0.00137189368},
                 {31, 0.00085675146},
                 {32, 0.000524846022},
                 {33, 0.00031269365},
                 {34, 0.000178507791},
                 {35, 9.55621217e-05},
                 {40, 3.42810235e-05},
                 {63, 3.06892588e-07}};
    double frequencies[64];
    slow_rope_frequencies(128, 5e5, true, frequencies);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        double got = frequencies[known[i].i];
        cr_expect(fabs(got / known[i].expected - 1) < 1e-6, "%d: %.9g", known[i].i, got);
    }
}

static slow_attention_sizes attention = {2, 17, 4, 2, 8, 0, 0, 0};

static void attention_forward(const operator_case *c, double *o)
{
    slow_attention(&attention, c->arguments[0], c->arguments[1], c->arguments[2], o, NULL);
}

static void attention_backward(const operator_case *c, double *const *g)
{
    slow_attention_backward(&attention, c->arguments[0], c->arguments[1], c->arguments[2],
                            c->d_output, g[0], g[1], g[2]);
}

Test(slow_decoder, grouped_attention)
{
    enum { T = 2 * 17, Q = T * 4 * 8, KV = T * 2 * 8 };
    operator_case c = {.name = "attention",
                       .forward = attention_forward,
                       .backward = attention_backward,
                       .outputs = Q,
                       .argument_count = 3,
                       .counts = {Q, KV, KV}};
    check(&c);
    c.name = "attention with a scale and a cap";
    attention.scale = 0.7;
    attention.cap = 1.25;
    check(&c);
}

static void geglu_forward(const operator_case *c, double *s)
{
    slow_geglu(c->outputs, c->arguments[0], c->arguments[1], s);
}

static void geglu_backward(const operator_case *c, double *const *g)
{
    slow_geglu_backward(c->outputs, c->arguments[0], c->arguments[1], c->d_output, g[0], g[1]);
}

Test(slow_decoder, geglu)
{
    operator_case c = {.name = "GeGLU",
                       .forward = geglu_forward,
                       .backward = geglu_backward,
                       .outputs = 100,
                       .argument_count = 2,
                       .counts = {100, 100}};
    check(&c);
}

static void swiglu_forward(const operator_case *c, double *s)
{
    slow_swiglu(c->outputs, c->arguments[0], c->arguments[1], s);
}

static void swiglu_backward(const operator_case *c, double *const *g)
{
    slow_swiglu_backward(c->outputs, c->arguments[0], c->arguments[1], c->d_output, g[0], g[1]);
}

Test(slow_decoder, swiglu)
{
    operator_case c = {.name = "SwiGLU",
                       .forward = swiglu_forward,
                       .backward = swiglu_backward,
                       .outputs = 100,
                       .argument_count = 2,
                       .counts = {100, 100}};
    check(&c);
}

static const int32_t ids[] = {3, 0, 3, 4, 3, 0, 6};

static void embed_forward(const operator_case *c, double *x)
{
    slow_embed(7, 5, ids, c->arguments[0], x);
}

static void embed_backward(const operator_case *c, double *const *g)
{
    slow_embed_backward(7, 5, ids, c->d_output, g[0]);
}

Test(slow_decoder, embedding)
{
    operator_case c = {.name = "embedding",
                       .forward = embed_forward,
                       .backward = embed_backward,
                       .outputs = 35,
                       .argument_count = 1,
                       .counts = {8 * 5}};
    check(&c);
}

static const int32_t labels[] = {5, SLOW_IGNORED, 0, 12, SLOW_IGNORED};

static void loss_forward(const operator_case *c, double *loss)
{
    loss[0] = slow_cross_entropy(5, 13, labels, c->arguments[0]);
}

static void loss_backward(const operator_case *c, double *const *g)
{
    slow_cross_entropy_backward(5, 13, labels, c->d_output[0], c->arguments[0], g[0]);
}

Test(slow_decoder, cross_entropy_with_ignored_labels)
{
    operator_case c = {.name = "cross-entropy",
                       .forward = loss_forward,
                       .backward = loss_backward,
                       .outputs = 1,
                       .argument_count = 1,
                       .counts = {5 * 13}};
    check(&c);
}

/* ---- whole decoders -------------------------------------------------------------------------- */

typedef struct decoder_case {
    const slow_decoder *decoder;
    slow_batch batch;
    double *weights;
} decoder_case;

static double loss_of(const void *context)
{
    const decoder_case *c = context;
    return slow_decoder_loss(c->decoder, &c->batch, c->weights, NULL);
}

/* Checks some elements of every tensor of the tiny models. */
static void check_decoder(const char *name)
{
    enum { SAMPLES = 6 };
    slow_golden g;
    double *gradients = NULL;
    slow_golden_make(name, &g);
    double *weights = slow_golden_weights(&g, &gradients);
    decoder_case c = {&g.decoder, {1, g.seq_len, g.ids, g.labels}, weights};
    (void)slow_decoder_loss(&g.decoder, &c.batch, weights, gradients);
    for (int i = 0; i < g.count; i++) {
        double got[SAMPLES];
        double expected[SAMPLES];
        for (int k = 0; k < SAMPLES; k++) {
            int last = g.tensors[i].shape.rows * g.tensors[i].shape.columns - 1;
            /* in tables: an element of a row that occurs in the sequence */
            int inside = g.tensors[i].shape.rows == g.decoder.vocab
                             ? g.ids[k] * g.decoder.hidden + 3 * k
                             : last * k / (SAMPLES - 1);
            size_t at = g.tensors[i].shape.offset + (size_t)inside;
            got[k] = gradients[at];
            expected[k] = difference(loss_of, &c, &weights[at]);
        }
        double worst = worst_error(got, expected, SAMPLES);
        cr_expect(worst <= TOLERANCE, "%s, %s: %g", name, g.tensors[i].shape.name, worst);
    }
    free(weights);
    free(gradients);
    slow_golden_free(&g);
}

Test(slow_decoder, tied_decoder)
{
    check_decoder("tied");
}

Test(slow_decoder, untied_decoder)
{
    check_decoder("untied");
}

/* ---- golden files ---------------------------------------------------------------------------- */

static void expect_close(const char *tensor, const float *file, const float *now, int count)
{
    for (int i = 0; i < count; i++) {
        double error = fabs((double)file[i] - (double)now[i]);
        /* a unit in the last place, since mathematical libraries may differ there */
        cr_expect(error <= ldexp(fabs((double)now[i]), -23), "%s, element %d", tensor, i);
    }
}

static bool same_sizes(const slow_golden *a, const slow_golden *b)
{
    const slow_decoder *c = &a->decoder;
    const slow_decoder *d = &b->decoder;
    return c->layers == d->layers && c->hidden == d->hidden && c->heads == d->heads &&
           c->kv_heads == d->kv_heads && c->head_dim == d->head_dim &&
           c->intermediate == d->intermediate && c->vocab == d->vocab && c->theta == d->theta &&
           c->eps == d->eps && c->tied == d->tied && c->qk_norm == d->qk_norm &&
           c->llama == d->llama && a->sequences == b->sequences && a->seq_len == b->seq_len;
}

Test(slow_decoder, golden_files_are_what_the_reference_gives)
{
    for (int n = 0; n < slow_golden_count; n++) {
        char path[512];
        slow_golden file;
        slow_golden now;
        snprintf(path, sizeof path, RP_TEST_ROOT "/golden/decoders/reference/%s.bin",
                 slow_golden_names[n]);
        const char *wrong = slow_golden_read(path, &file);
        cr_assert(wrong == NULL, "%s: %s; made by the target decoder_golden", path, wrong);
        slow_golden_make(slow_golden_names[n], &now);
        size_t tokens = (size_t)(now.sequences * now.seq_len);
        cr_assert(same_sizes(&file, &now), "%s", path);
        cr_assert(memcmp(file.ids, now.ids, tokens * sizeof(int32_t)) == 0);
        cr_assert(memcmp(file.labels, now.labels, tokens * sizeof(int32_t)) == 0);
        cr_expect(fabs(file.loss / now.loss - 1) < 1e-14, "%s: loss %.17g", path, file.loss);
        cr_assert(eq(int, file.count, now.count));
        for (int i = 0; i < now.count; i++) {
            const slow_golden_tensor *t = &now.tensors[i];
            int count = t->shape.rows * t->shape.columns;
            cr_expect(memcmp(file.tensors[i].weights, t->weights, (size_t)count * sizeof(float)) ==
                      0);
            expect_close(t->shape.name, file.tensors[i].gradients, t->gradients, count);
        }
        slow_golden_free(&file);
        slow_golden_free(&now);
    }
}

/* A file in which a single bit has changed, anywhere, is refused. */
Test(slow_decoder, damaged_golden_files_are_refused)
{
    static unsigned char bytes[1 << 20];
    char path[64];
    slow_golden g;
    FILE *stream = fopen(RP_TEST_ROOT "/golden/decoders/reference/tied.bin", "rb");
    cr_assert(stream != NULL);
    size_t size = fread(bytes, 1, sizeof bytes, stream);
    fclose(stream);
    cr_assert(size < sizeof bytes);
    snprintf(path, sizeof path, "/tmp/rp-golden-%d.bin", (int)getpid());
    for (size_t at = 3; at < size; at += size / 40) {
        bytes[at] ^= 4;
        stream = fopen(path, "wb");
        cr_assert(stream != NULL);
        cr_assert(eq(sz, fwrite(bytes, 1, size, stream), size));
        cr_assert(eq(int, fclose(stream), 0));
        cr_expect(slow_golden_read(path, &g) != NULL, "byte %zu", at);
        bytes[at] ^= 4;
    }
    (void)unlink(path);
}
