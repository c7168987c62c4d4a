/* Attention within the documents of a packed sequence. */
#include "common/roofline/roofline.h"

#include <math.h>

/* Rows and columns of the blocks of pairs that fused attention computes together; in blocks on the
 * diagonal half of the pairs are masked. Its rates are about the same with heads of 64 and 128
 * (Dao, FlashAttention-2, 2023, figure 4, FlashAttention and Triton). */
#define ATTENTION_BLOCK 128.0

typedef double of_length(double tokens, double window);

/* Adds up a function of their length over the documents of a sequence. */
static double sum(const rp_documents *d, double seq_len, double window, of_length of)
{
    double all = 0;
    double tokens = 0;
    if (d == NULL || d->count == 0) {
        return of(seq_len, window);
    }
    for (uint32_t i = 0; i < d->count; i++) {
        double whole = floor(d->tokens[i] / seq_len);
        double rest = d->tokens[i] - whole * seq_len;
        all += d->number[i] * (whole * of(seq_len, window) + of(rest, window));
        tokens += d->number[i] * d->tokens[i];
    }
    return (1 - d->padding) * seq_len * all / tokens;
}

double rp_packed_pairs(const rp_documents *documents, double seq_len, double window)
{
    return sum(documents, seq_len, window, rp_attention_pairs);
}

static double unmasked(double tokens, double window)
{
    (void)window;
    return tokens * tokens;
}

static double in_blocks(double tokens, double window)
{
    (void)window;
    return tokens * (tokens + fmin(ATTENTION_BLOCK, tokens));
}

double rp_attention_masked(const rp_documents *documents, double seq_len)
{
    if (documents == NULL || documents->count == 0) {
        return 1 + fmin(ATTENTION_BLOCK, seq_len) / seq_len;
    }
    return sum(documents, seq_len, 0, in_blocks) / sum(documents, seq_len, 0, unmasked);
}
