/** @file dtype.h  Types in which tensors are stored (fp32, fp16 and bf16), types in which their
 * products add up, and types of optimizer states, masters and frozen weights. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/** Types of Adam's two moments. Blocks of 256 elements of 8 bits share a scale. */
typedef enum rp_states {
    RP_STATES_F32,
    RP_STATES_BF16,
    RP_STATES_8BIT,
    RP_STATES_COUNT,
} rp_states;

/** Types of the weights that the optimizer steps. */
typedef enum rp_master {
    RP_MASTER_F32,
    RP_MASTER_BF16,
    RP_MASTER_NONE, /**< the working weights themselves */
    RP_MASTER_COUNT,
} rp_master;

/** Types in which matrices are stored that adapters leave frozen (common/inputs/types/stored.h). */
typedef enum rp_frozen {
    RP_FROZEN_DTYPE, /**< the run's type */
    RP_FROZEN_BF16,
    RP_FROZEN_FP8,
    RP_FROZEN_NF4,        /**< its scales are quantised, too (double quantisation) */
    RP_FROZEN_NF4_SINGLE, /**< its scales are fp32 */
    RP_FROZEN_MXFP4,
    RP_FROZEN_COUNT,
} rp_frozen;

/** Names of these types on the command line, in their order. */
#define RP_STATES "fp32|bf16|8bit"
#define RP_MASTERS "fp32|bf16|none"
#define RP_FROZENS "dtype|bf16|fp8|nf4|nf4-single|mxfp4"

/** Stored types of a run beside that of its values. X(member, name in program text, number of
 * values). */
#define RP_TYPES_LIST(X)                                                                           \
    X(states, "states", RP_STATES_COUNT)                                                           \
    X(master, "master", RP_MASTER_COUNT)                                                           \
    X(frozen, "frozen", RP_FROZEN_COUNT)

/** Zeroed: fp32 states and masters, frozen weights of the run's type. */
typedef struct rp_types {
#define RP_TYPES_MEMBER(member, text, count) uint32_t member;
    RP_TYPES_LIST(RP_TYPES_MEMBER)
#undef RP_TYPES_MEMBER
} rp_types;

/** @return the names of these types on the command line; static. */
const char *rp_states_text(rp_states states);
const char *rp_master_text(rp_master master);
const char *rp_frozen_text(rp_frozen frozen);

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
