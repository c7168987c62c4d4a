/** @file gantt_boxes.h  Boxes that gantt.c draws: the ops of a timeline, small ones merged. */
#pragma once

#include "common/timeline/timeline.h"

/** X(enumerator, name in the legend, colour, colour of text on it).
 *
 * The colours differ in hue for the common kinds of colour blindness and in lightness (CIE L* 95,
 * 86, 72, 58, 43, 28, 13) when printed in grey. */
#define RP_GANTT_COLOUR_LIST(X)                                                                    \
    X(IDLE, "idle", "#f0f0f0", "black")                                                            \
    X(FORWARD, "forward", "#7fb8e6", "black")                                                      \
    X(RECOMPUTE, "recompute", "#f3d56b", "black")                                                  \
    X(BACKWARD, "backward", "#b5452c", "white")                                                    \
    X(WEIGHT, "weight gradient", "#5b2a86", "white")                                               \
    X(HEAD, "LM head alone", "#1f9e78", "black")                                                   \
    X(HOST, "optimizer", "#222222", "white")                                                       \
    X(TRANSFER, "communication", "#999999", "black")

typedef enum rp_gantt_colour {
#define RP_GANTT_ENUM(name, text, colour, text_colour) RP_GANTT_##name,
    RP_GANTT_COLOUR_LIST(RP_GANTT_ENUM)
#undef RP_GANTT_ENUM
        RP_GANTT_COLOUR_COUNT
} rp_gantt_colour;

#define RP_GANTT_NO_LABEL UINT32_MAX

typedef struct rp_gantt_box {
    int64_t begin_ps;
    int64_t end_ps;
    uint32_t row;
    uint32_t microbatch; /**< RP_GANTT_NO_LABEL for merged boxes, pre-work and host ops */
    rp_gantt_colour colour;
} rp_gantt_box;

typedef struct rp_gantt_boxes {
    rp_gantt_box *boxes; /**< grows by rp_mem_resize; freed by rp_gantt_boxes_fini */
    size_t count;
    size_t capacity;
    uint32_t rows;   /**< a row for each GPU, and a row for the host if it has ops that take time */
    bool has_host;   /**< the last row is the host's */
    bool has_merged; /**< some boxes stand for several ops */
} rp_gantt_boxes;

/** Iterations that are drawn, with the time from their first op to the end of their last op. */
typedef struct rp_gantt_window {
    uint32_t first; /**< iteration, from 0 */
    uint32_t last;
    int64_t begin_ps; /**< the picture's 0 */
    int64_t end_ps;
    int64_t busy_ps; /**< busy time of the compute queues */
} rp_gantt_window;

/** Measures iterations `first` to `last`, both counted from 0. */
rp_gantt_window rp_gantt_window_of(const rp_timeline *timeline, uint32_t first, uint32_t last);

/** @return the colour of an op of `program`. If a stage has only the head to run, its forward and
 * backward have the head's colour. */
rp_gantt_colour rp_gantt_colour_of(const rp_program *program, const rp_op *op);

/**
 * Collects the boxes of the window's iterations: of the compute queues and of optimizer queues
 * whose ops take time; empty ops are left out. Neighbouring ops shorter than `least_ps` become a
 * single box of at most that length, in the colour of the kind that fills most of it.
 * @param boxes_out zeroes at first; must be freed by rp_gantt_boxes_fini, also on failure
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_gantt_boxes_collect(const rp_timeline *timeline, const rp_gantt_window *window,
                                 int64_t least_ps, rp_gantt_boxes *boxes_out);

/** Frees the boxes; harmless on zeroes. */
void rp_gantt_boxes_fini(rp_gantt_boxes *boxes);
