/** @file session.h  Data that the runs of a process share: files already read, and programs
 * (sim/run/kept.h).
 *
 * A sweep runs thousands of command lines that name the same few files. A session reads each file
 * once, even if the file changes meanwhile. A file whose reading logs a message is read each time,
 * so that each run logs it. Not safe for several threads. */
#pragma once

#include "common/base/reason.h"
#include "common/compile/compile.h"
#include "common/inputs/changes.h"
#include "sim/run/kept.h"

/** Files and programs that successive runs share. */
typedef struct rpsim_session rpsim_session;

/** @retval RP_OK (the caller destroys it), RP_NO_MEMORY */
rp_status rpsim_session_create(rpsim_session **session_out);

/** NULL is allowed. */
void rpsim_session_destroy(rpsim_session *session);

/** Most files that a session keeps of a kind; further files are read each time. */
#define RPSIM_SESSION_FILES 64u

/**
 * Same as rp_platform_load_changed, but a platform without changes is read once.
 * @param session NULL: no session
 * @param platform_out its data live in `arena` or in the session
 */
rp_status rpsim_session_platform(rpsim_session *session, const char *name,
                                 const rp_changes *changes, rp_arena *arena,
                                 rp_platform *platform_out, rp_reason *reason);

/** Same as rp_model_load, but reads each model once. @param session, model_out as in
 * rpsim_session_platform */
rp_status rpsim_session_model(rpsim_session *session, const char *name, rp_arena *arena,
                              rp_model *model_out);

/** Same as rp_costs_load_changed, but a table without changes is read once. @param session,
 * costs_out as in rpsim_session_platform; the times must not be changed */
rp_status rpsim_session_costs(rpsim_session *session, const char *name, const rp_changes *changes,
                              rp_arena *arena, rp_costs *costs_out, rp_reason *reason);

/** Same as rp_compile_partition, but looks up each published partition once. */
rp_status rpsim_session_partition(rpsim_session *session, const char *text, const char *words,
                                  const char *model, uint32_t stages,
                                  const rp_schedule_type *schedule,
                                  const rp_schedule_config *config, rp_arena *arena,
                                  rp_partition *partition_out, rp_reason *reason);

/** @return the session's programs; NULL without a session. */
rpsim_kept *rpsim_session_programs(rpsim_session *session);

/**
 * Registers an object that the caller has read, which the session then gives for a name instead of
 * a file.
 * @param model, platform, costs borrowed as long as the session lives
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_session_add_model(rpsim_session *session, const char *name, const rp_model *model);
rp_status rpsim_session_add_platform(rpsim_session *session, const char *name,
                                     const rp_platform *platform);
rp_status rpsim_session_add_costs(rpsim_session *session, const char *name, const rp_costs *costs);
