/** @file mutants.h  Errors to compile into the kernels, which tests must notice.
 *
 * tests/checks/test_kernels_can_fail.py has the list of names. Expressions have no commas outside
 * of parentheses; WRONG may be empty.
 */
#pragma once

/** RIGHT; the compiler's option -DMUTANT_NAME=, makes it WRONG. */
#define MUTATE(NAME, RIGHT, WRONG) MUTATE_CHOOSE(MUTANT_##NAME, WRONG, RIGHT, )
#define MUTATE_CHOOSE(...) MUTATE_THIRD(__VA_ARGS__)
#define MUTATE_THIRD(FIRST, SECOND, THIRD, ...) THIRD

/** In a WRONG: X rounded to a storage type. */
#define MUTATE_ROUNDED(TYPE, X)                                                                    \
    ([&] {                                                                                         \
        TYPE low;                                                                                  \
        narrow(X, &low);                                                                           \
        return widen(low);                                                                         \
    }())
