#define _GNU_SOURCE /* prctl */
#include "experiments/point_run.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "exec/setup/setup.h"
#include "sim/study/record.h"
#include "sim/study/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE_BYTES 2048

/* ---- messages -------------------------------------------------------------------------------- */

static rp_status pack_head(uint64_t number, const char *failure, uint32_t runs, rp_text *message)
{
    RP_TRY(rp_text_append(message, (const char *)&number, sizeof number));
    RP_TRY(rp_store_text_pack(failure, message));
    return rp_text_append(message, (const char *)&runs, sizeof runs);
}

rp_status rpsweep_outcome_pack(const rpsweep_outcome *outcome, rp_text *message)
{
    RP_TRY(pack_head(outcome->number, outcome->failure, outcome->run_count, message));
    for (uint32_t i = 0; i < outcome->run_count; i++) {
        RP_TRY(rp_store_run_pack(&outcome->runs[i], message));
    }
    return RP_OK;
}

rp_status rpsweep_outcome_unpack(const char *bytes, size_t length, rp_arena *arena,
                                 rpsweep_outcome *outcome_out)
{
    size_t at = sizeof outcome_out->number;
    *outcome_out = (rpsweep_outcome){0};
    if (length < at) {
        return rp_broken();
    }
    memcpy(&outcome_out->number, bytes, at);
    RP_TRY(rp_store_text_unpack(bytes, length, &at, arena, &outcome_out->failure));
    uint32_t count = 0;
    if (length - at < sizeof count) {
        return rp_broken();
    }
    memcpy(&count, bytes + at, sizeof count);
    at += sizeof count;
    if (count > length - at) { /* a run has more than a byte, so a larger count is false */
        return rp_broken();
    }
    RP_TRY(rp_arena_alloc(arena, count, sizeof *outcome_out->runs, &outcome_out->runs));
    for (uint32_t i = 0; i < count; i++) {
        RP_TRY(rp_store_run_unpack(bytes, length, &at, arena, &outcome_out->runs[i]));
    }
    outcome_out->run_count = count;
    return at == length ? RP_OK : RP_BROKEN;
}

/* ---- executed -------------------------------------------------------------------------------- */

static void log_end(const char *rpexec, int state, FILE *errors)
{
    char text[MESSAGE_BYTES];
    rewind(errors);
    size_t length = fread(text, 1, sizeof text - 1, errors);
    text[length] = '\0';
    if (WIFSIGNALED(state)) {
        rp_log_error("%s ended by signal %d (%s): %s", rpexec, WTERMSIG(state),
                     strsignal(WTERMSIG(state)), text);
    } else {
        rp_log_error("%s", text[0] != '\0' ? text : "rpexec failed and said nothing");
    }
}

/* Becomes rpexec, in the new process, which ends with its parent however the parent ends. An rpexec
 * that cannot start is reported in the form of rpexec's own messages. */
static void become(const char *rpexec, char **argv, int errors, pid_t parent,
                   const sigset_t *signals)
{
    int input = open("/dev/null", O_RDONLY);
    int output = open("/dev/null", O_WRONLY);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent &&
        dup2(input, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 &&
        dup2(errors, STDERR_FILENO) >= 0 && sigprocmask(SIG_SETMASK, signals, NULL) == 0) {
        (void)execvp(rpexec, argv);
    }
    (void)dprintf(errors, "%s: %s\n", rpexec, strerror(errno));
    _exit(127);
}

/* Starts rpexec. Signals wait meanwhile: their handlers may need locks that fork holds. */
static rp_status spawn(const char *rpexec, char **argv, FILE *errors)
{
    sigset_t all;
    sigset_t before;
    pid_t parent = getpid();
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    pid_t child = fork();
    if (child == 0) {
        become(rpexec, argv, fileno(errors), parent, &before);
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (child < 0) {
        rp_log_error("%s: %s", rpexec, strerror(errno));
        return RP_TOOL;
    }
    int state = 0;
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0) {
        return RP_OK;
    }
    log_end(rpexec, state, errors);
    return RP_TOOL;
}

static rp_status read_runs(const char *path, rp_arena *arena, rpsweep_outcome *outcome)
{
    rp_store *store = NULL;
    RP_TRY(rp_store_open(path, &store));
    rp_status status = rp_store_read_runs(store, 0, arena, &outcome->runs, &outcome->run_count);
    rp_store_close(store);
    return status;
}

static rp_status check_request(const rpsweep_point *point, rp_arena *arena, rp_reason *reason)
{
    rpexec_options options = rpexec_setup_defaults();
    for (uint32_t i = 0; i < point->count; i++) {
        const rpsweep_setting *s = &point->settings[i];
        RP_TRY(rp_options_set(rpexec_setup_keys(), s->option, s->value[0] != '\0' ? s->value : NULL,
                              arena, &options, reason));
    }
    return rpexec_setup_complete(&options, reason);
}

/* Runs rpexec, whose runs go into a store of their own; the store is read if rpexec succeeds. */
static rp_status execute(const rpsweep_point *point, const char *rpexec, rp_arena *arena,
                         rpsweep_outcome *outcome)
{
    char folder[] = "/tmp/rpsweep_XXXXXX";
    const char **with_store = NULL;
    const char *path = NULL;
    char **argv = NULL;
    int argc = 0;
    RP_TRY(rpsweep_point_arguments(point, arena, &argc, &argv));
    RP_TRY(rp_arena_alloc(arena, (size_t)argc + 2, sizeof(char *), &with_store));
    FILE *errors = tmpfile();
    if (errors == NULL || mkdtemp(folder) == NULL) {
        rp_log_error("no temporary file: %s", strerror(errno));
        if (errors != NULL) {
            (void)fclose(errors);
        }
        return RP_IO;
    }
    memcpy(with_store, argv, (size_t)argc * sizeof(char *));
    rp_status status = rp_arena_print(arena, &path, "%s/runs.db", folder);
    if (status == RP_OK) {
        status = rp_arena_print(arena, &with_store[argc], "--db=%s", path);
    }
    if (status == RP_OK) {
        status = spawn(rpexec, (char **)(void *)with_store, errors);
    }
    if (status == RP_OK) {
        status = read_runs(path, arena, outcome);
    }
    (void)fclose(errors);
    static const char *const left[] = {"runs.db", "runs.db-wal", "runs.db-shm"};
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        char name[sizeof folder + 16];
        (void)snprintf(name, sizeof name, "%s/%s", folder, left[i]);
        (void)unlink(name);
    }
    (void)rmdir(folder);
    return status;
}

/* ---- simulated ------------------------------------------------------------------------------- */

static rp_status make_setup(const rpsweep_point *point, rp_arena *arena, rpsim_setup *setup_out,
                            rp_reason *reason)
{
    *setup_out = (rpsim_setup)RPSIM_SETUP_INIT;
    for (uint32_t i = 0; i < point->count; i++) {
        rpsweep_setting s;
        RP_TRY(rpsweep_setting_option(&point->settings[i], arena, &s));
        RP_TRY(rp_options_set(&rpsim_setup_keys, s.option, s.value[0] != '\0' ? s.value : NULL,
                              arena, setup_out, reason));
    }
    RP_TRY(rpsim_setup_check(&rpsim_setup_keys, setup_out, reason));
    rpsim_setup_complete(setup_out);
    return RP_OK;
}

static rp_status simulate(const rpsweep_point *point, const char *command, rpsim_session *session,
                          rp_arena *arena, rpsweep_outcome *outcome)
{
    rpsim_setup setup;
    RP_TRY(make_setup(point, arena, &setup, NULL));
    setup.session = session;
    setup.hashes = true;
    setup.intervals = setup.intervals_given ? setup.intervals : 0;
    return rpsim_setup_record(&setup, command, arena, &outcome->runs, &outcome->run_count);
}

/* ---- both ------------------------------------------------------------------------------------ */

static rp_status run(const rpsweep_experiment *e, const char *rpexec, rpsim_session *session,
                     uint64_t number, rp_arena *arena, rpsweep_outcome *outcome)
{
    rpsweep_point point;
    bool included = false;
    const char *command = NULL;
    RP_TRY(rpsweep_experiment_point(e, number, arena, &point, &included));
    RP_TRY(rpsweep_point_command(e, &point, arena, &command));
    return e->executed ? execute(&point, rpexec, arena, outcome)
                       : simulate(&point, command, session, arena, outcome);
}

rp_status rpsweep_session_begin(rpsim_session **session_out)
{
    rp_mem_keep_freed(); /* thousands of short runs */
    return rpsim_session_create(session_out);
}

void rpsweep_session_end(rpsim_session *session)
{
    rpsim_session_destroy(session);
}

static void trim(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' ')) {
        text[--length] = '\0';
    }
}

rp_status rpsweep_point_run(const rpsweep_experiment *experiment, const char *rpexec,
                            rpsim_session *session, uint64_t number, rp_text *message)
{
    char failure[MESSAGE_BYTES];
    rp_arena *arena = NULL;
    rpsweep_outcome outcome = {.number = number};
    rp_log_capture_begin(failure, sizeof failure);
    rp_status status = rp_arena_create(&arena);
    if (status == RP_OK) {
        status = run(experiment, rpexec, session, number, arena, &outcome);
    }
    rp_log_capture_end();
    if (status != RP_OK) {
        trim(failure);
        outcome = (rpsweep_outcome){
            .number = number, .failure = failure[0] != '\0' ? failure : rp_status_text(status)};
    }
    status = rpsweep_outcome_pack(&outcome, message);
    rp_arena_destroy(arena);
    return status;
}

rp_status rpsweep_point_check(const rpsweep_experiment *e, const rpsweep_point *point,
                              rp_arena *arena, rp_reason *reason)
{
    rpsim_setup setup;
    return e->executed ? check_request(point, arena, reason)
                       : make_setup(point, arena, &setup, reason);
}
