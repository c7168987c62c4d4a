/** @file published.h  Published parameter counts, as "1.7B" or "20,914,757,184", and names of
 * published systems. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * @return whether `text` is `count` rounded (half up) to as many digits as `text` has.
 * @param expected_out [size] receives the text that `count` has at the same precision
 * @param valid_out false when `text` is no such number; then expected_out is empty
 */
bool rp_published_matches(const char *text, uint64_t count, char *expected_out, size_t size,
                          bool *valid_out);

/** @return the schedule that is published under a framework's name; any other name is returned
 * unchanged. */
const char *rp_published_schedule(const char *framework);
