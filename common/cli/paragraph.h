/** @file paragraph.h  Words for people, wrapped to the width of the reader's terminal. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** @return width in columns: COLUMNS of the environment, else the width of the terminal if `stream`
 * is a terminal, else `usual`. Values below 40 are ignored. */
uint32_t rp_paragraph_columns(FILE *stream, uint32_t usual);

/** @return number of characters in `length` bytes of UTF-8. */
uint32_t rp_paragraph_width(const char *text, size_t length);

/** Writes the words of `text` up to the end of its first line, from column `at` on; further lines
 * begin at `indent`. A number and its unit stay together. A word that is too long is broken after a
 * comma, | or /, or stands alone. */
void rp_paragraph_write(const char *text, uint32_t at, uint32_t indent, uint32_t columns,
                        FILE *stream);
