/** @file session.h  What the runs of one process have in common: files that have been read,
 * and programs (sim/run/kept.h).
 *
 * A sweep runs thousands of command lines that name the same few files. A session reads each file
 * once; a file that changes meanwhile is not read again. What says something while it is read is
 * read each time, so that each run says it. Not for several threads.
 */
#pragma once

#include "common/base/reason.h"
#include "common/compile/compile.h"
#include "common/inputs/changes.h"
#include "sim/run/kept.h"

/** Files and programs that runs one after the other have in common. */
typedef struct rpsim_session rpsim_session;

/** @retval RP_OK (the caller destroys it), RP_NO_MEMORY */
rp_status rpsim_session_create(rpsim_session **session_out);

/** NULL is allowed. */
void rpsim_session_destroy(rpsim_session *session);

/** Most files that a session keeps of a kind; others are read each time. */
#define RPSIM_SESSION_FILES 64u

/**
 * As rp_platform_load_changed. A platform that changes is read each time.
 * @param session NULL: none
 * @param platform_out what it points to lives in `arena` or in the session
 */
rp_status rpsim_session_platform(rpsim_session *session, const char *name,
                                 const rp_changes *changes, rp_arena *arena,
                                 rp_platform *platform_out, rp_reason *reason);

/** As rp_model_load. @param session, model_out as above */
rp_status rpsim_session_model(rpsim_session *session, const char *name, rp_arena *arena,
                              rp_model *model_out);

/** As rp_costs_load_changed. @param session, costs_out as above; its times must not be changed */
rp_status rpsim_session_costs(rpsim_session *session, const char *name, const rp_changes *changes,
                              rp_arena *arena, rp_costs *costs_out, rp_reason *reason);

/** As rp_compile_partition, with published partitions that were found before. */
rp_status rpsim_session_partition(rpsim_session *session, const char *text, const char *words,
                                  const char *model, uint32_t stages,
                                  const rp_schedule_type *schedule,
                                  const rp_schedule_config *config, rp_arena *arena,
                                  rp_partition *partition_out, rp_reason *reason);

/** @return its programs; NULL without a session. */
rpsim_kept *rpsim_session_programs(rpsim_session *session);

/**
 * Has a session answer for a name with an object that the caller has read, instead of a file.
 * @param model, platform, costs borrowed as long as the session lives
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_session_add_model(rpsim_session *session, const char *name, const rp_model *model);
rp_status rpsim_session_add_platform(rpsim_session *session, const char *name,
                                     const rp_platform *platform);
rp_status rpsim_session_add_costs(rpsim_session *session, const char *name, const rp_costs *costs);
