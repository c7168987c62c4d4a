/** @file cudnn_internal.h  Between the parts of the emulator's cuDNN: objects and their attributes.
 */
#pragma once

#include "exec/cuda/cudnn_api.h"

#include <stdbool.h>

enum { EMULATED_WORDS = 24, EMULATED_ATTRIBUTES = 8, EMULATED_AXES = 4 };

typedef struct emulated_attribute {
    unsigned name;
    int64_t count;
    uint64_t words[EMULATED_WORDS]; /**< each element widened to one */
} emulated_attribute;

typedef struct emulated_cudnn {
    unsigned type;
    bool used;
    bool finalized;
    uint32_t count;
    emulated_attribute attributes[EMULATED_ATTRIBUTES];
    uint32_t which; /**< of an engine and its configuration: heuristics' number */
    const struct emulated_cudnn *graph; /**< of those */
} emulated_cudnn;

/** @return the attribute; NULL: not set. */
const emulated_attribute *emulated_cudnn_attribute(const emulated_cudnn *object, unsigned name);

/** @return an element of an attribute; 0 where it is not set. */
uint64_t emulated_cudnn_word(const emulated_cudnn *object, unsigned name, int64_t index);

/** @return an attribute that is an object; NULL: not set. */
const emulated_cudnn *emulated_cudnn_part(const emulated_cudnn *object, unsigned name,
                                          int64_t index);

/** The tensors that an operation reads, in the order x or a, b, chooser, and the one it writes. */
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

/** @return true where a tensor has no memory. */
bool emulated_cudnn_is_virtual(const emulated_cudnn *tensor);

/** Collects the tensors that a graph's operations read and write. @return true where operations
 * come in an order in which they can be done, each result is wanted, and no two tensors share an
 * id */
bool emulated_cudnn_collect(const emulated_cudnn *graph, emulated_tensors *all);

/** @return the fault of an object whose attributes are all there; NULL: none. */
const char *emulated_cudnn_check(const emulated_cudnn *object);

/** Bytes of the workspace that a plan wants, and writes. */
#define EMULATED_WORKSPACE 256

/** A plan's graph with addresses, as a kernel gets them. */
typedef struct emulated_job {
    const emulated_cudnn *graph;
    float factor; /**< all of the result is multiplied by it: 1, or a library that is wrong */
    void *workspace;
    uint32_t count;
    uint64_t ids[EMULATED_MOST_TENSORS];
    void *memory[EMULATED_MOST_TENSORS]; /**< NULL: `value` */
    float value[EMULATED_MOST_TENSORS];
} emulated_job;

/** @return objects and handles that have not been given back; of the library. */
unsigned emulated_cudnn_left(void);

/** Computes the graph of an `emulated_job` operation by operation, in fp32. */
void emulated_cudnn_run(const void *job);
