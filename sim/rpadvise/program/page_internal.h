/** @file page_internal.h  Words that the files of the report share. */
#pragma once

#include "common/cli/table.h"
#include "sim/rpadvise/advice.h"

#define RPADVISE_SIZES_TEXT 160u
#define RPADVISE_CHANGE_TEXT 96u

typedef struct rpadvise_page {
    const rpadvise_advice *advice;
    uint32_t columns; /**< width */
    FILE *stream;
} rpadvise_page;

/** Writes a paragraph, with all lines after the first indented. */
RP_PRINTF(3, 4)
void rpadvise_say(const rpadvise_page *page, uint32_t indent, const char *format, ...);

/** @return bytes in GB, of 10^9 bytes. */
double rpadvise_gb(uint64_t bytes);

/** Rounds a speed to what its interval can tell: to the power of ten at or below a tenth of the
 * interval's width. @param interval shares of the speed; NULL: leaves it as it is */
double rpadvise_rounded(double tokens_per_s, double speed, const rpsim_interval *interval);

/** "4 copies x 2 GPUs per layer on 2 servers, each with 32 microbatches of 16 sequences in 2 calls"
 */
const char *rpadvise_sizes_text(const rpadvise_search *search, const rpadvise_candidate *candidate,
                                char text[static RPADVISE_SIZES_TEXT]);

/** Adds copies x GPUs per layer, and the servers if not all are used; adds an empty cell without a
 * layout. @retval as rp_table_print */
rp_status rpadvise_add_layout(const rpadvise_search *search, const rpadvise_candidate *candidate,
                              rp_table *table);

/** @return "synchronous" or "asynchronous". */
const char *rpadvise_mode_text(const rpadvise_candidate *candidate);

/** @return interval of a row's speed, as shares of it; NULL: none was drawn. */
const rpsim_interval *rpadvise_interval_of(const rpadvise_row *row);

/** @return whether a run needs more GPU memory than there is, or its allocator's segments do. */
bool rpadvise_lacks_gpu(const rpadvise_outcome *outcome);
/** @return whether a run needs more host memory than there is, as far as that is known. */
bool rpadvise_lacks_host(const rpadvise_outcome *outcome);

/** Names a change of server or work. @return `text` */
const char *rpadvise_change_text(const rpadvise_change *change,
                                 char text[static RPADVISE_CHANGE_TEXT]);

/** Writes what --why asks for: the rows, what speed could be traded for, the reasons against the
 * other schedules, and what would change the answer. @retval RP_OK, RP_NO_MEMORY */
rp_status rpadvise_write_why(const rpadvise_page *page);
