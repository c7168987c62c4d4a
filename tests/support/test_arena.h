/** @file test_arena.h  An arena per test, its messages, and the check that nothing outlives it.
 *
 * Criterion prints an assertion that fails in a suite's .fini, but lets the test pass; a process
 * that aborts there makes the whole program fail. Memory that a test leaves is therefore checked
 * with rp_test_none_left, never with cr_expect or cr_assert (tests/lint/criterion.sh).
 */
#pragma once

#include "common/base/mem.h"

/** The running test's. */
extern rp_arena *rp_test_arena;

/** A suite's .init and .fini. */
void rp_test_arena_begin(void);
void rp_test_arena_end(void);

/** Between the cases of a long test: ends the arena and begins a new one. */
void rp_test_arena_again(void);

/** Messages since rp_test_log_begin or rp_test_log_again. */
extern char rp_test_messages[8192];

/** As a suite's .init and .fini: an arena, and a capture of messages. */
void rp_test_log_begin(void);
void rp_test_log_end(void);

/** Begins the capture anew. */
void rp_test_log_again(void);

/** The end of any .fini: destroys the arena (NULL: none); all that common/base/mem.h has handed out
 * must have been given back, else the process ends with SIGABRT. */
void rp_test_end(rp_arena *arena);

/** Says how many of `what` (a plural) are left and ends the process with SIGABRT; does nothing
 * where `count` is 0. */
void rp_test_none_left(size_t count, const char *what);
