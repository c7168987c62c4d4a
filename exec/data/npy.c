/* NumPy's arrays (.npy), versions 1 to 3: "\x93NUMPY", two bytes of version, the header's length in
 * 2 bytes (version 1) or 4, and a literal of Python's: {'descr': '<u2', 'fortran_order': False,
 * 'shape': (10,), }. The values follow. Its specification is numpy.lib.format's documentation. */
#include "common/base/log.h"
#include "exec/data/token_file_internal.h"

#include <inttypes.h>
#include <string.h>

#define MAGIC_BYTES (sizeof RPEXEC_NPY_MAGIC - 1)
#define MOST_DIMENSIONS 4 /* more than can be read, so that a message can name the number */

typedef struct literal {
    const unsigned char *at;
    const unsigned char *end;
    char descr[8];
    bool fortran;
    uint64_t shape[MOST_DIMENSIONS];
    uint32_t dimensions;
} literal;

/* ---- Python's literal ------------------------------------------------------------------------ */

static void skip_blanks(literal *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\n' || *l->at == '\t')) {
        l->at++;
    }
}

static bool take(literal *l, const char *word)
{
    size_t length = strlen(word);
    skip_blanks(l);
    if ((size_t)(l->end - l->at) < length || memcmp(l->at, word, length) != 0) {
        return false;
    }
    l->at += length;
    return true;
}

/* A string without escapes. @return false if there is none, or it is longer than the buffer */
static bool take_string(literal *l, char *text_out, size_t size)
{
    skip_blanks(l);
    if (l->at == l->end || (*l->at != '\'' && *l->at != '"')) {
        return false;
    }
    unsigned char quote = *l->at++;
    size_t length = 0;
    for (; l->at < l->end && *l->at != quote && *l->at != '\\'; length++) {
        if (length + 1 == size || *l->at == '\0') {
            return false;
        }
        text_out[length] = (char)*l->at++;
    }
    text_out[length] = '\0';
    return take(l, quote == '"' ? "\"" : "'");
}

static bool take_number(literal *l, uint64_t *value_out)
{
    uint64_t value = 0;
    skip_blanks(l);
    const unsigned char *begin = l->at;
    for (; l->at < l->end && *l->at >= '0' && *l->at <= '9'; l->at++) {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*l->at - '0'), &value)) {
            return false;
        }
    }
    *value_out = value;
    return l->at > begin;
}

static bool take_shape(literal *l)
{
    if (!take(l, "(")) {
        return false;
    }
    while (!take(l, ")")) {
        uint64_t size = 0;
        if (!take_number(l, &size)) {
            return false;
        }
        l->shape[l->dimensions < MOST_DIMENSIONS ? l->dimensions : MOST_DIMENSIONS - 1] = size;
        l->dimensions++;
        if (!take(l, ",")) {
            return take(l, ")");
        }
    }
    return true;
}

/* Reads a literal that must have each of the three keys once, in any order. */
static bool take_literal(literal *l)
{
    static const char *const names[] = {"descr", "fortran_order", "shape"};
    bool seen[3] = {false};
    if (!take(l, "{")) {
        return false;
    }
    for (uint32_t i = 0; i < 3; i++) {
        char key[16];
        uint32_t which = 0;
        if (!take_string(l, key, sizeof key) || !take(l, ":")) {
            return false;
        }
        while (which < 3 && strcmp(key, names[which]) != 0) {
            which++;
        }
        if (which == 3 || seen[which]) {
            return false;
        }
        seen[which] = true;
        l->fortran = l->fortran || (which == 1 && take(l, "True"));
        bool taken = which == 0   ? take_string(l, l->descr, sizeof l->descr)
                     : which == 1 ? l->fortran || take(l, "False")
                                  : take_shape(l);
        if (!taken || (!take(l, ",") && i < 2)) {
            return false;
        }
    }
    bool closed = take(l, "}");
    skip_blanks(l);
    return closed && l->at == l->end;
}

/* ---- the header's values --------------------------------------------------------------------- */

static rp_status set_type(const char *path, const literal *l, rpexec_token_file *f)
{
    const char *type = l->descr + 1;
    if (strlen(l->descr) != 3 || strchr("<>|=", l->descr[0]) == NULL ||
        strchr("ui", type[0]) == NULL || strchr("1248", type[1]) == NULL) {
        rp_log_error("%s: NumPy's type '%s' is none of tokens; valid are uint8, uint16, int32, "
                     "uint32 and int64: numpy.save(FILE, tokens.astype('<u4'))",
                     path, l->descr);
        return RP_INPUT;
    }
    f->width = (uint32_t)(type[1] - '0');
    f->is_signed = type[0] == 'i';
    if (l->descr[0] == '>' && f->width > 1) {
        rp_log_error("%s: NumPy's type '%s' is big-endian; valid are little-endian ones: "
                     "numpy.save(FILE, tokens.astype('<%s'))",
                     path, l->descr, type);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status set_shape(const char *path, const literal *l, uint64_t bytes, rpexec_token_file *f)
{
    if (l->fortran) {
        rp_log_error("%s: NumPy's array is in Fortran order; valid is C order: numpy.save(FILE, "
                     "numpy.ascontiguousarray(tokens))",
                     path);
        return RP_INPUT;
    }
    f->labelled = l->dimensions == 3;
    if (l->dimensions < 1 || l->dimensions > 3 || (f->labelled && l->shape[0] != 2)) {
        rp_log_error("%s: NumPy's array has %" PRIu32 " dimensions; valid are [tokens], "
                     "[sequences, length] and, of tokens and their labels, [2, sequences, length]: "
                     "numpy.stack([input_ids, labels])",
                     path, l->dimensions);
        return RP_INPUT;
    }
    const uint64_t *shape = l->shape + (f->labelled ? 1 : 0);
    uint64_t arrays = f->labelled ? 2 : 1;
    uint64_t values = 0;
    f->row = l->dimensions > 1 ? shape[1] : 0;
    bool beyond = __builtin_mul_overflow(shape[0], l->dimensions > 1 ? f->row : 1, &f->count) ||
                  __builtin_mul_overflow(f->count, arrays, &values);
    if (beyond || f->count == 0 || bytes % f->width != 0 || values != bytes / f->width) {
        rp_log_error("%s: NumPy's header says %" PRIu64 " x %" PRIu64 " x %" PRIu64
                     " values of %" PRIu32 " bytes, the file has %" PRIu64 " bytes behind it; "
                     "valid are 1 token and more, and nothing else",
                     path, arrays, shape[0], l->dimensions > 1 ? f->row : 1, f->width, bytes);
        return RP_INPUT;
    }
    return RP_OK;
}

rp_status rpexec_npy_parse(const char *path, const unsigned char *bytes, uint64_t size,
                           rpexec_token_file *f)
{
    uint64_t before = MAGIC_BYTES + 2;
    uint32_t version = size > before ? bytes[MAGIC_BYTES] : 0;
    uint32_t width = version == 1 ? 2 : 4;
    uint64_t length = 0;
    before += width;
    if (version >= 1 && version <= 3 && size >= before) {
        length = rpexec_little_endian(bytes + before - width, width);
    }
    if (length == 0 || length > size - before) {
        rp_log_error("%s: NumPy's header is cut off or of another version; valid are versions 1 to "
                     "3: numpy.save writes them",
                     path);
        return RP_INPUT;
    }
    literal l = {.at = bytes + before, .end = bytes + before + length};
    if (!take_literal(&l)) {
        rp_log_error("%s: NumPy's header, byte %" PRIu64 ": valid are {'descr': '<u2', "
                     "'fortran_order': False, 'shape': (N,), } and other types of integers",
                     path, (uint64_t)(l.at - bytes));
        return RP_INPUT;
    }
    f->format = "NumPy";
    f->values = bytes + before + length;
    RP_TRY(set_type(path, &l, f));
    return set_shape(path, &l, size - before - length, f);
}
