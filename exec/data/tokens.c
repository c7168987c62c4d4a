#include "exec/data/tokens.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "exec/operators/random.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "RPTOKENS"
#define HEADER_BYTES 32u
#define VERSION 1u

static uint32_t little_endian(const unsigned char *bytes, uint32_t width)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < width; i++) {
        value |= (uint32_t)bytes[i] << (8 * i);
    }
    return value;
}

static uint32_t token_at(const rpexec_tokens *t, uint64_t index)
{
    return little_endian(t->values + index * t->width, t->width);
}

static rp_status read_header(rpexec_tokens *t, const unsigned char *bytes)
{
    bool marked =
        t->mapped_bytes >= sizeof MAGIC - 1 && memcmp(bytes, MAGIC, sizeof MAGIC - 1) == 0;
    if (!marked) {
        t->values = bytes;
        t->width = 1;
        t->count = t->mapped_bytes;
        return RP_OK;
    }
    uint32_t version = t->mapped_bytes >= HEADER_BYTES ? little_endian(bytes + 8, 4) : 0;
    t->width = t->mapped_bytes >= HEADER_BYTES ? little_endian(bytes + 12, 4) : 0;
    if (version != VERSION || (t->width != 2 && t->width != 4) ||
        little_endian(bytes + 20, 4) != 0) {
        rp_log_error("%s: the header is damaged; valid are %s, version 1, 2 or 4 bytes per token, "
                     "the vocabulary, 0 and the count",
                     t->path, MAGIC);
        return RP_INPUT;
    }
    t->count = little_endian(bytes + 24, 4) | (uint64_t)little_endian(bytes + 28, 4) << 32;
    t->values = bytes + HEADER_BYTES;
    if (t->count != (t->mapped_bytes - HEADER_BYTES) / t->width ||
        (t->mapped_bytes - HEADER_BYTES) % t->width != 0) {
        rp_log_error("%s: the header says %" PRIu64 " tokens of %" PRIu32
                     " bytes, the file has %" PRIu64 " bytes behind it",
                     t->path, t->count, t->width, t->mapped_bytes - HEADER_BYTES);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status check_tokens(const rpexec_tokens *t, uint32_t vocab)
{
    if (t->count <= t->seq_len) {
        rp_log_error("%s: %" PRIu64 " tokens; valid for sequences of %" PRIu32
                     " are at least %" PRIu32,
                     t->path, t->count, t->seq_len, t->seq_len + 1);
        return RP_INPUT;
    }
    for (uint64_t i = 0; i < t->count; i++) {
        if (token_at(t, i) >= vocab) {
            rp_log_error("%s: token %" PRIu64 " is %" PRIu32
                         "; valid for this model are 0 to %" PRIu32,
                         t->path, i, token_at(t, i), vocab - 1);
            return RP_INPUT;
        }
    }
    return RP_OK;
}

static rp_status map(rpexec_tokens *t)
{
    struct stat about;
    int descriptor = open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is refused */
    if (descriptor < 0 || fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode) ||
        about.st_size == 0) {
        const char *cause = descriptor < 0 ? strerror(errno) : "empty, or no regular file";
        rp_log_error("--data: %s: %s; valid are token files and texts", t->path, cause);
        if (descriptor >= 0) {
            (void)close(descriptor);
        }
        return RP_INPUT;
    }
    t->mapped_bytes = (uint64_t)about.st_size;
    t->mapping = rp_mem_map(descriptor, t->mapped_bytes);
    int error = errno;
    (void)close(descriptor);
    if (t->mapping == NULL) {
        rp_log_error("--data: %s: mmap: %s", t->path, strerror(error));
        return RP_INPUT;
    }
    return RP_OK;
}

rp_status rpexec_tokens_open(const char *path, uint32_t seq_len, uint32_t vocab, uint64_t seed,
                             rpexec_tokens *tokens_out)
{
    rpexec_tokens t = {.path = path, .seq_len = seq_len, .seed = seed};
    RP_TRY(map(&t));
    rp_status status = read_header(&t, t.mapping);
    status = status == RP_OK ? check_tokens(&t, vocab) : status;
    if (status != RP_OK) {
        rpexec_tokens_close(&t);
        return status;
    }
    t.sequences = (t.count - 1) / seq_len;
    *tokens_out = t;
    return RP_OK;
}

void rpexec_tokens_read(const rpexec_tokens *t, uint64_t place, uint32_t count, int32_t *ids,
                        int32_t *labels)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t epoch = (place + i) / t->sequences;
        uint64_t sequence = rpexec_random_permute(rpexec_random_bits(t->seed, epoch, 0),
                                                  t->sequences, (place + i) % t->sequences);
        for (uint32_t k = 0; k < t->seq_len; k++) {
            uint64_t at = sequence * t->seq_len + k;
            ids[(uint64_t)i * t->seq_len + k] = (int32_t)token_at(t, at);
            labels[(uint64_t)i * t->seq_len + k] = (int32_t)token_at(t, at + 1);
        }
    }
}

void rpexec_tokens_close(rpexec_tokens *t)
{
    rp_mem_unmap(t->mapping, t->mapped_bytes);
    *t = (rpexec_tokens){0};
}
