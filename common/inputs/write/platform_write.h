/** @file platform_write.h  Writes a platform in the form that rp_platform_load reads. */
#pragma once

#include "common/inputs/platform.h"

#include <stdio.h>

/** A comment on a key's line. Its first word, before a blank or a colon, is the value's origin as
 * rp_provenance_text writes it; with any other word the value counts as assumed. */
typedef struct rp_platform_note {
    const char *key;
    const char *text; /**< a single line */
} rp_platform_note;

/** Most notes that a platform can have. */
#define RP_PLATFORM_NOTES 64u

/** A platform while it is being made; zeroes are an empty platform. */
typedef struct rp_noted_platform {
    rp_platform platform;
    rp_platform_note notes[RP_PLATFORM_NOTES];
    uint32_t note_count;
} rp_noted_platform;

/** Adds a note behind a key; a key's last note counts. Notes after the first RP_PLATFORM_NOTES are
 * dropped.
 * @param text static, or in an arena */
void rp_platform_add_note(rp_noted_platform *platform, const char *key, const char *text);

/**
 * Writes every key whose value says something: 0 and NULL are left out, unless a platform must have
 * the key or a note gives the origin of the 0. Memory and link have two forms each; they are
 * written in the form in which they were read. The lists `measured`, `moved` and `set` follow from
 * the notes, and for keys without a note from the platform as it was read
 * (common/inputs/provenance.h).
 * @param head lines that go before the keys, each "# …\n"; "" for none
 * @param notes [count]
 */
void rp_platform_write(const rp_platform *platform, const char *head, const rp_platform_note *notes,
                       uint32_t count, FILE *stream);

/** @return a measured or computed rate, rounded to the four digits that a file gives */
double rp_platform_rounded(double value);

/**
 * Finds the member that a key of a platform file sets.
 * @return NULL if no key of that name holds a number with a fraction
 */
double *rp_platform_rate(rp_platform *platform, const char *key);
