/* One list of all operators with their parameters; everything else is made of it. */
#include "exec/operators/calls.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- work that a call asks for ----------------------------------------------------------------
 */

static double area(double rows, double columns)
{
    return rows * columns;
}

/* Of what is written, or added to: then it is read as well. */
static double into(double values, bool add)
{
    return add ? 2 * values : values;
}

static double attention_flop(const rpexec_attention_sizes *s)
{
    double window = s->window == 0 || s->window > s->seq_len ? s->seq_len : s->window;
    double keys = window * (1 - window / (2.0 * s->seq_len));
    return 4.0 * s->sequences * s->seq_len * keys * s->heads * s->head_dim;
}

static double attention_values(const rpexec_attention_sizes *s)
{
    return 2 * area((double)s->sequences * s->seq_len, s->head_dim) * (s->heads + s->kv_heads);
}

static double scores(const rpexec_routing *r)
{
    return (double)r->tokens * r->experts;
}

/* Rows that are gathered. */
static double routed(const rpexec_routing *r)
{
    return (double)r->tokens * r->active;
}

static double experts_flop(const rpexec_routing *r, const rpexec_matrices *m)
{
    return 2 * routed(r) * m->in * m->out;
}

static double experts_values(const rpexec_routing *r, const rpexec_matrices *m)
{
    return (double)r->experts * m->in * m->out;
}

/* clang-format off */

#define COUNT_SHAPE "%" PRIu64, count
#define ROWS_SHAPE(rows, width) "%" PRIu64 "x%" PRIu32, rows, width
#define LINEAR_SHAPE "%" PRIu64 "x%" PRIu32 "x%" PRIu32, rows, in, out
#define ATTENTION_SHAPE                                                                            \
    "%" PRIu32 "x%" PRIu32 " heads %" PRIu32 "/%" PRIu32 "x%" PRIu32, sizes->sequences,            \
        sizes->seq_len, sizes->heads, sizes->kv_heads, sizes->head_dim
#define ROUTED(more)                                                                               \
    "%" PRIu64 " to %" PRIu32 " of %" PRIu32 more, routing->tokens, routing->active,               \
        routing->experts
#define ROUTED_SHAPE ROUTED(" x%" PRIu32), width
#define EXPERTS_SHAPE ROUTED(" x%" PRIu32 "x%" PRIu32), matrices->in, matrices->out

/* X(operator, (FLOP, values of tensors, fp32 values, shape...), (KIND, parameter)...): all of
 * operators.h but `finite`, which answers. Values are those that it has to read and write at
 * least. */
#define OPERATOR_LIST(X)                                                                           \
    X(rms_norm, (0, 2 * area((double)rows, width), 0, ROWS_SHAPE(rows, width)),                    \
      (U64, rows), (U32, width), (F32, eps), (IN, x), (IN, weight), (OUT, y), (OUT_F32, r))        \
    X(rms_norm_input,                                                                              \
      (0, area((double)rows, width) * (base != NULL ? 4 : 3), 0, ROWS_SHAPE(rows, width)),         \
      (U64, rows), (U32, width), (IN, x), (IN, weight), (IN_F32, r), (IN, dy), (IN, base),         \
      (OUT, dx))                                                                                   \
    X(rms_norm_weight, (0, 2 * area((double)rows, width), 0, ROWS_SHAPE(rows, width)),             \
      (U64, rows), (U32, width), (IN, x), (IN_F32, r), (IN, dy), (FLAG, wide), (OUT, dweight))     \
    X(linear, (2 * area((double)rows, in) * out, area((double)rows, in) + area(in, out) +          \
       into(area((double)rows, out), base != NULL), 0, LINEAR_SHAPE),                              \
      (U64, rows), (U32, in), (U32, out), (IN, x), (IN, weight), (IN, base), (OUT, y))             \
    X(linear_input, (2 * area((double)rows, in) * out, area((double)rows, out) + area(in, out) +   \
       into(area((double)rows, in), add), 0, LINEAR_SHAPE),                                        \
      (U64, rows), (U32, in), (U32, out), (IN, dy), (IN, weight), (FLAG, add), (OUT, dx))          \
    X(linear_weight,                                                                               \
      (2 * area((double)rows, in) * out, area((double)rows, in) + area((double)rows, out) +        \
       (wide ? 0 : into(area(in, out), true)), wide ? into(area(in, out), true) : 0,               \
       LINEAR_SHAPE),                                                                              \
      (U64, rows), (U32, in), (U32, out), (IN, dy), (IN, x), (FLAG, wide), (OUT, dweight))         \
    X(rotate,                                                                                      \
      (0, 2 * area((double)sequences * seq_len, (double)heads * head_dim), 0, "%" PRIu32 "x%"      \
       PRIu32 " heads %" PRIu32 "x%" PRIu32, sequences, seq_len, heads, head_dim),                 \
      (U32, sequences), (U32, seq_len), (U32, heads), (U32, head_dim), (IN_F32, cosines),          \
      (IN_F32, sines), (FLAG, inverse), (OUT, x))                                                  \
    X(attention, (attention_flop(sizes), attention_values(sizes), 0, ATTENTION_SHAPE),             \
      (SIZES, sizes), (IN, q), (IN, k), (IN, v), (OUT, o), (OUT_F32, logsumexp))                   \
    X(attention_backward,                                                                          \
      (2.5 * attention_flop(sizes), 2 * attention_values(sizes), 0, ATTENTION_SHAPE),              \
      (SIZES, sizes), (IN, q), (IN, k), (IN, v), (IN, o), (IN_F32, logsumexp), (IN, d_o),          \
      (OUT, dq), (OUT, dk), (OUT, dv))                                                             \
    X(swiglu, (0, 3 * (double)count, 0, COUNT_SHAPE),                                              \
      (U64, count), (IN, gate), (IN, up), (OUT, s))                                                \
    X(swiglu_backward, (0, 5 * (double)count, 0, COUNT_SHAPE),                                     \
      (U64, count), (IN, gate), (IN, up), (IN, ds), (OUT, dgate), (OUT, dup))                      \
    X(add, (0, 3 * (double)count, 0, COUNT_SHAPE),                                                 \
      (U64, count), (IN, a), (IN, b), (OUT, y))                                                    \
    X(embed, (0, 2 * area((double)tokens, width), 0, ROWS_SHAPE(tokens, width)),                   \
      (U64, tokens), (U32, width), (IN_I32, ids), (IN, table), (OUT, x))                           \
    X(embed_weight,                                                                                \
      (0, area((double)tokens, width) * (wide ? 1 : 3),                                            \
       wide ? 2 * area((double)tokens, width) : 0, ROWS_SHAPE(tokens, width)),                     \
      (U64, tokens), (U32, width), (IN_I32, ids), (IN, dx), (FLAG, wide), (OUT, dtable))           \
    X(cross_entropy, (0, 3 * area((double)rows, vocab), 0, ROWS_SHAPE(rows, vocab)),               \
      (U64, rows), (U32, vocab), (IN_I32, labels), (F32, factor), (OUT, z), (OUT_F64, loss))       \
    X(row_statistics,                                                                              \
      (0, area((double)rows, vocab), 2 * (double)rows, ROWS_SHAPE(rows, vocab)),                   \
      (U64, rows), (U32, vocab), (IN, z), (OUT_F32, statistics))                                   \
    X(cross_entropy_part,                                                                          \
      (0, 2 * area((double)rows, vocab), 2 * area((double)rows, parts), ROWS_SHAPE(rows, vocab)),  \
      (U64, rows), (U32, vocab), (U32, first), (IN_I32, labels), (U32, parts),                     \
      (IN_F32, statistics), (U64, stride), (F32, factor), (OUT, z), (OUT_F64, loss))               \
    X(scale, (0, 2 * (double)count, 0, COUNT_SHAPE),                                               \
      (U64, count), (F32, factor), (OUT, x))                                                       \
    X(route, (0, scores(routing), scores(routing), ROUTED("")),                                    \
      (ROUTING, routing), (IN, logits))                                                            \
    X(route_backward, (0, scores(routing), scores(routing), ROUTED("")),                           \
      (ROUTING, routing), (IN_F32, dweights), (OUT, dlogits))                                      \
    X(gather, (0, area((double)routing->tokens + routed(routing), width), 0, ROUTED_SHAPE),        \
      (ROUTING, routing), (U32, width), (IN, x), (OUT, y))                                         \
    X(scatter,                                                                                     \
      (0, area(routed(routing), width) + into(area((double)routing->tokens, width), add), 0,       \
       ROUTED_SHAPE),                                                                              \
      (ROUTING, routing), (U32, width), (IN, x), (FLAG, add), (OUT, y))                            \
    X(experts_linear, (experts_flop(routing, matrices), area(routed(routing), matrices->in) +      \
       experts_values(routing, matrices) + into(area(routed(routing), matrices->out), add), 0,     \
       EXPERTS_SHAPE),                                                                             \
      (ROUTING, routing), (MATRICES, matrices), (IN, x), (IN, weights), (FLAG, add), (OUT, y))     \
    X(experts_linear_input,                                                                        \
      (experts_flop(routing, matrices), area(routed(routing), matrices->out) +                     \
       experts_values(routing, matrices) + into(area(routed(routing), matrices->in), add), 0,      \
       EXPERTS_SHAPE),                                                                             \
      (ROUTING, routing), (MATRICES, matrices), (IN, dy), (IN, weights), (FLAG, add), (OUT, dx))   \
    X(experts_linear_weight,                                                                       \
      (experts_flop(routing, matrices), area(routed(routing), (double)matrices->in +               \
       matrices->out) + (wide ? 0 : into(experts_values(routing, matrices), true)),                \
       wide ? into(experts_values(routing, matrices), true) : 0, EXPERTS_SHAPE),                   \
      (ROUTING, routing), (MATRICES, matrices), (IN, dy), (IN, x), (FLAG, wide), (OUT, dweights))  \
    X(experts_swiglu, (0, 3 * area(routed(routing), width), 0, ROUTED_SHAPE),                      \
      (ROUTING, routing), (U32, width), (IN, gate), (IN, up), (OUT, s))                            \
    X(experts_swiglu_backward, (0, 5 * area(routed(routing), width), 0, ROUTED_SHAPE),             \
      (ROUTING, routing), (U32, width), (IN, gate), (IN, up), (IN, ds), (OUT, dgate), (OUT, dup),  \
      (OUT_F32, dweights))                                                                         \
    X(add_sums, (0, 2 * (double)count, (double)count, COUNT_SHAPE),                                \
      (U64, count), (IN_F32, sums), (OUT, gradients))                                              \
    X(zero, (0, (double)count, 0, COUNT_SHAPE),                                                    \
      (U64, count), (OUT, x))                                                                      \
    X(copy, (0, 2 * (double)count, 0, COUNT_SHAPE),                                                \
      (U64, count), (IN, from), (OUT, to))                                                         \
    X(adam,                                                                                        \
      (0, (update->weights != NULL ? 2 : 1) * (double)update->count, 6 * (double)update->count,    \
       "%" PRIu64, update->count),                                                                 \
      (ADAM, adam), (U64, step), (UPDATE, update))

/* Applies m to each of up to ten (KIND, parameter). */
#define EACH_1(m, a) m a
#define EACH_2(m, a, ...) m a EACH_1(m, __VA_ARGS__)
#define EACH_3(m, a, ...) m a EACH_2(m, __VA_ARGS__)
#define EACH_4(m, a, ...) m a EACH_3(m, __VA_ARGS__)
#define EACH_5(m, a, ...) m a EACH_4(m, __VA_ARGS__)
#define EACH_6(m, a, ...) m a EACH_5(m, __VA_ARGS__)
#define EACH_7(m, a, ...) m a EACH_6(m, __VA_ARGS__)
#define EACH_8(m, a, ...) m a EACH_7(m, __VA_ARGS__)
#define EACH_9(m, a, ...) m a EACH_8(m, __VA_ARGS__)
#define EACH_10(m, a, ...) m a EACH_9(m, __VA_ARGS__)
#define CHOSEN(a, b, c, d, e, f, g, h, i, j, chosen, ...) chosen
#define EACH(m, ...)                                                                               \
    CHOSEN(__VA_ARGS__, EACH_10, EACH_9, EACH_8, EACH_7, EACH_6, EACH_5, EACH_4, EACH_3, EACH_2,   \
           EACH_1, )(m, __VA_ARGS__)

/* clang-format on */

/* ---- kinds of parameters: how each is put into words and taken from them ----------------------
 */

/* A call that is being put together. */
typedef struct writer {
    uint64_t words[RPEXEC_CALL_WORDS];
    uint32_t count;     /* words so far, the first one with them */
    uint32_t addresses; /* bit i: word i is one */
} writer;

typedef const rpexec_attention_sizes *TYPE_SIZES;
typedef const rpexec_routing *TYPE_ROUTING;
typedef const rpexec_matrices *TYPE_MATRICES;
typedef const rpexec_adam *TYPE_ADAM;
typedef const rpexec_update *TYPE_UPDATE;

static void put_word(writer *to, uint64_t word)
{
    to->words[to->count++] = word;
}

/* Whole numbers and truth values. */
#define NUMBER(kind, type)                                                                         \
    typedef type TYPE_##kind;                                                                      \
    static void put_##kind(writer *to, type value)                                                 \
    {                                                                                              \
        put_word(to, value);                                                                       \
    }                                                                                              \
    static type take_##kind(const uint64_t **from)                                                 \
    {                                                                                              \
        return (type) * (*from)++;                                                                 \
    }

/* By their bits: -0 is not 0. */
#define REAL(kind, type)                                                                           \
    typedef type TYPE_##kind;                                                                      \
    static void put_##kind(writer *to, type value)                                                 \
    {                                                                                              \
        uint64_t word = 0;                                                                         \
        memcpy(&word, &value, sizeof value);                                                       \
        put_word(to, word);                                                                        \
    }                                                                                              \
    static type take_##kind(const uint64_t **from)                                                 \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, (*from)++, sizeof value);                                                   \
        return value;                                                                              \
    }

#define ADDRESS(kind, type)                                                                        \
    typedef type TYPE_##kind;                                                                      \
    static void put_##kind(writer *to, type value)                                                 \
    {                                                                                              \
        to->addresses |= UINT32_C(1) << to->count;                                                 \
        put_word(to, (uint64_t)(uintptr_t)value);                                                  \
    }                                                                                              \
    static type take_##kind(const uint64_t **from)                                                 \
    {                                                                                              \
        return (type)(uintptr_t) * (*from)++;                                                      \
    }

NUMBER(U64, uint64_t)
NUMBER(U32, uint32_t)
NUMBER(FLAG, bool)
REAL(F32, float)
REAL(F64, double)
ADDRESS(IN, const void *)
ADDRESS(OUT, void *)
ADDRESS(IN_F32, const float *)
ADDRESS(OUT_F32, float *)
ADDRESS(OUT_U32, uint32_t *)
ADDRESS(IN_I32, const int32_t *)
ADDRESS(OUT_F64, double *)

/* Structures are their members. */
#define PUT_MEMBER(kind, member) put_##kind(to, value->member);
#define TAKE_MEMBER(kind, member) value.member = take_##kind(from);
#define STRUCTURE(kind, type, ...)                                                                 \
    static void put_##kind(writer *to, const type *value)                                          \
    {                                                                                              \
        EACH(PUT_MEMBER, __VA_ARGS__)                                                              \
    }                                                                                              \
    static type take_##kind(const uint64_t **from)                                                 \
    {                                                                                              \
        type value;                                                                                \
        EACH(TAKE_MEMBER, __VA_ARGS__)                                                             \
        return value;                                                                              \
    }

STRUCTURE(SIZES, rpexec_attention_sizes, (U32, sequences), (U32, seq_len), (U32, heads),
          (U32, kv_heads), (U32, head_dim), (U32, window))
STRUCTURE(ROUTING, rpexec_routing, (U64, tokens), (U32, experts), (U32, active), (FLAG, raw),
          (OUT_F32, probabilities), (OUT_U32, chosen), (OUT_U32, rows), (OUT_F32, weights),
          (OUT_U32, begins))
STRUCTURE(MATRICES, rpexec_matrices, (U32, in), (U32, out), (U64, stride))
STRUCTURE(ADAM, rpexec_adam, (F64, lr), (F64, beta1), (F64, beta2), (F64, eps), (F64, weight_decay),
          (FLAG, decoupled))
STRUCTURE(UPDATE, rpexec_update, (OUT_F32, master), (OUT, weights), (IN, gradients), (OUT_F32, m),
          (OUT_F32, v), (F32, scale), (U64, count))

/* ---- calls ------------------------------------------------------------------------------------
 */

#define NUMBER_OF(operator, ...) OPERATOR_##operator,
enum { OPERATOR_LIST(NUMBER_OF) OPERATORS };

static void hand_over(rpexec_lane *lane, uint32_t number, writer *call)
{
    rpexec_call_taker *taker = (rpexec_call_taker *)(void *)lane;
    call->words[0] = number | (uint64_t)call->count << 16 | (uint64_t)call->addresses << 32;
    taker->take(taker, call->words);
}

#define PARAMETER(kind, name) , TYPE_##kind name
#define PUT(kind, name) put_##kind(&call, name);
#define NOTE(operator, costs, ...)                                                                 \
    static void note_##operator(rpexec_lane *lane EACH(PARAMETER, __VA_ARGS__))                    \
    {                                                                                              \
        writer call = {.count = 1};                                                                \
        EACH(PUT, __VA_ARGS__)                                                                     \
        hand_over(lane, OPERATOR_##operator, & call);                                              \
    }
OPERATOR_LIST(NOTE)

/* Numbers and addresses are arguments themselves, structures are pointed to. */
#define ITSELF(kind, name) const TYPE_##kind name = take_##kind(&words);
#define POINTED(type, kind, name)                                                                  \
    const type name##_value = take_##kind(&words);                                                 \
    const type *name = &name##_value;
#define TAKE_U64(name) ITSELF(U64, name)
#define TAKE_U32(name) ITSELF(U32, name)
#define TAKE_FLAG(name) ITSELF(FLAG, name)
#define TAKE_F32(name) ITSELF(F32, name)
#define TAKE_IN(name) ITSELF(IN, name)
#define TAKE_OUT(name) ITSELF(OUT, name)
#define TAKE_IN_F32(name) ITSELF(IN_F32, name)
#define TAKE_OUT_F32(name) ITSELF(OUT_F32, name)
#define TAKE_IN_I32(name) ITSELF(IN_I32, name)
#define TAKE_OUT_F64(name) ITSELF(OUT_F64, name)
#define TAKE_SIZES(name) POINTED(rpexec_attention_sizes, SIZES, name)
#define TAKE_ROUTING(name) POINTED(rpexec_routing, ROUTING, name)
#define TAKE_MATRICES(name) POINTED(rpexec_matrices, MATRICES, name)
#define TAKE_ADAM(name) POINTED(rpexec_adam, ADAM, name)
#define TAKE_UPDATE(name) POINTED(rpexec_update, UPDATE, name)

#define TAKE(kind, name) TAKE_##kind(name)
#define ARGUMENT(kind, name) , name
#define MAKE(operator, costs, ...)                                                                 \
    static void make_##operator(const rpexec_operators *operators, rpexec_lane *lane,              \
                                const uint64_t *words)                                             \
    {                                                                                              \
        EACH(TAKE, __VA_ARGS__)                                                                    \
        operators->operator(lane EACH(ARGUMENT, __VA_ARGS__));                                     \
    }
OPERATOR_LIST(MAKE)

/* @param values of the storage type that it has to read and write at least, @param floats fp32 */
static void tell(const uint64_t *call, rpexec_dtype dtype, rpexec_call_description *what,
                 double flop, double values, double floats, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

static void tell(const uint64_t *call, rpexec_dtype dtype, rpexec_call_description *what,
                 double flop, double values, double floats, const char *format, ...)
{
    va_list arguments;
    *what = (rpexec_call_description){.name = rpexec_call_name(call),
                                      .flop = flop,
                                      .bytes = values * (double)rpexec_dtype_bytes(dtype) +
                                               floats * sizeof(float)};
    va_start(arguments, format);
    vsnprintf(what->shape, sizeof what->shape, format, arguments);
    va_end(arguments);
}

#define UNWRAP(...) __VA_ARGS__
#define IGNORE(kind, name) (void)name;
#define DESCRIBE(operator, costs, ...)                                                             \
    static void describe_##operator(const uint64_t *call, rpexec_dtype dtype,                      \
                                    rpexec_call_description *what)                                 \
    {                                                                                              \
        const uint64_t *words = call + 1;                                                          \
        EACH(TAKE, __VA_ARGS__)                                                                    \
        EACH(IGNORE, __VA_ARGS__)                                                                  \
        tell(call, dtype, what, UNWRAP costs);                                                     \
    }
OPERATOR_LIST(DESCRIBE)

static bool ask_finite(rpexec_lane *lane, uint64_t count, const void *x)
{
    rpexec_call_taker *taker = (rpexec_call_taker *)(void *)lane;
    return taker->finite(taker, count, x);
}

#define ENTRY(operator, ...) .operator= note_##operator,
const rpexec_operators rpexec_noting_operators = {OPERATOR_LIST(ENTRY).finite = ask_finite};

_Static_assert(sizeof(rpexec_operators) == (OPERATORS + 1) * sizeof(void (*)(void)),
               "an operator is missing in the list");

static uint32_t number_of(const uint64_t *call)
{
    return call[0] & UINT16_MAX;
}

uint32_t rpexec_call_length(const uint64_t *call)
{
    return call[0] >> 16 & UINT16_MAX;
}

bool rpexec_call_has_address(const uint64_t *call, uint32_t i)
{
    return (call[0] >> (32 + i) & 1) != 0;
}

const char *rpexec_call_name(const uint64_t *call)
{
#define NAME(operator, ...) #operator,
    static const char *const names[] = {OPERATOR_LIST(NAME)};
    return names[number_of(call)];
}

bool rpexec_call_repeats(const uint64_t *call)
{
    return number_of(call) != OPERATOR_adam;
}

void rpexec_call_make(const rpexec_operators *operators, rpexec_lane *lane, const uint64_t *call)
{
#define MAKER(operator, ...) make_##operator,
    static void (*const makers[])(const rpexec_operators *operators, rpexec_lane *lane,
                                  const uint64_t *words) = {OPERATOR_LIST(MAKER)};
    makers[number_of(call)](operators, lane, call + 1);
}

void rpexec_call_describe(const uint64_t *call, rpexec_dtype dtype,
                          rpexec_call_description *what_out)
{
#define DESCRIBER(operator, ...) describe_##operator,
    static void (*const describers[])(const uint64_t *call, rpexec_dtype dtype,
                                      rpexec_call_description *what) = {OPERATOR_LIST(DESCRIBER)};
    describers[number_of(call)](call, dtype, what_out);
}
