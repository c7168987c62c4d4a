#include <stddef.h>
#include <stdint.h>

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "common/base/log.h"
#include "tests/support/assertions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Messages are worded as in programs, where they name options. */
__attribute__((constructor)) static void be_a_program(void)
{
    rp_log_set_program("rp");
}

/* The values of this thread's last failed comparison, until rp_test_failed takes them. */
static _Thread_local struct {
    int count;
    struct cri_assert_param values[3];
} kept;

static void forget(void)
{
    for (int i = 0; i < kept.count; i++) {
        free(kept.values[i].data);
    }
    kept.count = 0;
}

/* Keeps a value for the report. @param text freed with the report */
static void keep(const char *name, char *text)
{
    kept.values[kept.count++] = (struct cri_assert_param){name, text, CRI_ASSERT_RT_STR};
}

static void keep_both(enum rp_test_relation relation, char *actual, char *second)
{
    forget();
    keep("actual", actual); /* beside "expected" Criterion prints the difference */
    keep(relation == RP_TEST_EQ   ? "expected"
         : relation == RP_TEST_NE ? "unexpected"
                                  : "reference",
         second);
}

/* Two values that are neither equal nor less nor greater include a NaN; only RP_TEST_NE holds for
 * them. */
static bool holds(enum rp_test_relation relation, bool equal, bool less, bool greater)
{
    switch (relation) {
    case RP_TEST_EQ:
        return equal;
    case RP_TEST_NE:
        return !equal;
    case RP_TEST_LT:
        return less;
    case RP_TEST_LE:
        return less || equal;
    case RP_TEST_GT:
        return greater;
    case RP_TEST_GE:
        return greater || equal;
    }
    return false;
}

#define TEXT(Name, Type, Format)                                                                   \
    static char *text_##Name(Type value)                                                           \
    {                                                                                              \
        char *text = NULL;                                                                         \
        return cr_asprintf(&text, Format, value) < 0 ? NULL : text;                                \
    }
TEXT(int, int, "%d")
TEXT(i32, int32_t, "%" PRId32)
TEXT(i64, int64_t, "%" PRId64)
TEXT(u8, uint8_t, "%" PRIu8)
TEXT(u16, uint16_t, "%" PRIu16)
TEXT(u32, uint32_t, "%" PRIu32)
TEXT(u64, uint64_t, "%" PRIu64)
TEXT(sz, size_t, "%zu")
TEXT(chr, char, "%c")
TEXT(flt, float, "%.9g")
TEXT(dbl, double, "%.17g")
TEXT(ptr, const void *, "%p")

/* @return the text with escapes */
static char *text_str(const char *value)
{
    char *text = NULL;
    if (value != NULL) {
        return cr_user_str_tostr(&(char *){(char *)value});
    }
    return cr_asprintf(&text, "NULL") < 0 ? NULL : text;
}

/* @return a number below 0, 0, or above 0; NULL is less than all texts */
static int order_str(const char *a, const char *b)
{
    return a != NULL && b != NULL ? strcmp(a, b) : (a != NULL) - (b != NULL);
}

#define COMPARE(Tag, Type, Equal, Less, Greater)                                                   \
    bool rp_test_compare_##Tag(enum rp_test_relation relation, Type a, Type b)                     \
    {                                                                                              \
        if (holds(relation, Equal, Less, Greater)) {                                               \
            return true;                                                                           \
        }                                                                                          \
        keep_both(relation, text_##Tag(a), text_##Tag(b));                                         \
        return false;                                                                              \
    }
#define COMPARE_VALUES(Tag, Type) COMPARE(Tag, Type, a == b, a<b, a> b)
RP_TEST_VALUE_TAGS(COMPARE_VALUES)
COMPARE(str, const char *, order_str(a, b) == 0, order_str(a, b) < 0, order_str(a, b) > 0)

bool rp_test_within(double actual, double expected, double epsilon)
{
    if (actual == expected || (expected - actual <= epsilon && actual - expected <= epsilon)) {
        return true;
    }
    keep_both(RP_TEST_EQ, text_dbl(actual), text_dbl(expected));
    keep("epsilon", text_dbl(epsilon));
    return false;
}

bool rp_test_within_ulp(double actual, double expected, size_t ulp)
{
    if (cr_user_dbl_ieee_ulp_eq(actual, expected, ulp)) {
        return true;
    }
    keep_both(RP_TEST_EQ, text_dbl(actual), text_dbl(expected));
    keep("ulp", text_sz(ulp));
    return false;
}

/* @return the length of the first of a macro's arguments, which ends at a comma outside of
 * parentheses and quotes */
static int first_length(const char *arguments)
{
    int depth = 0;
    char quote = 0;
    int at = 0;
    for (; arguments[at]; at++) {
        char c = arguments[at];
        if (quote) {
            if (c == '\\') {
                at++;
            } else if (c == quote) {
                quote = 0;
            }
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == ',' && depth == 0) {
            break;
        } else {
            depth += (c == '(') - (c == ')');
        }
    }
    return at;
}

void rp_test_failed(const char *file, size_t line, const char *source, char *message)
{
    struct cri_assert_node root;
    cri_assert_node_init(&root);
    root.message = message;
    struct cri_assert_node condition;
    cri_assert_node_init(&condition);
    char *text = NULL;
    if (cr_asprintf(&text, "%.*s", first_length(source), source) >= 0) {
        condition.repr = text;
        condition.dynrepr = 1;
    }
    if (kept.count == 0) { /* without a value Criterion leaves out the condition */
        keep("value", text_int(0));
    }
    for (int i = 0; i < kept.count; i++) {
        condition.params[i] = kept.values[i];
    }
    kept.count = 0;
    cri_assert_node_add(&root, &condition);
    cri_assert_node_send(file, line, &root);
    cri_assert_node_term(&root);
}
