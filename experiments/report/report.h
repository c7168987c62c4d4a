/** @file report.h  A store as one page: what varied, the best points, a picture per parameter. */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

/**
 * Writes the page of a store's runs; of runs that repeat a configuration the newest counts. Prints
 * where it is and what it has. Without gnuplot the page has no pictures; it and a warning say so.
 * @param path the store
 * @param html_or_null the page ("-": stdout); NULL: the store's name with the ending .html
 * @retval RP_OK
 * @retval RP_USAGE the page would replace the store (logged)
 * @retval RP_INPUT no store, no run in it, or no place for the page (logged)
 * @retval RP_DATABASE, RP_TOOL (gnuplot fails), RP_IO, RP_NO_MEMORY (logged); no page is left
 */
rp_status rpsweep_report(const char *path, const char *html_or_null, rp_arena *arena);
