/** @file test_arena.h  An arena per test, the test's messages, and the check that no memory
 * outlives it.
 *
 * If an assertion fails in a suite's .fini, Criterion prints it but lets the test pass; a process
 * that aborts there makes the whole program fail. Memory that a test leaves is therefore checked
 * with rp_test_none_left, never with cr_expect or cr_assert (tests/lint/criterion.sh).
 */
#pragma once

#include "common/base/mem.h"

/** Arena of the running test. */
extern rp_arena *rp_test_arena;

/** .init and .fini of a suite. */
void rp_test_arena_begin(void);
void rp_test_arena_end(void);

/** To be called between the cases of a long test: ends the arena and begins a new arena. */
void rp_test_arena_again(void);

/** Messages since rp_test_log_begin or rp_test_log_again. */
extern char rp_test_messages[8192];

/** .init and .fini of a suite, with an arena and a capture of messages. */
void rp_test_log_begin(void);
void rp_test_log_end(void);

/** Begins the capture anew. */
void rp_test_log_again(void);

/** The end of any .fini: destroys the arena (NULL: none). If memory handed out by common/base/mem.h
 * has not been given back, the process ends with SIGABRT. */
void rp_test_end(rp_arena *arena);

/** Prints how many of `what` (a plural) are left and ends the process with SIGABRT; does nothing if
 * `count` is 0. */
void rp_test_none_left(size_t count, const char *what);
