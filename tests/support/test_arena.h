/** @file test_arena.h  An arena per test, and the check that nothing outlives it. */
#pragma once

#include "common/mem.h"

/** The running test's. */
extern rp_arena *rp_test_arena;

/** A suite's .init and .fini. */
void rp_test_arena_begin(void);
void rp_test_arena_end(void);
