/** @file cudnn_internal.h  Objects and attributes, shared by the parts of the emulator's cuDNN.
 */
#pragma once

#include "exec/cuda/cudnn_api.h"

#include <stdbool.h>

enum { EMULATED_WORDS = 24, EMULATED_ATTRIBUTES = 8, EMULATED_AXES = 4 };

typedef struct emulated_attribute {
    unsigned name;
    int64_t count;
    uint64_t words[EMULATED_WORDS]; /**< the elements, each widened to a word */
} emulated_attribute;

typedef struct emulated_cudnn {
    unsigned type;
    bool used;
    bool finalized;
    uint32_t count;
    emulated_attribute attributes[EMULATED_ATTRIBUTES];
    uint32_t which; /**< of an engine and its configuration: the engine's number in the
                         heuristics */
    const struct emulated_cudnn *graph; /**< of an engine and its configuration: the graph */
} emulated_cudnn;

/** @return the attribute; NULL: not set. */
const emulated_attribute *emulated_cudnn_attribute(const emulated_cudnn *object, unsigned name);

/** @return an element of an attribute; 0 if it is not set. */
uint64_t emulated_cudnn_word(const emulated_cudnn *object, unsigned name, int64_t index);

/** @return an attribute that is an object; NULL: not set. */
const emulated_cudnn *emulated_cudnn_part(const emulated_cudnn *object, unsigned name,
                                          int64_t index);

/** The tensors that an operation reads, in the order x or a, b, chooser, and the tensor that it
 * writes. */
typedef struct emulated_ports {
    const emulated_cudnn *from[3];
    const emulated_cudnn *to;
} emulated_ports;

/** @return the tensors that an operation reads and writes. */
emulated_ports emulated_cudnn_ports(const emulated_cudnn *operation);

#define EMULATED_MOST_TENSORS 64u

/** The tensors of a graph. */
typedef struct emulated_tensors {
    const emulated_cudnn *list[EMULATED_MOST_TENSORS];
    bool written[EMULATED_MOST_TENSORS];
    bool read[EMULATED_MOST_TENSORS];
    uint32_t count;
} emulated_tensors;

/** @return whether a tensor has no memory. */
bool emulated_cudnn_is_virtual(const emulated_cudnn *tensor);

/** Collects the tensors that a graph's operations read and write. @return true if every operation
 * comes after those whose results it reads, every result is used, and no two tensors share an id */
bool emulated_cudnn_collect(const emulated_cudnn *graph, emulated_tensors *all);

/** @return the fault of an object that has all its attributes; NULL: none. */
const char *emulated_cudnn_check(const emulated_cudnn *object);

/** Bytes of the workspace that a plan needs and writes. */
#define EMULATED_WORKSPACE 256

/** A plan's graph with the tensors' addresses, as a kernel gets it. */
typedef struct emulated_job {
    const emulated_cudnn *graph;
    float factor; /**< factor of all results: 1, or another value for wrong results */
    void *workspace;
    uint32_t count;
    uint64_t ids[EMULATED_MOST_TENSORS];
    void *memory[EMULATED_MOST_TENSORS]; /**< NULL: `value` */
    float value[EMULATED_MOST_TENSORS];
} emulated_job;

/** @return objects and handles that have not been released. Exported by the library. */
unsigned emulated_cudnn_left(void);

/** Computes the graph of an `emulated_job` operation by operation, in fp32. */
void emulated_cudnn_run(const void *job);
