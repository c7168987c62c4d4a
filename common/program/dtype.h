/** @file dtype.h  Types in which tensors are stored (fp32, fp16 and bf16), and types in which their
 * products add up. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/** X(enumerator, name in safetensors files, name on the command line, name in PyTorch and
 * config.json, bytes of an element). */
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

/** Names of these types on the command line in that order, as choices of an option
 * (common/cli/options.h), and the types. */
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

/** @retval true if `text` is such a name, and the type in *dtype_out; otherwise false, and nothing
 * is logged */
bool rp_dtype_parse(const char *text, rp_dtype *dtype_out);

/** Types in which a matrix product adds up. On tensor cores of NVIDIA's GeForce cards fp32 has half
 * the rate of fp16 (Ada GPU architecture whitepaper, appendix A: 165.2 and 330.3 TFLOP/s). */
typedef enum rp_accumulation {
    RP_ACCUMULATION_USUAL, /**< a run does not ask for a type; a cost table's file does not name a
                              type */
    RP_ACCUMULATION_F16,   /**< only with fp16 values */
    RP_ACCUMULATION_F32,
} rp_accumulation;

/** Names of accumulations on the command line in that order; "usual" means that the option was not
 * given. */
#define RP_ACCUMULATIONS "usual|fp16|fp32"

/** Arithmetic of a run: the type of its values, and the type in which their products add up. */
typedef struct rp_arithmetic {
    rp_dtype dtype;
    rp_accumulation accumulation;
} rp_arithmetic;

/** @return false for products of bf16 and fp32 that are to add up in fp16: no GPU does that. */
bool rp_arithmetic_exists(rp_arithmetic arithmetic);

/** @return whether both are the same; USUAL equals only USUAL. */
bool rp_arithmetic_equal(rp_arithmetic a, rp_arithmetic b);

/** @return the accumulation's name on the command line, "usual" included; static. */
const char *rp_accumulation_text(rp_accumulation accumulation);

/** @retval true for "fp16" and "fp32", and the type in *accumulation_out; otherwise false, and
 * nothing is logged */
bool rp_accumulation_parse(const char *text, rp_accumulation *accumulation_out);

/** @return "fp16 with fp32 accumulation", for people; only "fp32" if values and sums have that
 * type; static. */
const char *rp_arithmetic_text(rp_arithmetic arithmetic);
