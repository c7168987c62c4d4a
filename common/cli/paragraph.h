/** @file paragraph.h  Words for people, wrapped to the width of where they are read. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** @return columns of the environment's COLUMNS, else of the terminal that `stream` is, else
 * `usual`; what is below 40 does not count. */
uint32_t rp_paragraph_columns(FILE *stream, uint32_t usual);

/** @return characters, not bytes, of `length` bytes of UTF-8. */
uint32_t rp_paragraph_width(const char *text, size_t length);

/** Writes the words of `text` up to the end of its first line, from column `at` on; further lines
 * begin at `indent`. A number and its unit stay together. A word that is too long is broken behind
 * a comma, | or /, or stands alone. */
void rp_paragraph_write(const char *text, uint32_t at, uint32_t indent, uint32_t columns,
                        FILE *stream);
