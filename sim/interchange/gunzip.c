#include "sim/interchange/gunzip.h"

#include <zlib.h>

#define PIECE ((size_t)1 << 16)
#define MOST_BYTES ((size_t)4 << 30)
#define GZIP_WINDOW (15 + 16) /* the largest window, and gzip's header */

bool rpsim_is_gzip(const char *bytes, size_t length)
{
    return length >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

static rp_status refuse(const char *name, const char *cause)
{
    rp_log_error_at(name, 1, "%s; valid are whole files as gzip writes them, of up to 4 GiB",
                    cause);
    return RP_INPUT;
}

static rp_status expand(const char *name, z_stream *z, size_t left, rp_text *text)
{
    char piece[PIECE];
    for (;;) {
        if (z->avail_in == 0) {
            z->avail_in = left < UINT32_MAX ? (uInt)left : UINT32_MAX;
            left -= z->avail_in;
        }
        z->next_out = (Bytef *)piece;
        z->avail_out = PIECE;
        int code = inflate(z, Z_NO_FLUSH);
        if (code == Z_MEM_ERROR) {
            return RP_NO_MEMORY;
        }
        if (code != Z_OK && code != Z_STREAM_END) {
            return refuse(name, code == Z_BUF_ERROR ? "the compressed file ends in its middle"
                                                    : "the compressed file is damaged");
        }
        RP_TRY(rp_text_append(text, piece, PIECE - z->avail_out));
        if (text->length > MOST_BYTES) {
            return refuse(name, "the compressed file expands to too much");
        }
        if (code == Z_STREAM_END) {
            if (z->avail_in == 0 && left == 0) {
                return RP_OK;
            }
            if (inflateReset(z) != Z_OK) {
                return rp_broken();
            }
        }
    }
}

rp_status rpsim_gunzip(const char *name, const char *bytes, size_t length, rp_text *text_out)
{
    z_stream z = {.next_in = (z_const Bytef *)bytes};
    *text_out = (rp_text){0};
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK) {
        return RP_NO_MEMORY;
    }
    rp_status status = expand(name, &z, length, text_out);
    (void)inflateEnd(&z);
    return status;
}
