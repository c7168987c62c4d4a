/** @file platform_write.h  Writes a platform as rp_platform_load reads it. */
#pragma once

#include "common/inputs/platform.h"

#include <stdio.h>

/** A comment on a key's line. Its first word, before a blank or a colon, says where the value comes
 * from, as rp_provenance_text has it; of another word the value is assumed. */
typedef struct rp_platform_note {
    const char *key;
    const char *text; /**< one line */
} rp_platform_note;

/** Most notes of a platform. */
#define RP_PLATFORM_NOTES 64u

/** A platform while it is made; zeroes are an empty one. */
typedef struct rp_noted_platform {
    rp_platform platform;
    rp_platform_note notes[RP_PLATFORM_NOTES];
    uint32_t note_count;
} rp_noted_platform;

/** Adds what stands behind a key; a key's last note counts. More than RP_PLATFORM_NOTES are
 * dropped. @param text static, or in an arena */
void rp_platform_add_note(rp_noted_platform *platform, const char *key, const char *text);

/**
 * Writes every key that the platform says something with: what is 0 or NULL is left out, unless a
 * platform must have it or a note says where the 0 comes from. Of memory and link, which may be
 * said in two ways, the way that was read is written. The lists `measured`, `moved` and `set`
 * follow from the notes, and for keys without one from the platform as it was read
 * (common/inputs/provenance.h).
 * @param head lines that go before the keys, each "# …\n"; "" for none
 * @param notes [count]
 */
void rp_platform_write(const rp_platform *platform, const char *head, const rp_platform_note *notes,
                       uint32_t count, FILE *stream);

/** @return a measured or computed rate with the four digits that a file has of it */
double rp_platform_rounded(double value);

/**
 * The member that a key of a platform file sets.
 * @return NULL where no key that holds a number with a fraction is called so
 */
double *rp_platform_rate(rp_platform *platform, const char *key);
