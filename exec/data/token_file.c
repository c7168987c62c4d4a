/* Our own token files and llm.c's. */
#include "exec/data/token_file.h"

#include "common/base/log.h"
#include "exec/data/token_file_internal.h"

#include <inttypes.h>
#include <string.h>

#define MAGIC "RPTOKENS"
#define MAGIC_BYTES (sizeof MAGIC - 1)
#define FIRST_HEADER_BYTES 32u /* of version 1 */
#define HEADER_BYTES 40u       /* of version 2, which has documents, and 3, which has prompts */

/* ---- our own --------------------------------------------------------------------------------- */

static rp_status refuse(const char *path, const char *what)
{
    rp_log_error("%s: the header is damaged: %s; valid are " MAGIC ", version 1 to 3, 2 or 4 bytes "
                 "per token, the vocabulary, 0, the count and, from version 2 on, the documents "
                 "(common/formats/formats.md)",
                 path, what);
    return RP_INPUT;
}

/* Documents must begin in ascending order, the first with the first token. */
static rp_status check_starts(const char *path, const rpexec_token_file *f)
{
    uint64_t before = 0;
    for (uint64_t i = 0; i < f->documents; i++) {
        uint64_t start = rpexec_token_file_start(f, i);
        if (start >= f->count || (i == 0 ? start != 0 : start <= before)) {
            rp_log_error("%s: document %" PRIu64 " begins at token %" PRIu64
                         "; valid are 0 for the first one, and ascending ones below %" PRIu64,
                         path, i, start, f->count);
            return RP_INPUT;
        }
        before = start;
    }
    return RP_OK;
}

/* A prompt is no longer than its document, and some token must be none of a prompt. */
static rp_status check_prompts(const char *path, const rpexec_token_file *f)
{
    uint64_t all = 0;
    for (uint64_t i = 0; f->prompts != NULL && i < f->documents; i++) {
        uint64_t end = i + 1 < f->documents ? rpexec_token_file_start(f, i + 1) : f->count;
        uint64_t prompt = rpexec_little_endian(f->prompts + 8 * i, 8);
        if (prompt > end - rpexec_token_file_start(f, i)) {
            rp_log_error("%s: document %" PRIu64 " has a prompt of %" PRIu64
                         " tokens; valid are up to the document's %" PRIu64,
                         path, i, prompt, end - rpexec_token_file_start(f, i));
            return RP_INPUT;
        }
        all += rpexec_token_file_prompt(f, i);
    }
    if (all == f->count && f->prompts != NULL) {
        rp_log_error("%s: no token is a label: all are prompts; valid are documents with answers",
                     path);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status parse_own(const char *path, const unsigned char *bytes, uint64_t size,
                           rpexec_token_file *f)
{
    uint64_t version = size >= FIRST_HEADER_BYTES ? rpexec_little_endian(bytes + 8, 4) : 0;
    uint64_t header = version == 1 ? FIRST_HEADER_BYTES : HEADER_BYTES;
    if (version < 1 || version > 3 || size < header) {
        return refuse(path, size < header ? "it is cut off" : "it has another version");
    }
    f->format = MAGIC;
    f->width = (uint32_t)rpexec_little_endian(bytes + 12, 4);
    f->vocab = (uint32_t)rpexec_little_endian(bytes + 16, 4);
    f->count = rpexec_little_endian(bytes + 24, 8);
    f->documents = version >= 2 ? rpexec_little_endian(bytes + 32, 8) : 0;
    const uint32_t each = version == 3 ? 16 : 8;
    if ((f->width != 2 && f->width != 4) || rpexec_little_endian(bytes + 20, 4) != 0) {
        return refuse(path, "bytes per token, or what has to be 0");
    }
    if (f->vocab == 0 || f->vocab > INT32_MAX || (f->width == 2 && f->vocab > 65536)) {
        return refuse(path, "no token of so many bytes has this vocabulary");
    }
    uint64_t behind = size - header;
    if (f->count == 0 || f->count > behind / f->width || f->documents > behind / each ||
        f->count * f->width + f->documents * each != behind) {
        rp_log_error("%s: the header says %" PRIu64 " tokens of %" PRIu32 " bytes and %" PRIu64
                     " documents, the file has %" PRIu64 " bytes behind it; it is cut off, or was "
                     "not written to its end",
                     path, f->count, f->width, f->documents, behind);
        return RP_INPUT;
    }
    f->values = bytes + header;
    f->starts = f->documents > 0 ? f->values + f->count * f->width : NULL;
    f->prompts = version == 3 && f->documents > 0 ? f->starts + f->documents * 8 : NULL;
    RP_TRY(check_starts(path, f));
    return check_prompts(path, f);
}

/* ---- llm.c's ----------------------------------------------------------------------------------
 * 256 int32: magic, version, count; then the tokens. The magic identifies the tokenizer and the
 * type. */

#define LLMC_HEADER_BYTES 1024u

static const struct {
    uint32_t magic;
    uint32_t version;
    uint32_t width;
} llmc_kinds[] = {{20240520, 1, 2} /* GPT-2 */, {20240801, 7, 4} /* Llama 3 */};

static rp_status parse_llmc(const char *path, const unsigned char *bytes, uint64_t size,
                            size_t kind, rpexec_token_file *f)
{
    uint64_t version = size >= LLMC_HEADER_BYTES ? rpexec_little_endian(bytes + 4, 4) : 0;
    if (version != llmc_kinds[kind].version) {
        rp_log_error("%s: llm.c's header of 1024 bytes %s; valid with magic %" PRIu32
                     " is version %" PRIu32,
                     path, size < LLMC_HEADER_BYTES ? "is cut off" : "has another version",
                     llmc_kinds[kind].magic, llmc_kinds[kind].version);
        return RP_INPUT;
    }
    f->format = "llm.c";
    f->width = llmc_kinds[kind].width;
    f->count = rpexec_little_endian(bytes + 8, 4);
    f->values = bytes + LLMC_HEADER_BYTES;
    if (f->count == 0 || f->count > INT32_MAX || f->count * f->width != size - LLMC_HEADER_BYTES) {
        rp_log_error("%s: llm.c's header says %" PRIu64 " tokens of %" PRIu32
                     " bytes, the file has %" PRIu64 " bytes behind it; it is cut off, or was not "
                     "written to its end",
                     path, f->count, f->width, size - LLMC_HEADER_BYTES);
        return RP_INPUT;
    }
    return RP_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

rp_status rpexec_token_file_parse(const char *path, const unsigned char *bytes, uint64_t size,
                                  rpexec_token_file *file_out)
{
    rpexec_token_file f = {0};
    rp_status status = RP_OK;
    uint64_t first = size >= 4 ? rpexec_little_endian(bytes, 4) : 0;
    if (size >= MAGIC_BYTES && memcmp(bytes, MAGIC, MAGIC_BYTES) == 0) {
        status = parse_own(path, bytes, size, &f);
    } else if (size >= sizeof RPEXEC_NPY_MAGIC - 1 &&
               memcmp(bytes, RPEXEC_NPY_MAGIC, sizeof RPEXEC_NPY_MAGIC - 1) == 0) {
        status = rpexec_npy_parse(path, bytes, size, &f);
    } else {
        for (size_t i = 0; i < sizeof llmc_kinds / sizeof *llmc_kinds; i++) {
            status = first == llmc_kinds[i].magic ? parse_llmc(path, bytes, size, i, &f) : status;
        }
    }
    *file_out = f;
    return status;
}

uint64_t rpexec_token_file_start(const rpexec_token_file *f, uint64_t document)
{
    uint64_t start = rpexec_little_endian(f->starts + 8 * document, 8);
    if (f->pointers == NULL) {
        return start;
    }
    return start == f->sequences ? f->count
                                 : rpexec_little_endian(f->pointers + 8 * start, 8) / f->width;
}

uint64_t rpexec_token_file_prompt(const rpexec_token_file *f, uint64_t document)
{
    uint64_t prompt = f->prompts != NULL ? rpexec_little_endian(f->prompts + 8 * document, 8) : 1;
    return prompt == 0 ? 1 : prompt;
}

uint64_t rpexec_token_file_at(const rpexec_token_file *f, uint64_t index)
{
    uint64_t value = rpexec_little_endian(f->values + index * f->width, f->width);
    uint32_t unused = 64 - 8 * f->width;
    return f->is_signed ? (uint64_t)((int64_t)(value << unused) >> unused) : value;
}

uint64_t rpexec_token_file_most(const rpexec_token_file *f)
{
    return UINT64_MAX >> (64 - 8 * f->width + (f->is_signed ? 1 : 0));
}
