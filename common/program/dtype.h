/** @file dtype.h  Types that tensors are stored in: fp32, fp16 and bf16. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/** X(enumerator, name in safetensors files, name on the command line, the name that PyTorch and
 * config.json have for it, bytes of an element). */
#define RP_DTYPE_LIST(X)                                                                           \
    X(F32, "F32", "fp32", "float32", 4)                                                            \
    X(F16, "F16", "fp16", "float16", 2)                                                            \
    X(BF16, "BF16", "bf16", "bfloat16", 2)

typedef enum rp_dtype {
#define RP_DTYPE_ENUM(name, stored, text, alias, bytes) RP_DTYPE_##name,
    RP_DTYPE_LIST(RP_DTYPE_ENUM)
#undef RP_DTYPE_ENUM
        RP_DTYPE_COUNT
} rp_dtype;

/** Their names on the command line in that order, as choices of an option (common/cli/options.h),
 * and the other ones. */
#define RP_DTYPE_CHOICE(name, stored, text, alias, bytes) "|" text
#define RP_DTYPES RP_DTYPE_LIST(RP_DTYPE_CHOICE)
#define RP_DTYPE_ALIAS(name, stored, text, alias, bytes) "|" alias
#define RP_DTYPE_ALIASES RP_DTYPE_LIST(RP_DTYPE_ALIAS)

/** @return bytes of an element. */
static inline size_t rp_dtype_bytes(rp_dtype dtype)
{
    return dtype == RP_DTYPE_F32 ? 4 : 2;
}

/** @return the type's name on the command line: "fp32", "fp16", "bf16"; static. */
const char *rp_dtype_text(rp_dtype dtype);

/** @retval true and *dtype_out for one of those names (nothing is logged otherwise) */
bool rp_dtype_parse(const char *text, rp_dtype *dtype_out);
