/** @file fake_cuda_inside.h  Between the fake's streams and its operators. */
#pragma once

#include "exec/host/lane.h"
#include "tests/support/fake_cuda.h"

/** Numbers of CUDA's errors. */
enum {
    ERROR_INVALID = 1,
    ERROR_CONTEXT = 201,
    ERROR_PINNED = 712,
    ERROR_HANDLE = 400,
    ERROR_NOT_READY = 600,
    ERROR_ADDRESS = 700,
    ERROR_MISUSE = 999,
};

typedef struct rp_fake_stream rp_fake_stream;

/** What a stream is of. */
const rpexec_cuda_part *rp_fake_part_of(const rp_fake_stream *stream);

/** What the calling thread's calls are about; may be set. */
rpexec_cuda_part *rp_fake_here(void);

/** The machine of this moment. */
const rp_fake_cuda *rp_fake_machine(void);

/** Counts what has to be given back. */
void rp_fake_count(int more);

/** Streams are numbered from 0 on again. */
void rp_fake_restart_streams(void);

/** The parts of the table that are about streams and events (fake_streams.c). */
int rp_fake_stream_create(const rpexec_cuda_part *part, void **stream_out);
int rp_fake_stream_destroy(void *stream);
int rp_fake_stream_wait(void *stream, void *handle);
int rp_fake_stream_synchronize(void *stream);
int rp_fake_event_create(void **event_out);
int rp_fake_event_destroy(void *handle);
int rp_fake_event_record(void *handle, void *stream);
int rp_fake_event_query(void *handle);
int rp_fake_event_synchronize(void *handle);
int rp_fake_event_elapsed(float *ms_out, void *from, void *to);

/** A lane of the host backend, and the stream in which its operators are performed. */
typedef struct rp_fake_lane {
    struct rpexec_lane host;
    rp_fake_stream *stream;
    rp_status status;
} rp_fake_lane;

/** Has `run` called with a copy of `arguments` when the stream comes to it. @return 0 or an error
 */
int rp_fake_enqueue(rp_fake_stream *stream, void (*run)(const void *arguments),
                    const void *arguments, size_t bytes);

/** Waits until the stream has done everything. */
int rp_fake_synchronize(rp_fake_stream *stream);

/** Operators of the lane need to reach an address (or NULL); where they do not, that is logged, and
 * the lane has failed. */
void rp_fake_require(rp_fake_lane *lane, const void *address, const char *operator_name);

/** The host's operators, performed in the lane's stream. */
extern const rpexec_operators rp_fake_operators;
