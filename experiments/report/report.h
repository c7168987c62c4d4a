/** @file report.h  Writes a store as one page: the settings that varied, the best points, a picture
 * per parameter. */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

/**
 * Writes the page of a store's runs; if several runs repeat a configuration, the newest counts.
 * Prints the page's path and a summary. Without gnuplot the page has no pictures, which the page
 * and a warning say.
 * @param path the store
 * @param html_or_null the page ("-": stdout); NULL: the store's name with the ending .html
 * @retval RP_OK
 * @retval RP_USAGE the page would replace the store (logged)
 * @retval RP_INPUT there is no store, or no run in it, or the page cannot be written (logged)
 * @retval RP_DATABASE, RP_TOOL (gnuplot fails), RP_IO, RP_NO_MEMORY (logged); no page is left
 */
rp_status rpsweep_report(const char *path, const char *html_or_null, rp_arena *arena);
