/** @file calls.h  Calls of operators as words, which can be kept, compared and made later.
 *
 * A call is `words[0]`, which gives the operator, the number of words that follow and the addresses
 * among them, and then its arguments, a word each; structures go as their members. A call's work
 * depends on nothing else but its lane, so that equal words are equal work.
 */
#pragma once

#include "exec/operators/operators.h"

/** Words of the longest call, the first word with them. */
#define RPEXEC_CALL_WORDS 20u

/** Room for the longest shape. */
#define RPEXEC_SHAPE_SIZE 64

/** The work of a call. Bytes are the least that it reads and writes, FLOP those of its formula
 * (executor.md section 5), for causal attention half of the square, and 0 unless it is a product of
 * matrices. */
typedef struct rpexec_call_description {
    const char *name; /**< name in operators.h; static */
    char shape[RPEXEC_SHAPE_SIZE];
    double flop;
    double bytes;
} rpexec_call_description;

/** First member of an object that stands for a lane when calls are noted: `rpexec_noting_operators`
 * hand every call to it. */
typedef struct rpexec_call_taker {
    void (*take)(struct rpexec_call_taker *taker, const uint64_t *call);
    /** The only operator with an answer; never a call. */
    void (*squares)(struct rpexec_call_taker *taker, uint64_t count, const void *x,
                    rpexec_squares *sum);
} rpexec_call_taker;

/** The table for lanes that are an rpexec_call_taker, for every storage type. */
extern const rpexec_operators rpexec_noting_operators;

/** @return words of a call, including the first. */
uint32_t rpexec_call_length(const uint64_t *call);

/** @return true if word `i`, from 1 on, is an address; it may be NULL. */
bool rpexec_call_has_address(const uint64_t *call, uint32_t i);

/** @return the operator's name. */
const char *rpexec_call_name(const uint64_t *call);

/** @return true if it may come again with the same arguments: a step of Adam does not. */
bool rpexec_call_repeats(const uint64_t *call);

/** Describes the work of the call. @param dtype type of the tensors */
void rpexec_call_describe(const uint64_t *call, rp_dtype dtype, rpexec_call_description *what_out);

/** Makes the call. @param operators the lane's own */
void rpexec_call_make(const rpexec_operators *operators, rpexec_lane *lane, const uint64_t *call);
