#include "experiments/sweep.h"

#include "common/base/log.h"
#include "common/base/reason.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>

/* A commit costs a flush to the disk. At this interval at most a second's work is lost. The first
 * commits come sooner, each after twice the interval of the commit before, so that a short sweep is
 * not all or nothing.
 */
#define COMMIT_FIRST_S 0.01
#define COMMIT_S 0.5
#define COMMIT_POINTS 5000u
/* The points that a worker is given at a time should last so long that it is not idle between
 * messages, and so short that little has to run again after a crash. */
#define CHUNK_S 0.05
/* Chunks that a worker has: it runs the first, and the second waits. */
#define CHUNKS 2u
#define PROGRESS_S 0.2
#define LISTED_FAILURES 20u

/* A ring of the points that a worker was given and has not answered, in the order in which it runs
 * them. */
typedef struct given {
    uint64_t numbers[CHUNKS * RPSWEEP_CHUNK];
    uint32_t first;
    uint32_t count;
} given;

typedef struct sweep {
    const rpsweep_config *config;
    const rpsweep_experiment *experiment;
    rpsweep_summary *summary;
    rp_store *store;
    int64_t experiment_id;
    rpsweep_crew *crew;
    rp_arena *arena;
    given *given;       /* [worker] */
    uint64_t next;      /* first combination that has not been looked at */
    uint64_t *returned; /* points taken back from workers that have ended */
    uint32_t returned_count;
    bool in_transaction;
    uint32_t uncommitted;
    double began_s;
    double committed_s;
    double commit_after_s;
    double shown_s;
    rp_text message;
} sweep;

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- which points ---------------------------------------------------------------------------- */

/* Builds a combination and its command, which lives in `arena`. It is included if the conditions
 * allow it and it belongs to this shard. */
static rp_status look_at(const sweep *s, uint64_t number, rp_arena *arena, rpsweep_point *point,
                         bool *included_out)
{
    *included_out = false;
    if (number % s->config->shards != s->config->shard) {
        return RP_OK;
    }
    return rpsweep_experiment_point(s->experiment, number, arena, point, included_out);
}

static rp_status is_missing(sweep *s, const rpsweep_point *point, rp_arena *arena,
                            bool *missing_out)
{
    const char *command = NULL;
    rp_store_point_state state = RP_STORE_POINT_UNKNOWN;
    RP_TRY(rpsweep_point_command(s->experiment, point, arena, &command));
    RP_TRY(rp_store_find_point(s->store, s->experiment_id, command, &state));
    bool failed = state == RP_STORE_POINT_FAILED;
    *missing_out = state == RP_STORE_POINT_UNKNOWN || (failed && s->config->retry);
    s->summary->present += *missing_out ? 0 : 1;
    s->summary->present_failed += failed && !*missing_out ? 1 : 0;
    return RP_OK;
}

/* @return the line of the experiment file with the setting that was refused */
static uint32_t line_of(const rpsweep_point *point, const char *subject)
{
    for (uint32_t i = 0; i < point->count; i++) {
        const char *option = point->settings[i].option;
        size_t at = 0;
        while (option[at] != '\0' && (option[at] == '-' ? '_' : option[at]) == subject[at]) {
            at++;
        }
        if (option[at] == '\0' && subject[at] == '\0') {
            return point->settings[i].line;
        }
    }
    return 0;
}

/* Checks a point's options before anything runs. The run itself gives the warnings. */
static rp_status check_point(const sweep *s, const rpsweep_point *point, rp_arena *arena)
{
    rp_reason reason = {0};
    bool before = rp_log_mute_warnings(true);
    rp_status status = rpsweep_point_check(s->experiment, point, arena, &reason);
    rp_log_mute_warnings(before);
    if (status != RP_OK && reason.status == status) {
        rp_log_error_at(s->experiment->file, line_of(point, reason.subject),
                        "point %" PRIu64 ": %s", point->number, reason.text);
    }
    return status;
}

/* Looks at all points once: checks their options and counts them. */
static rp_status count_points(sweep *s)
{
    rp_status status = RP_OK;
    for (uint64_t number = 0; number < s->experiment->combinations && status == RP_OK; number++) {
        rp_arena *arena = NULL;
        rpsweep_point point;
        bool included = false;
        rpsweep_mpi_alive();
        RP_TRY(rp_arena_create(&arena));
        status = look_at(s, number, arena, &point, &included);
        if (status == RP_OK && included) {
            s->summary->points++;
            status = check_point(s, &point, arena);
        }
        rp_arena_destroy(arena);
    }
    return status;
}

/* Finds the next point that has to run. */
static rp_status next_point(sweep *s, uint64_t *number_out, bool *there_out)
{
    *there_out = s->returned_count > 0;
    if (*there_out) {
        *number_out = s->returned[--s->returned_count];
        return RP_OK;
    }
    rp_status status = RP_OK;
    while (s->next < s->experiment->combinations && !*there_out && status == RP_OK) {
        rp_arena *arena = NULL;
        rpsweep_point point;
        bool included = false;
        rpsweep_mpi_alive();
        RP_TRY(rp_arena_create(&arena));
        *number_out = s->next++;
        status = look_at(s, *number_out, arena, &point, &included);
        if (status == RP_OK && included) {
            status = is_missing(s, &point, arena, there_out);
        }
        rp_arena_destroy(arena);
    }
    return status;
}

/* ---- storing --------------------------------------------------------------------------------- */

static rp_status commit(sweep *s)
{
    s->committed_s = now_s();
    s->uncommitted = 0;
    if (!s->in_transaction) {
        return RP_OK;
    }
    s->commit_after_s = 2 * s->commit_after_s < COMMIT_S ? 2 * s->commit_after_s : COMMIT_S;
    s->in_transaction = false;
    return rp_store_end(s->store, RP_OK);
}

/* Lists messages of a point, each on a line. */
static void list_lines(const char *head, const char *lines)
{
    for (size_t length; *lines != '\0'; lines += length + (lines[length] == '\n')) {
        length = strcspn(lines, "\n");
        rp_log_error("%s%.*s", head, (int)length, lines);
    }
}

static void list_failure(sweep *s, const char *command, const char *failure)
{
    if (s->summary->failed <= LISTED_FAILURES) {
        rp_log_error("%s", command);
        list_lines("  failed: ", failure);
    } else if (s->summary->failed == LISTED_FAILURES + 1) {
        rp_log_error("more points have failed; the view failures of %s lists them all",
                     s->config->db);
    }
}

static rp_status store_outcome(sweep *s, const rpsweep_outcome *outcome, rp_arena *arena)
{
    rpsweep_point point;
    bool included = false;
    const char *command = NULL;
    RP_TRY(rpsweep_experiment_point(s->experiment, outcome->number, arena, &point, &included));
    RP_TRY(rpsweep_point_command(s->experiment, &point, arena, &command));
    if (!s->in_transaction) {
        RP_TRY(rp_store_begin(s->store));
        s->in_transaction = true;
    }
    RP_TRY(rp_store_add_point(s->store, s->experiment_id, command, outcome->failure, outcome->runs,
                              outcome->run_count));
    s->uncommitted++;
    s->summary->run += outcome->failure == NULL ? 1 : 0;
    if (outcome->failure != NULL) {
        s->summary->failed++;
        list_failure(s, command, outcome->failure);
    }
    bool due = now_s() - s->committed_s >= s->commit_after_s || s->uncommitted >= COMMIT_POINTS;
    return due ? commit(s) : RP_OK;
}

/* ---- workers --------------------------------------------------------------------------------- */

static uint32_t workers(const sweep *s)
{
    return s->config->crew_type->size(s->crew);
}

/* @return as many points as take CHUNK_S, judged by the points that have run */
static uint32_t chunk_size(const sweep *s)
{
    uint64_t done = s->summary->run + s->summary->failed;
    if (done == 0) {
        return 1;
    }
    double each_s = (now_s() - s->began_s) * workers(s) / (double)done;
    double size = each_s > 0 ? CHUNK_S / each_s : RPSWEEP_CHUNK;
    return size < 1 ? 1 : size > RPSWEEP_CHUNK ? RPSWEEP_CHUNK : (uint32_t)size;
}

/* Gives a worker another chunk if it has less than a chunk left. */
static rp_status feed(sweep *s, uint32_t worker)
{
    uint64_t numbers[RPSWEEP_CHUNK];
    given *g = &s->given[worker];
    uint32_t size = chunk_size(s);
    uint32_t count = 0;
    bool there = true;
    if (g->count >= size) {
        return RP_OK;
    }
    while (count < size && there) {
        RP_TRY(next_point(s, &numbers[count], &there));
        count += there ? 1 : 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        g->numbers[(g->first + g->count++) % (CHUNKS * RPSWEEP_CHUNK)] = numbers[i];
    }
    return count > 0 ? s->config->crew_type->give(s->crew, worker, numbers, count) : RP_OK;
}

static uint64_t take_given(given *g)
{
    uint64_t number = g->numbers[g->first];
    g->first = (g->first + 1) % (CHUNKS * RPSWEEP_CHUNK);
    g->count--;
    return number;
}

/* Deals with a worker that has ended. It ran the first of its points, which has failed; the other
 * points go to other workers. */
static rp_status bury(sweep *s, uint32_t worker, const char *cause, rp_arena *arena)
{
    given *g = &s->given[worker];
    if (g->count == 0) {
        rp_log_error("a worker without work has ended: %s", cause);
        return RP_TOOL;
    }
    rpsweep_outcome outcome = {.number = take_given(g), .failure = cause};
    while (g->count > 0) {
        s->returned[s->returned_count++] = take_given(g);
    }
    return store_outcome(s, &outcome, arena);
}

static rp_status receive(sweep *s, uint32_t worker, const char *cause)
{
    rp_arena *arena = NULL;
    rpsweep_outcome outcome;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = RP_OK;
    if (s->message.length == 0) {
        status = bury(s, worker, cause, arena);
    } else {
        status = rpsweep_outcome_unpack(s->message.bytes, s->message.length, arena, &outcome);
        given *g = &s->given[worker];
        if (status == RP_OK && (g->count == 0 || take_given(g) != outcome.number)) {
            status = RP_BROKEN;
        }
        if (status == RP_BROKEN) {
            rp_log_error("a worker sent what is no outcome of its point");
        }
        status = status == RP_OK ? store_outcome(s, &outcome, arena) : status;
    }
    rp_arena_destroy(arena);
    return status;
}

/* ---- progress -------------------------------------------------------------------------------- */

static void show_progress(sweep *s, bool last)
{
    double now = now_s();
    const rpsweep_summary *sum = s->summary;
    if (!s->config->show_progress || (!last && now - s->shown_s < PROGRESS_S)) {
        return;
    }
    s->shown_s = now;
    uint64_t done = sum->run + sum->failed;
    double rate = (double)done / (now - s->began_s + 1e-9);
    uint64_t rest = sum->points - (sum->present + done);
    double share = sum->points > 0 ? (double)(sum->present + done) / (double)sum->points : 1;
    char bar[31];
    for (size_t i = 0; i < sizeof bar - 1; i++) {
        bar[i] = (double)i < share * (double)(sizeof bar - 1) ? '#' : '.';
    }
    bar[sizeof bar - 1] = '\0';
    fprintf(stderr, "\r%s %" PRIu64 "/%" PRIu64 ", %.0f/s, %.0f s left, %" PRIu64 " failed  %s",
            bar, sum->present + done, sum->points, rate, done > 0 ? (double)rest / rate : 0.0,
            sum->failed, last ? "\n" : "");
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool any_given(const sweep *s)
{
    for (uint32_t i = 0; i < workers(s); i++) {
        if (s->given[i].count > 0) {
            return true;
        }
    }
    return false;
}

static rp_status go(sweep *s)
{
    for (;;) {
        for (uint32_t i = 0; i < workers(s) && !interrupted; i++) {
            RP_TRY(feed(s, i));
        }
        if (interrupted || !any_given(s)) {
            s->summary->stopped = interrupted != 0;
            return RP_OK;
        }
        uint32_t worker = UINT32_MAX;
        const char *cause = NULL;
        RP_TRY(s->config->crew_type->next(s->crew, 100, &worker, &s->message, &cause));
        if (worker != UINT32_MAX) {
            RP_TRY(receive(s, worker, cause));
        } else if (now_s() - s->committed_s >= s->commit_after_s) {
            RP_TRY(commit(s));
        }
        show_progress(s, false);
    }
}

static rp_status open_store(sweep *s)
{
    uint64_t present = 0;
    RP_TRY(rp_store_open(s->config->db, &s->store));
    RP_TRY(rp_store_experiment(s->store, s->experiment->name, s->experiment->question,
                               s->experiment->text, &s->experiment_id, &present));
    if (present > 0 && !s->config->resume) {
        rp_log_error("%s: has %" PRIu64 " points of experiment %s already; valid are --resume, "
                     "which runs what is missing, and another store",
                     s->config->db, present, s->experiment->name);
        return RP_USAGE;
    }
    return RP_OK;
}

static rp_status run_points(sweep *s)
{
    RP_TRY(count_points(s));
    if (s->summary->points == 0) {
        rp_log_error("%s: no point: the conditions leave all %" PRIu64 " combinations out",
                     s->experiment->file, s->experiment->combinations);
        return RP_INPUT;
    }
    RP_TRY(open_store(s));
    RP_TRY(s->config->crew_type->open(&s->config->crew, &s->crew));
    uint32_t count = workers(s);
    size_t most = (size_t)count * CHUNKS * RPSWEEP_CHUNK;
    RP_TRY(rp_arena_alloc(s->arena, count, sizeof *s->given, &s->given));
    RP_TRY(rp_arena_alloc(s->arena, most, sizeof *s->returned, &s->returned));
    s->began_s = s->committed_s = now_s();
    s->commit_after_s = COMMIT_FIRST_S;
    rp_status status = go(s);
    if (s->in_transaction) {
        /* Outcomes that have come are kept, even after a failure. */
        rp_status stored = commit(s);
        status = status == RP_OK ? stored : status;
    }
    show_progress(s, true);
    return status;
}

rp_status rpsweep_run(const rpsweep_config *config, rpsweep_summary *summary_out)
{
    *summary_out = (rpsweep_summary){0};
    sweep s = {.config = config, .experiment = config->experiment, .summary = summary_out};
    double began_s = now_s();
    RP_TRY(rp_arena_create(&s.arena));
    struct sigaction action = {.sa_handler = interrupt};
    struct sigaction before[2];
    interrupted = 0;
    (void)sigaction(SIGINT, &action, &before[0]);
    (void)sigaction(SIGTERM, &action, &before[1]);
    rp_status status = run_points(&s);
    if (status == RP_DATABASE && s.store != NULL) {
        rp_log_error("%s: what was committed stays; when the cause is gone, rpsweep with --resume "
                     "runs the rest",
                     config->db);
    }
    config->crew_type->close(s.crew);
    rp_store_close(s.store);
    rp_text_fini(&s.message);
    rp_arena_destroy(s.arena);
    (void)sigaction(SIGINT, &before[0], NULL);
    (void)sigaction(SIGTERM, &before[1], NULL);
    summary_out->seconds = now_s() - began_s;
    return status;
}
