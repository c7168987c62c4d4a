/** @file torch_csv.h  Schedules as CSV files of PyTorch's pipelining: reading, rules, writing.
 *
 * A file has a row for each rank, in rank order, and no header. A cell is an action: stage, type
 * and, for most types, microbatch ("2F0", "1UNSHARD"), or a pair of computations that may overlap,
 * "(0F7;7B3)OVERLAP_F_B". *Compute-only* files have only computations, and blank cells, which align
 * columns and are ignored; *lowered* files also have transfers and FSDP's actions, and no blank
 * cells. Cells may be quoted and have blanks around them; lines end in LF or CRLF.
 *
 * Legacy files (2024) write B for the gradient of the input and BW for the full backward. A file is
 * legacy if a cell has BW, or if it has W and B but no I (in the current dialect a W needs its I,
 * so that no valid file looks so).
 */
#pragma once

#include "common/schedule/schedule_type.h"

#include <stdio.h>

/** X(enumerator, text, has a microbatch, a computation, meaning). Nothing else enumerates the
 * types. */
#define RP_TORCH_TYPE_LIST(X)                                                                      \
    X(FORWARD, "F", true, true, "forward")                                                         \
    X(BACKWARD, "B", true, true, "full backward, which is I and W in one call")                    \
    X(BACKWARD_INPUT, "I", true, true,                                                             \
      "gradient of the stage's input (called B in the Zero Bubble papers)")                        \
    X(BACKWARD_WEIGHT, "W", true, true, "gradient of the stage's weights, after the I")            \
    X(UNSHARD, "UNSHARD", false, false, "parameters of a stage that FSDP shards are gathered")     \
    X(RESHARD, "RESHARD", false, false, "the gathered parameters are freed")                       \
    X(REDUCE_GRAD, "REDUCE_GRAD", false, false,                                                    \
      "gradients of a stage are reduced, once, after its last B or W")                             \
    X(SEND_F, "SEND_F", true, false, "stage s sends its output to stage s + 1")                    \
    X(RECV_F, "RECV_F", true, false, "stage s receives its input from stage s - 1")                \
    X(SEND_B, "SEND_B", true, false, "stage s sends the gradient of its input to stage s - 1")     \
    X(RECV_B, "RECV_B", true, false,                                                               \
      "stage s receives the gradient of its output from stage s + 1")                              \
    X(WAIT_REDUCE_GRAD, "WAIT_REDUCE_GRAD", false, false,                                          \
      "wait for the end of that reduction (PyTorch 2.15)")                                         \
    X(WAIT_SEND_F, "WAIT_SEND_F", true, false, "wait for the end of that send (PyTorch 2.15)")     \
    X(WAIT_SEND_B, "WAIT_SEND_B", true, false, "wait for the end of that send (PyTorch 2.15)")

typedef enum rp_torch_type {
#define RP_TORCH_ENUM(name, ...) RP_TORCH_##name,
    RP_TORCH_TYPE_LIST(RP_TORCH_ENUM)
#undef RP_TORCH_ENUM
        RP_TORCH_TYPE_COUNT
} rp_torch_type;

/** An action, or a part of an overlapped pair. */
typedef struct rp_torch_action {
    uint32_t stage;
    uint32_t microbatch; /**< 0 for types without a microbatch */
    uint32_t column;     /**< column of its cell, from 0 */
    uint8_t type;        /**< rp_torch_type */
    bool overlaps_next;  /**< first part of a pair: the next action is the second part */
    uint16_t unused;     /**< 0 */
} rp_torch_action;

/**
 * Reads a single cell of the current dialect, such as "2F0" or "(0F7;7B3)OVERLAP_F_B"; logs
 * nothing.
 * @param parts_out actions in column 0; the second is set for pairs only
 * @return the number of its actions: 1, or 2 for a pair; 0: the text is not a valid cell
 */
uint32_t rp_torch_action_parse(const char *text, rp_torch_action parts_out[static 2]);

/** A file's actions; lives in an arena. */
typedef struct rp_torch_csv {
    const char *name; /**< name of the file, for messages; borrowed */
    uint32_t rank_count;
    uint32_t
        *row_begin; /**< [rank_count + 1]: row r is actions[row_begin[r] .. row_begin[r + 1]) */
    rp_torch_action *actions;
    uint32_t stage_count;
    uint32_t microbatch_count;
    uint32_t *stage_ranks; /**< [stage_count]; set by rp_torch_csv_check; NULL if `separate` */
    /**
     * Stages below forward_count have only forwards; the others, in the order of execution, have
     * only full backwards; and a stage may run on several ranks (RoundPipe). PyTorch does not know
     * such files: a side-car marks them and gives the partition of the layers.
     */
    bool separate;
    uint32_t forward_count; /**< number of forward stages, if `separate` */
    bool lowered;           /**< has actions other than computations */
    bool legacy; /**< was read from, or is to be written in, the legacy dialect; the actions are in
                    the current dialect */
} rp_torch_csv;

/** @return the type's text in a cell; static. `type` must be in range. */
const char *rp_torch_type_text(rp_torch_type type);

/** @return whether a microbatch follows the type. `type` must be in range. */
bool rp_torch_type_has_microbatch(rp_torch_type type);

/** @return whether the type is a computation. `type` must be in range. */
bool rp_torch_type_computes(rp_torch_type type);

/** Writes "2F0" or "1UNSHARD" to `text`: an action or a part of a pair. */
#define RP_TORCH_NAME_SIZE 48
const char *rp_torch_action_name(const rp_torch_action *action,
                                 char text[static RP_TORCH_NAME_SIZE]);

/**
 * Reads the cells. Sizes are the greatest stage and microbatch plus 1; no rule is checked.
 * @param name file name for messages; must outlive the result
 * @param text `length` bytes, not kept
 * @retval RP_OK
 * @retval RP_INPUT logged as "name:line: row R, column C: cause; valid …"
 * @retval RP_NO_MEMORY
 */
rp_status rp_torch_csv_parse(const char *name, const char *text, size_t length, rp_arena *arena,
                             rp_torch_csv *csv_out);

/**
 * Checks PyTorch's rules and that the ranks can run their rows to the end (formats.md 1).
 *
 * First, in file order: each stage is on a single rank; each computation occurs once, a backward
 * after its forward, a W after its I, all on the stage's rank. Then: each stage has M forwards and
 * M backwards. Lowered files also: transfers are between neighbouring stages on different ranks,
 * and each tensor is sent after it is computed and received before it is used; UNSHARD and RESHARD
 * alternate, and a stage that has them computes between the two (the end of the row counts as a
 * last RESHARD, which PyTorch 2.5 to 2.9 does not write); REDUCE_GRAD comes after the last weight
 * gradient; waits come after the awaited actions. Last comes the dry run, each rank in its row's
 * order: a computation starts after its input, a receive after its send. If ranks wait for each
 * other in a circle, the message gives the circle and the smallest number of columns whose cells
 * alone cause it.
 *
 * If `separate`: each stage has its forwards or backwards once for each microbatch, there are only
 * computations, and the dry run passes.
 *
 * The message for a rule that the cells of a row break names the smallest prefix of the row that
 * breaks it.
 * @param arena owns tables and stage_ranks
 * @retval RP_OK (stage_ranks is set), RP_INPUT (logged with row and column), RP_NO_MEMORY
 */
rp_status rp_torch_csv_check(rp_torch_csv *csv, rp_arena *arena);

/** Positions of receives in a lowered file. */
typedef enum rp_torch_receives {
    RP_TORCH_RECEIVES_ASAP, /**< at the time of the send (PyTorch's default) */
    /** Before the computation that uses the tensor, or before a send to the rank that it comes
     * from, if that rank is higher (PyTorch's defer_pp_recv with the parity rule that prevents
     * deadlocks). */
    RP_TORCH_RECEIVES_JUST_IN_TIME,
} rp_torch_receives;

typedef struct rp_torch_lowering {
    rp_torch_receives receives;
    bool waits; /**< adds WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD, as PyTorch 2.15 does */
} rp_torch_lowering;

/**
 * Lowers a compute-only schedule as PyTorch does: at most three stages are unsharded, a REDUCE_GRAD
 * follows each stage's last weight gradient, and a SEND follows each computation whose result
 * another rank needs, with the RECV on that rank.
 * @param csv compute-only; has passed rp_torch_csv_check
 * @param csv_out in `arena`; passes rp_torch_csv_check
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rp_torch_csv_lower(const rp_torch_csv *csv, const rp_torch_lowering *how, rp_arena *arena,
                             rp_torch_csv *csv_out);

/**
 * Gives the order of a program's compute queues. A recompute has no action of its own but is part
 * of the backward. Stages are numbered along the model.
 * @param program has passed rp_program_check and has a single iteration
 * @param side_car whether a side-car will hold the facts that the CSV cannot: separate backward
 *        stages are then accepted, and numbered as in the program
 * @param csv_out in `arena`; passes rp_torch_csv_check, and stage_ranks is set
 * @retval RP_OK, RP_NO_MEMORY
 * @retval RP_USAGE the format cannot hold it (logged): several iterations, stages with a forward or
 *         a backward only (RoundPipe), a stage that runs on several ranks (data parallelism)
 */
rp_status rp_torch_csv_of_program(const rp_program *program, bool side_car, rp_arena *arena,
                                  rp_torch_csv *csv_out);

/** Writes a line for each rank, in the legacy dialect if csv->legacy: without pairs and waits,
 * which that dialect lacks. Errors of the stream stay with it, as for rp_timeline_write_csv. */
void rp_torch_csv_print(const rp_torch_csv *csv, FILE *stream);

/**
 * Calls rp_torch_csv_of_program without side-car, then rp_torch_csv_print; writes nothing on
 * refusal.
 * @retval as both functions
 */
rp_status rp_torch_csv_write(const rp_program *program, rp_arena *arena, FILE *stream);

/**
 * The schedule that runs config->orders, a file that has passed rp_torch_csv_check: its GPUs are
 * the rows, its microbatches and stages those of the file. It is not registered, as it has no
 * orders of its own. If config->orders is `separate`, use a copy with separate_backward set.
 */
extern const rp_schedule_type rp_torch_csv_schedule;
