#include "common/program/dtype.h"

#include <string.h>

static const char *const texts[] = {
#define TEXT(name, stored, text, alias, bytes) text,
    RP_DTYPE_LIST(TEXT)
#undef TEXT
};

#define BYTES(name, stored, text, alias, bytes)                                                    \
    _Static_assert((bytes) == ((RP_DTYPE_##name) == RP_DTYPE_F32 ? 4 : 2), text);
RP_DTYPE_LIST(BYTES)
#undef BYTES

const char *rp_dtype_text(rp_dtype dtype)
{
    return texts[dtype];
}

bool rp_dtype_parse(const char *text, rp_dtype *dtype_out)
{
    for (int i = 0; i < RP_DTYPE_COUNT; i++) {
        if (strcmp(text, texts[i]) == 0) {
            *dtype_out = (rp_dtype)i;
            return true;
        }
    }
    return false;
}
