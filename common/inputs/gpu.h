/** @file gpu.h  GPUs: data in traces/gpus, a part of platforms.
 *
 * A platform file that lacks a key which each GPU must have takes the keys of its GPU that it does
 * not give itself from gpus/NAME.yaml, NAME being its `gpu`. A file with all of these keys is read
 * alone.
 */
#pragma once

#include "common/inputs/changes.h"

/** Lines of a platform's keys, in its own file or in its GPU's. */
typedef struct rp_platform_lines {
    const char *file;
    const char *gpu_file;               /**< NULL: not read */
    size_t lines[RP_CONFIG_MAX_FIELDS]; /**< [rp_platform_key] 0: neither file has the key */
    bool of_gpu[RP_CONFIG_MAX_FIELDS];  /**< [rp_platform_key] whether the line is the GPU's */
} rp_platform_lines;

/** Layouts of products, as BLAS names them. */
typedef enum rp_product_layout {
    RP_PRODUCT_TN, /**< forward */
    RP_PRODUCT_NN, /**< gradient of inputs */
    RP_PRODUCT_NT, /**< gradient of weights, summed up in fp32 */
    RP_PRODUCT_LAYOUTS
} rp_product_layout;

/** A product of m x k by k x n values, and the share of the peak that it reaches. */
typedef struct rp_product {
    rp_product_layout layout;
    double m;
    double n;
    double k;
    double share;
} rp_product;

/** Products in 16 bits that somebody has measured on a kind of GPU. */
typedef struct rp_products {
    const rp_product *rows;
    uint32_t count;       /**< at least RP_PRODUCTS_LEAST */
    double power_limit_w; /**< of the measured card */
    double median_share;
} rp_products;

#define RP_PRODUCTS_LEAST 20u

/** The keys of a GPU: those of a platform's sections FILE, GPU and ORIGIN. */
extern const rp_config_schema rp_gpu_schema;

/** @return the file of a key's line. */
const char *rp_platform_file_of(const rp_platform_lines *at, size_t key);

/**
 * Reads a GPU by name, as `--list gpus` shows it.
 * @param gpu_out members that are no keys of a GPU are 0 or NULL
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_gpu_load(const char *name, rp_arena *arena, rp_platform *gpu_out);

/**
 * Reads the measured products of a GPU, traces/products/NAME.csv: lines of a head, which begin with
 * '#', and rows of layout, m, n, k, share and power_limit_w.
 * @param products_out NULL: there is no such file
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_products_load(const char *gpu, rp_arena *arena, const rp_products **products_out);

/** Reads such a file from bytes in memory. @retval as rp_products_load */
rp_status rp_products_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                            const rp_products **products_out);

/**
 * Completes a platform by the keys of its GPU, and refuses missing keys.
 * @param first_line of the platform's file
 * @param changes for the file's name in messages; NULL: none
 * @param platform with the keys of its own file
 * @param at lines of these keys
 * @param kinds_out [rp_platform_key] rp_provenance of the keys of the GPU; NULL: none were added
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_platform_add_gpu(size_t first_line, const rp_changes *changes, rp_arena *arena,
                              rp_platform *platform, rp_platform_lines *at,
                              const uint8_t **kinds_out);

/** A card of a server that has several. */
typedef struct rp_card {
    rp_platform gpu; /**< as rp_gpu_load; `gpu` is its name */
    rp_platform_lines lines;
} rp_card;

/**
 * Reads a GPU that `gpu_list` names.
 * @param at lines of the platform, for messages
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_platform_read_card(const char *name, const rp_platform_lines *at, rp_arena *arena,
                                rp_card *card_out);

/** Replaces the keys of a platform's GPU, and their lines, by those of a card. */
void rp_platform_put_card(const rp_card *card, rp_platform *platform, rp_platform_lines *at);

/** The GPUs of a server, by `gpu_list`. */
typedef struct rp_platform_cards rp_platform_cards;

/**
 * Reads `gpu_list` and, unless the platform's file lists memory, lists that of the cards; before
 * changes.
 * @param cards_out NULL: no list
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_platform_read_cards(const rp_platform_lines *at, rp_arena *arena,
                                 rp_platform *platform, rp_platform_cards **cards_out);

/** Checks the number of cards, and that `gpu` is the fastest; after changes. @param cards NULL:
 * none @retval RP_OK, RP_INPUT (given as the reason) */
rp_status rp_platform_check_cards(const rp_platform_cards *cards, const rp_platform_lines *at,
                                  const rp_platform *platform, rp_reason *reason);

/** Checks the keys of a platform with its GPU's keys. @retval RP_OK, RP_INPUT (given as the
 * reason) */
typedef rp_status (*rp_platform_check)(const rp_platform_lines *at, const rp_platform *platform,
                                       rp_reason *reason);

/**
 * Makes the platforms of the cards, when all else of the platform is known.
 * @param cards NULL: none
 * @param check called for each card
 * @retval RP_OK, RP_INPUT (given as the reason), RP_NO_MEMORY
 */
rp_status rp_platform_set_cards(const rp_platform_cards *cards, const rp_platform_lines *at,
                                rp_platform_check check, rp_arena *arena, rp_platform *platform,
                                rp_reason *reason);
