/* Functions for calls are generated from the list of operators. */
#include "exec/operators/calls.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- work that a call asks for --------------------------------------------------------------- */

static double area(double rows, double columns)
{
    return rows * columns;
}

/* Traffic of values that are written, or added to: then they are read as well. */
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
#define HEADS_SHAPE "%" PRIu64 " heads %" PRIu32 "x%" PRIu32, tokens, heads, head_dim
#define ROUTED(more)                                                                               \
    "%" PRIu64 " to %" PRIu32 " of %" PRIu32 more, routing->tokens, routing->active,               \
        routing->experts
#define ROUTED_SHAPE ROUTED(" x%" PRIu32), width
#define EXPERTS_SHAPE ROUTED(" x%" PRIu32 "x%" PRIu32), matrices->in, matrices->out

/* clang-format on */

/* ---- kinds of parameters: how each is put into words and taken from them --------------------- */

/* A call that is being put together. */
typedef struct writer {
    uint64_t words[RPEXEC_CALL_WORDS];
    uint32_t count;     /* words so far, including the first */
    uint32_t addresses; /* bit i: word i is an address */
} writer;

static void put_word(writer *to, uint64_t word)
{
    to->words[to->count++] = word;
}

/* Whole numbers and truth values. */
#define NUMBER(kind)                                                                               \
    static void put_##kind(writer *to, RPEXEC_TYPE_##kind value)                                   \
    {                                                                                              \
        put_word(to, value);                                                                       \
    }                                                                                              \
    static RPEXEC_TYPE_##kind take_##kind(const uint64_t **from)                                   \
    {                                                                                              \
        return (RPEXEC_TYPE_##kind) * (*from)++;                                                   \
    }

/* Floats go by their bits: -0 is not 0. */
#define REAL(kind)                                                                                 \
    static void put_##kind(writer *to, RPEXEC_TYPE_##kind value)                                   \
    {                                                                                              \
        uint64_t word = 0;                                                                         \
        memcpy(&word, &value, sizeof value);                                                       \
        put_word(to, word);                                                                        \
    }                                                                                              \
    static RPEXEC_TYPE_##kind take_##kind(const uint64_t **from)                                   \
    {                                                                                              \
        RPEXEC_TYPE_##kind value;                                                                  \
        memcpy(&value, (*from)++, sizeof value);                                                   \
        return value;                                                                              \
    }

#define ADDRESS(kind)                                                                              \
    static void put_##kind(writer *to, RPEXEC_TYPE_##kind value)                                   \
    {                                                                                              \
        to->addresses |= UINT32_C(1) << to->count;                                                 \
        put_word(to, (uint64_t)(uintptr_t)value);                                                  \
    }                                                                                              \
    static RPEXEC_TYPE_##kind take_##kind(const uint64_t **from)                                   \
    {                                                                                              \
        return (RPEXEC_TYPE_##kind)(uintptr_t) * (*from)++;                                        \
    }

NUMBER(U64)
NUMBER(U32)
NUMBER(FLAG)
REAL(F32)
ADDRESS(IN)
ADDRESS(OUT)
ADDRESS(IN_F32)
ADDRESS(OUT_F32)
ADDRESS(OUT_U32)
ADDRESS(IN_I32)
ADDRESS(OUT_F64)

/* Structures go as their members. */
#define PUT_MEMBER(kind, member) put_##kind(to, value->member);
#define TAKE_MEMBER(kind, member) value.member = take_##kind(from);
#define STRUCTURE(kind, type, ...)                                                                 \
    static void put_##kind(writer *to, const type *value)                                          \
    {                                                                                              \
        RPEXEC_EACH(PUT_MEMBER, __VA_ARGS__)                                                       \
    }                                                                                              \
    static type take_##kind(const uint64_t **from)                                                 \
    {                                                                                              \
        type value;                                                                                \
        RPEXEC_EACH(TAKE_MEMBER, __VA_ARGS__)                                                      \
        return value;                                                                              \
    }

STRUCTURE(SIZES, rpexec_attention_sizes, (U32, sequences), (U32, seq_len), (U32, heads),
          (U32, kv_heads), (U32, head_dim), (U32, window), (F32, scale), (F32, cap))
STRUCTURE(ROUTING, rpexec_routing, (U64, tokens), (U32, experts), (U32, active), (FLAG, raw),
          (OUT_F32, probabilities), (OUT_U32, chosen), (OUT_U32, rows), (OUT_F32, weights),
          (OUT_U32, begins))
STRUCTURE(MATRICES, rpexec_matrices, (U32, in), (U32, out), (U64, stride))
STRUCTURE(FACTORS, rpexec_adam_factors, (F32, beta1), (F32, one_minus_beta1), (F32, beta2),
          (F32, one_minus_beta2), (F32, clip), (F32, rate), (F32, unbias), (F32, eps), (F32, decay),
          (F32, shrink))
STRUCTURE(UPDATE, rpexec_update, (OUT_F32, master), (OUT, weights), (IN, gradients), (OUT_F32, m),
          (OUT_F32, v), (F32, scale), (U64, count))

/* ---- calls ----------------------------------------------------------------------------------- */

#define NUMBER_OF(name, ...) OPERATOR_##name,
enum { RPEXEC_OPERATOR_LIST(NUMBER_OF) };

static void hand_over(rpexec_lane *lane, uint32_t number, writer *call)
{
    rpexec_call_taker *taker = (rpexec_call_taker *)(void *)lane;
    call->words[0] = number | (uint64_t)call->count << 16 | (uint64_t)call->addresses << 32;
    taker->take(taker, call->words);
}

#define PUT(kind, name) put_##kind(&call, name);
#define NOTE(operator, costs, ...)                                                                 \
    static void note_##operator(rpexec_lane *lane RPEXEC_PARAMETERS(__VA_ARGS__))                  \
    {                                                                                              \
        writer call = {.count = 1};                                                                \
        RPEXEC_EACH(PUT, __VA_ARGS__)                                                              \
        hand_over(lane, OPERATOR_##operator, & call);                                              \
    }
RPEXEC_OPERATOR_LIST(NOTE)

/* Numbers and addresses are arguments themselves, structures are pointed to. */
#define ITSELF(kind, name) RPEXEC_TYPE_##kind const name = take_##kind(&words);
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
#define TAKE_FACTORS(name) POINTED(rpexec_adam_factors, FACTORS, name)
#define TAKE_UPDATE(name) POINTED(rpexec_update, UPDATE, name)

#define TAKE(kind, name) TAKE_##kind(name)
#define ARGUMENT(kind, name) , name
#define MAKE(operator, costs, ...)                                                                 \
    static void make_##operator(const rpexec_operators *operators, rpexec_lane *lane,              \
                                const uint64_t *words)                                             \
    {                                                                                              \
        RPEXEC_EACH(TAKE, __VA_ARGS__)                                                             \
        operators->operator(lane RPEXEC_EACH(ARGUMENT, __VA_ARGS__));                              \
    }
RPEXEC_OPERATOR_LIST(MAKE)

/* @param least values of the storage type that the call reads and writes, @param floats fp32
 *        values */
static void tell(const uint64_t *call, rp_dtype dtype, rpexec_call_description *what, double flop,
                 double values, double floats, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

static void tell(const uint64_t *call, rp_dtype dtype, rpexec_call_description *what, double flop,
                 double values, double floats, const char *format, ...)
{
    va_list arguments;
    *what = (rpexec_call_description){.name = rpexec_call_name(call),
                                      .flop = flop,
                                      .bytes = values * (double)rp_dtype_bytes(dtype) +
                                               floats * sizeof(float)};
    va_start(arguments, format);
    vsnprintf(what->shape, sizeof what->shape, format, arguments);
    va_end(arguments);
}

#define UNWRAP(...) __VA_ARGS__
#define IGNORE(kind, name) (void)name;
#define DESCRIBE(operator, costs, ...)                                                             \
    static void describe_##operator(const uint64_t *call, rp_dtype dtype,                          \
                                    rpexec_call_description *what)                                 \
    {                                                                                              \
        const uint64_t *words = call + 1;                                                          \
        RPEXEC_EACH(TAKE, __VA_ARGS__)                                                             \
        RPEXEC_EACH(IGNORE, __VA_ARGS__)                                                           \
        tell(call, dtype, what, UNWRAP costs);                                                     \
    }
RPEXEC_OPERATOR_LIST(DESCRIBE)

static void ask_squares(rpexec_lane *lane, uint64_t count, const void *x, rpexec_squares *sum)
{
    rpexec_call_taker *taker = (rpexec_call_taker *)(void *)lane;
    taker->squares(taker, count, x, sum);
}

#define ENTRY(name, ...) .name = note_##name,
const rpexec_operators rpexec_noting_operators = {RPEXEC_OPERATOR_LIST(ENTRY).squares =
                                                      ask_squares};

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
#define NAME(name, ...) #name,
    static const char *const names[] = {RPEXEC_OPERATOR_LIST(NAME)};
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
                                  const uint64_t *words) = {RPEXEC_OPERATOR_LIST(MAKER)};
    makers[number_of(call)](operators, lane, call + 1);
}

void rpexec_call_describe(const uint64_t *call, rp_dtype dtype, rpexec_call_description *what_out)
{
#define DESCRIBER(operator, ...) describe_##operator,
    static void (*const describers[])(const uint64_t *call, rp_dtype dtype,
                                      rpexec_call_description *what) = {
        RPEXEC_OPERATOR_LIST(DESCRIBER)};
    describers[number_of(call)](call, dtype, what_out);
}
