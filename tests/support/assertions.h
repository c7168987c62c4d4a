/** @file assertions.h  Criterion's cr_assert and cr_expect, each with a single call.
 *
 * <criterion/new/assert.h> expands an assertion into some fifty statements, which took two thirds
 * of the time of compiling a test. Criterion still reports the failures: file, line, message, the
 * condition as it is written, and both values. Known conditions are
 *
 *     eq ne lt le gt ge (TAG, actual, expected)    TAG: a row of RP_TEST_VALUE_TAGS, or str
 *     epsilon_eq(dbl, actual, expected, epsilon)
 *     ieee_ulp_eq(dbl, actual, expected, ulp)
 *     not(expression)
 *     an expression of C that begins with a name
 *
 * gt and ge differ from Criterion 2.4, whose gt is "not lt" and whose ge is "not lt, or eq": here
 * gt fails if both values are equal, and gt and ge fail if either value is NaN.
 */
#pragma once

#include <criterion/criterion.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Criterion's tags that the tests use, and their types; texts have the tag str. */
#define RP_TEST_VALUE_TAGS(ROW)                                                                    \
    ROW(int, int)                                                                                  \
    ROW(i32, int32_t)                                                                              \
    ROW(i64, int64_t)                                                                              \
    ROW(u8, uint8_t)                                                                               \
    ROW(u16, uint16_t)                                                                             \
    ROW(u32, uint32_t)                                                                             \
    ROW(u64, uint64_t)                                                                             \
    ROW(sz, size_t)                                                                                \
    ROW(chr, char)                                                                                 \
    ROW(flt, float)                                                                                \
    ROW(dbl, double)                                                                               \
    ROW(ptr, const void *)

enum rp_test_relation { RP_TEST_EQ, RP_TEST_NE, RP_TEST_LT, RP_TEST_LE, RP_TEST_GT, RP_TEST_GE };

/** rp_test_compare_TAG returns true if `actual` stands in `relation` to `expected`, and otherwise
 * keeps both values for rp_test_failed. */
#define RP_TEST_DECLARE(Tag, Type)                                                                 \
    typedef Type rp_test_type_##Tag;                                                               \
    bool rp_test_compare_##Tag(enum rp_test_relation relation, Type actual, Type expected);
RP_TEST_VALUE_TAGS(RP_TEST_DECLARE)
RP_TEST_DECLARE(str, const char *)

/** Like rp_test_compare_dbl; true if the values differ by at most `epsilon`. */
bool rp_test_within(double actual, double expected, double epsilon);

/** Like rp_test_compare_dbl; true if the values are at most `ulp` values of double apart. */
bool rp_test_within_ulp(double actual, double expected, size_t ulp);

/** Criterion's: formats the message of an assertion. Declared here, since <criterion/new/assert.h>
 * doubles the time of the includes. */
char *cri_assert_message(const char *fmt, ...);

/** Reports a failed assertion with the kept values. @param source the assertion's arguments as they
 * are written @param message made by cri_assert_message; freed here */
void rp_test_failed(const char *file, size_t line, const char *source, char *message);

#undef cr_assert
#define cr_assert(...) RP_TEST_THAT(criterion_abort_test, #__VA_ARGS__, __VA_ARGS__)
#undef cr_expect
#define cr_expect(...) RP_TEST_THAT(criterion_continue_test, #__VA_ARGS__, __VA_ARGS__)

/* The first argument is the condition. The arguments of the message are optional and are evaluated
 * only on failure. */
#define RP_TEST_THAT(Fail, Source, ...)                                                            \
    RP_TEST_THAT_(Fail, Source, CR_VA_HEAD(__VA_ARGS__), ("x" CR_VA_TAIL(__VA_ARGS__)))
#define RP_TEST_THAT_(...) RP_TEST_THAT__(__VA_ARGS__) /* with the condition as written */
#define RP_TEST_THAT__(Fail, Source, Condition, Message)                                           \
    do {                                                                                           \
        if (!RP_TEST_SECOND(RP_TEST_IS_##Condition, (Condition), )) {                              \
            rp_test_failed(__FILE__, __LINE__, Source, cri_assert_message Message);                \
            Fail();                                                                                \
        }                                                                                          \
    } while (0)

/* RP_TEST_IS_eq(...) and the like begin with a comma, so that their replacement comes second. Any
 * other Condition is itself the second argument. */
#define RP_TEST_SECOND(...) RP_TEST_SECOND_(__VA_ARGS__)
#define RP_TEST_SECOND_(First, Second, ...) (Second)
#define RP_TEST_IS_eq(Tag, ...) , RP_TEST_COMPARED(Tag, RP_TEST_EQ, __VA_ARGS__)
#define RP_TEST_IS_ne(Tag, ...) , RP_TEST_COMPARED(Tag, RP_TEST_NE, __VA_ARGS__)
#define RP_TEST_IS_lt(Tag, ...) , RP_TEST_COMPARED(Tag, RP_TEST_LT, __VA_ARGS__)
#define RP_TEST_IS_le(Tag, ...) , RP_TEST_COMPARED(Tag, RP_TEST_LE, __VA_ARGS__)
#define RP_TEST_IS_gt(Tag, ...) , RP_TEST_COMPARED(Tag, RP_TEST_GT, __VA_ARGS__)
#define RP_TEST_IS_ge(Tag, ...) , RP_TEST_COMPARED(Tag, RP_TEST_GE, __VA_ARGS__)
#define RP_TEST_IS_not(Expression) , !(Expression)
#define RP_TEST_IS_epsilon_eq(Tag, ...) , RP_TEST_NEAR(rp_test_within, double, __VA_ARGS__)
#define RP_TEST_IS_ieee_ulp_eq(Tag, ...) , RP_TEST_NEAR(rp_test_within_ulp, size_t, __VA_ARGS__)

/* The actual value is evaluated before the expected value, as in Criterion: tests rely on it. */
#define RP_TEST_COMPARED(Tag, Relation, Actual, Expected)                                          \
    __extension__({                                                                                \
        rp_test_type_##Tag rp_test_actual = (Actual);                                              \
        rp_test_type_##Tag rp_test_expected = (Expected);                                          \
        rp_test_compare_##Tag(Relation, rp_test_actual, rp_test_expected);                         \
    })
#define RP_TEST_NEAR(Within, Type, Actual, Expected, Distance)                                     \
    __extension__({                                                                                \
        double rp_test_actual = (Actual);                                                          \
        double rp_test_expected = (Expected);                                                      \
        Type rp_test_distance = (Distance);                                                        \
        Within(rp_test_actual, rp_test_expected, rp_test_distance);                                \
    })
