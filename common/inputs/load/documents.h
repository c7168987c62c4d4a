/** @file documents.h  Documents that a run's sequences are packed of, by the values of --documents
 * and --padding.
 *
 * Sequences hold whole documents, each of which attends to itself alone, as with the variable
 * lengths of FlashAttention. A document that is longer than a sequence is cut into whole sequences
 * and a rest. All sequences have the same mixture; their padding takes part in everything but
 * attention.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/reason.h"

typedef struct rp_documents {
    uint32_t count;       /**< of different lengths; 0: a sequence is a document */
    const double *tokens; /**< [count] length */
    const double *number; /**< [count] documents of this length, in any unit */
    double padding;       /**< share of a sequence's tokens, below 1 */
} rp_documents;

/** Most tokens of a document. */
#define RP_MAX_DOCUMENT 1e9

/**
 * Reads the lengths.
 * @param text tokens of every document (4k is 4096), or a CSV file of the columns tokens and
 *        documents, a row for each length; NULL: sequences are whole, padding included
 * @param padding 0 to below 1
 * @param documents_out in `arena`
 * @retval RP_OK, RP_USAGE (no such number), RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_documents_load(const char *text, double padding, rp_arena *arena,
                            const rp_documents **documents_out, rp_reason *reason);
