/* Golden files of whole decoders, made by the reference and read by tests. executor.md 6.8.
 *
 * A file is little-endian: 8 bytes of magic "RPGRAD\r\n"; u32 version (1); the configuration: u32
 * layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, f64 rope theta, norm eps, u32
 * flags (1 tied head, 2 QK-norm, 4 Llama 3.1 scaling), u32 sequences, seq_len; the inputs: i32 ids
 * and i32 labels [sequences][seq_len]; f64 loss; u32 count of tensors and for each tensor u32
 * length of the name, the name, u32 rank, u64 sizes, fp32 values (the weights), fp32 values (their
 * gradients); at the end u64 FNV-1a of all bytes before it. */
#pragma once

#include "tests/reference/slow_decoder.h"

#include <stdio.h>

typedef struct slow_golden_tensor {
    slow_parameter shape;
    float *weights;
    float *gradients;
} slow_golden_tensor;

typedef struct slow_golden {
    slow_decoder decoder;
    int sequences, seq_len;
    int32_t *ids, *labels;
    double loss;
    int count;
    slow_golden_tensor *tensors;
} slow_golden;

/* The cases that are committed as tests/golden/decoders/reference/NAME.bin. */
extern const char *const slow_golden_names[];
extern const int slow_golden_count;

/* Computes a case; aborts if there is no case of that name. Weights are uniform numbers from a
 * generator of this file, exact in fp32 and large enough for attention not to be uniform. About a
 * seventh of the labels is ignored. Free with slow_golden_free. */
void slow_golden_make(const char *name, slow_golden *golden_out);

/* @return false if a write failed */
bool slow_golden_write(const slow_golden *golden, FILE *stream);

/* Reads a whole file. @return NULL after success (free with slow_golden_free), otherwise the fault
 * of the file */
const char *slow_golden_read(const char *path, slow_golden *golden_out);

/* @return all weights in the layout of slow_decoder_parameters @param gradients_out as many zeroes.
 * The caller frees both. */
double *slow_golden_weights(const slow_golden *golden, double **gradients_out);

void slow_golden_free(slow_golden *golden);
