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

const char *rp_states_text(rp_states states)
{
    static const char *const words[] = {"fp32", "bf16", "8bit"};
    return words[states];
}

const char *rp_master_text(rp_master master)
{
    static const char *const words[] = {"fp32", "bf16", "none"};
    return words[master];
}

const char *rp_frozen_text(rp_frozen frozen)
{
    static const char *const words[] = {"dtype", "bf16", "fp8", "nf4", "nf4-single", "mxfp4"};
    return words[frozen];
}

static const char *const accumulations[] = {[RP_ACCUMULATION_USUAL] = "usual",
                                            [RP_ACCUMULATION_F16] = "fp16",
                                            [RP_ACCUMULATION_F32] = "fp32"};

bool rp_arithmetic_exists(rp_arithmetic arithmetic)
{
    return arithmetic.dtype == RP_DTYPE_F16 || arithmetic.accumulation != RP_ACCUMULATION_F16;
}

bool rp_arithmetic_equal(rp_arithmetic a, rp_arithmetic b)
{
    return a.dtype == b.dtype && a.accumulation == b.accumulation;
}

const char *rp_accumulation_text(rp_accumulation accumulation)
{
    return accumulations[accumulation];
}

bool rp_accumulation_parse(const char *text, rp_accumulation *accumulation_out)
{
    for (int i = RP_ACCUMULATION_F16; i <= RP_ACCUMULATION_F32; i++) {
        if (strcmp(text, accumulations[i]) == 0) {
            *accumulation_out = (rp_accumulation)i;
            return true;
        }
    }
    return false;
}

const char *rp_arithmetic_text(rp_arithmetic arithmetic)
{
    static const char *const of_half[] = {[RP_ACCUMULATION_USUAL] = "fp16",
                                          [RP_ACCUMULATION_F16] = "fp16 with fp16 accumulation",
                                          [RP_ACCUMULATION_F32] = "fp16 with fp32 accumulation"};
    return arithmetic.dtype == RP_DTYPE_F16    ? of_half[arithmetic.accumulation]
           : arithmetic.dtype == RP_DTYPE_BF16 ? "bf16 with fp32 accumulation"
                                               : "fp32";
}
