/* Workers are processes made by fork: a crash costs one point, not the sweep. */
#define _GNU_SOURCE /* prctl */
#include "common/base/log.h"
#include "experiments/crew.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_WORKERS 1024u

typedef struct worker {
    pid_t process; /* 0: no process */
    int to;        /* write end of the pipe for points */
    int from;      /* read end of the pipe for outcomes */
    rp_text bytes; /* the part of a message that has come so far */
} worker;

struct rpsweep_crew {
    rpsweep_crew_config config;
    rp_arena *arena;
    worker *workers;
    struct pollfd *polls;
    uint32_t turn; /* the worker to look at first, so that none is starved */
    char cause[128];
};

/* ---- a worker -------------------------------------------------------------------------------- */

/* @return false if the other side has gone */
static bool read_all(int from, void *to, size_t size)
{
    for (size_t got = 0; got < size;) {
        ssize_t now = read(from, (char *)to + got, size - got);
        if (now <= 0 && !(now < 0 && errno == EINTR)) {
            return false;
        }
        got += now > 0 ? (size_t)now : 0;
    }
    return true;
}

static bool write_all(int to, const void *from, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t now = write(to, (const char *)from + sent, size - sent);
        if (now < 0 && errno != EINTR) {
            return false;
        }
        sent += now > 0 ? (size_t)now : 0;
    }
    return true;
}

/* Sends a message: its length, then an outcome. */
static bool send_outcome(const rpsweep_crew_config *config, struct rpsim_session *session,
                         uint64_t number, int to, rp_text *text)
{
    uint64_t length = 0;
    text->length = 0;
    if (rp_text_append(text, (const char *)&length, sizeof length) != RP_OK ||
        rpsweep_point_run(config->experiment, config->rpexec, session, number, text) != RP_OK) {
        return false;
    }
    length = text->length - sizeof length;
    memcpy(text->bytes, &length, sizeof length);
    return write_all(to, text->bytes, text->length);
}

static void serve(const rpsweep_crew_config *config, int from, int to)
{
    uint64_t numbers[RPSWEEP_CHUNK];
    uint32_t count = 0;
    rp_text text = {0};
    struct rpsim_session *session = NULL;
    bool goes_on = rpsweep_session_begin(&session) == RP_OK;
    while (goes_on && read_all(from, &count, sizeof count) &&
           read_all(from, numbers, count * sizeof *numbers)) {
        for (uint32_t i = 0; i < count && goes_on; i++) {
            goes_on = send_outcome(config, session, numbers[i], to, &text);
        }
    }
    rpsweep_session_end(session);
    rp_text_fini(&text);
}

/* ---- the sweep's side ------------------------------------------------------------------------ */

static void close_ends(worker *w)
{
    if (w->process != 0) {
        (void)close(w->to);
        (void)close(w->from);
    }
}

/* Runs in the new process. It closes all pipes except its own, so that it notices when the sweep
 * has gone. */
static void become_worker(rpsweep_crew *crew, int from, int to)
{
    for (uint32_t i = 0; i < crew->config.jobs; i++) {
        close_ends(&crew->workers[i]);
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGINT, SIG_IGN); /* the sweep decides about a signal from the terminal */
    (void)signal(SIGTERM, SIG_DFL);
    serve(&crew->config, from, to);
    _exit(0); /* flushes and closes nothing that belongs to the sweep */
}

static rp_status start(rpsweep_crew *crew, worker *w)
{
    int points[2];
    int outcomes[2];
    if (pipe(points) != 0) {
        rp_log_error("pipe: %s", strerror(errno));
        return RP_TOOL;
    }
    if (pipe(outcomes) != 0) {
        rp_log_error("pipe: %s", strerror(errno));
        (void)close(points[0]);
        (void)close(points[1]);
        return RP_TOOL;
    }
    pid_t process = fork();
    if (process == 0) {
        (void)close(points[1]);
        (void)close(outcomes[0]);
        become_worker(crew, points[0], outcomes[1]);
    }
    (void)close(points[0]);
    (void)close(outcomes[1]);
    if (process < 0) {
        rp_log_error("fork: %s", strerror(errno));
        (void)close(points[1]);
        (void)close(outcomes[0]);
        return RP_TOOL;
    }
    w->process = process;
    w->to = points[1];
    w->from = outcomes[0];
    w->bytes.length = 0;
    return RP_OK;
}

static void close_crew(rpsweep_crew *crew)
{
    if (crew == NULL) {
        return;
    }
    rp_arena *arena = crew->arena;
    for (uint32_t i = 0; i < crew->config.jobs; i++) {
        worker *w = &crew->workers[i];
        close_ends(w);
        if (w->process != 0) {
            (void)kill(w->process, SIGKILL);
            (void)waitpid(w->process, NULL, 0);
        }
        rp_text_fini(&w->bytes);
    }
    rp_arena_destroy(arena);
}

static rp_status open_crew(const rpsweep_crew_config *config, rpsweep_crew **crew_out)
{
    rp_arena *arena = NULL;
    rpsweep_crew *crew = NULL;
    *crew_out = NULL;
    if (config->jobs < 1 || config->jobs > MOST_WORKERS) {
        rp_log_error("--jobs: %u is not valid; valid are 1 to %u", config->jobs, MOST_WORKERS);
        return RP_USAGE;
    }
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, 1, sizeof *crew, &crew);
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    *crew = (rpsweep_crew){.config = *config, .arena = arena};
    crew->config.jobs = 0; /* the number of workers set up so far */
    status = rp_arena_alloc(arena, config->jobs, sizeof *crew->workers, &crew->workers);
    if (status == RP_OK) {
        status = rp_arena_alloc(arena, config->jobs, sizeof *crew->polls, &crew->polls);
    }
    (void)signal(SIGPIPE, SIG_IGN); /* a worker that has ended is noticed by its pipe */
    for (uint32_t i = 0; i < config->jobs && status == RP_OK; i++) {
        crew->config.jobs = i + 1;
        status = start(crew, &crew->workers[i]);
    }
    if (status != RP_OK) {
        close_crew(crew);
        return status;
    }
    *crew_out = crew;
    return RP_OK;
}

static uint32_t crew_size(const rpsweep_crew *crew)
{
    return crew->config.jobs;
}

/* If the worker has ended, `next` reports it; the points that it was given are not lost. */
static rp_status give(rpsweep_crew *crew, uint32_t number, const uint64_t *numbers, uint32_t count)
{
    const worker *w = &crew->workers[number];
    if (write_all(w->to, &count, sizeof count)) {
        (void)write_all(w->to, numbers, count * sizeof *numbers);
    }
    return RP_OK;
}

/* Takes a whole message out of the bytes that have come, if they begin with one. */
static rp_status take_message(worker *w, rp_text *message, bool *there_out)
{
    uint64_t length = 0;
    *there_out = false;
    if (w->bytes.length < sizeof length) {
        return RP_OK;
    }
    memcpy(&length, w->bytes.bytes, sizeof length);
    if (w->bytes.length - sizeof length < length) {
        return RP_OK;
    }
    *there_out = true;
    message->length = 0;
    RP_TRY(rp_text_append(message, w->bytes.bytes + sizeof length, length));
    size_t taken = sizeof length + length;
    w->bytes.length -= taken;
    memmove(w->bytes.bytes, w->bytes.bytes + taken, w->bytes.length);
    return RP_OK;
}

/* Says how a worker has ended, and starts another worker in its place. */
static rp_status replace(rpsweep_crew *crew, worker *w, const char **cause_out)
{
    int state = 0;
    close_ends(w);
    while (waitpid(w->process, &state, 0) < 0 && errno == EINTR) {
    }
    w->process = 0;
    if (WIFSIGNALED(state)) {
        (void)snprintf(crew->cause, sizeof crew->cause,
                       "the process that ran it ended by signal %d (%s)", WTERMSIG(state),
                       strsignal(WTERMSIG(state)));
    } else {
        (void)snprintf(crew->cause, sizeof crew->cause,
                       "the process that ran it ended with status %d", WEXITSTATUS(state));
    }
    *cause_out = crew->cause;
    return start(crew, w);
}

static rp_status receive(rpsweep_crew *crew, worker *w, rp_text *message, bool *there_out,
                         const char **cause_out)
{
    char bytes[65536];
    ssize_t got = read(w->from, bytes, sizeof bytes);
    if (got > 0) {
        RP_TRY(rp_text_append(&w->bytes, bytes, (size_t)got));
        return take_message(w, message, there_out);
    }
    if (got < 0 && errno == EINTR) {
        *there_out = false;
        return RP_OK;
    }
    *there_out = true;
    message->length = 0;
    return replace(crew, w, cause_out);
}

static rp_status next(rpsweep_crew *crew, int wait_ms, uint32_t *worker_out, rp_text *message,
                      const char **cause_out)
{
    uint32_t jobs = crew->config.jobs;
    bool there = false;
    *worker_out = UINT32_MAX;
    *cause_out = NULL;
    for (uint32_t i = 0; i < jobs && !there; i++) {
        uint32_t k = (crew->turn + i) % jobs;
        crew->polls[k] = (struct pollfd){.fd = crew->workers[k].from, .events = POLLIN};
        RP_TRY(take_message(&crew->workers[k], message, &there));
        *worker_out = there ? k : UINT32_MAX;
    }
    if (!there && poll(crew->polls, jobs, wait_ms) > 0) {
        for (uint32_t i = 0; i < jobs && !there; i++) {
            uint32_t k = (crew->turn + i) % jobs;
            if (crew->polls[k].revents != 0) {
                RP_TRY(receive(crew, &crew->workers[k], message, &there, cause_out));
                *worker_out = there ? k : UINT32_MAX;
            }
        }
    }
    crew->turn = there ? (*worker_out + 1) % jobs : crew->turn;
    return RP_OK;
}

const rpsweep_crew_type rpsweep_crew_processes = {
    .open = open_crew, .size = crew_size, .give = give, .next = next, .close = close_crew};
