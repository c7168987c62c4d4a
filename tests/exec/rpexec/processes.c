/* Several processes of rpexec, as children of the test, without MPI. Commands or inputs that differ
 * are refused by name before anything is written. Processes are stopped or killed in training. With
 * RP_LONG, as root: two machines made of network namespaces, with strangers. */
#define _GNU_SOURCE /* setns, unshare */
#include "tests/support/processes.h"
#include "exec/rpexec/options.h"
#include "exec/rpexec/train.h"
#include "exec/run/backend.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAIR 2u
#define MOST_WORDS 48u

TestSuite(exec_together, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 400);

static const char *print(const char *format, ...)
{
    char text[2048];
    const char *copy = NULL;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cr_assert(eq(int, rp_arena_print(rp_test_tool_arena(), &copy, "%s", text), RP_OK));
    return copy;
}

/* ---- a process ------------------------------------------------------------------------------- */

/* Command lines of the processes, with words separated by blanks. */
typedef struct commands {
    const char *of[RP_TEST_PROCESSES];
} commands;

static int split(char *line, char **words)
{
    int count = 0;
    words[count++] = (char[]){"rpexec"};
    for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " ")) {
        words[count++] = word;
    }
    words[count] = NULL;
    return count;
}

/* Trains in the same way as rpexec's main(). */
static int train(const rpexec_launch *launch, void *context)
{
    const commands *c = context;
    char line[2048];
    char *words[MOST_WORDS];
    rpexec_options options;
    rpexec_outcome outcome;
    rp_arena *arena = NULL;
    (void)snprintf(line, sizeof line, "%s", c->of[launch->rank]);
    (void)setenv("OMPI_COMM_WORLD_SIZE", print("%u", launch->count), 1);
    rp_status status = rp_arena_create(&arena);
    status = status == RP_OK
                 ? rpexec_options_parse(split(line, words), words, arena, &options, NULL)
                 : status;
    if (status != RP_OK) {
        rp_test_process_leaves(); /* mpirun would end the other processes */
        return rp_status_exit(status);
    }
    options.command = "rpexec";
    status = rpexec_train_together(&options, launch, arena, &outcome);
    return rp_status_exit(status);
}

#define SMALL "--backend host --gpus 1 --microbatches 1 --seq-len 8 --steps 1"

/* Runs two processes whose command lines share the words `both` and differ in the words after them.
 */
static void run_pair(const char *both, const char *first, const char *second,
                     rp_test_process_end *ends)
{
    commands c = {
        .of = {print("%s %s %s", SMALL, both, first), print("%s %s %s", SMALL, both, second)}};
    rp_test_processes run;
    rp_test_processes_start(PAIR, train, &c, false, &run);
    rp_test_processes_wait(&run, 60, ends);
}

/* A command line that is bad by itself ends its process, and mpirun would end the other process. */
static void expect_refused(const char *both, const char *first, const char *second,
                           const char *name)
{
    rp_test_process_end ends[PAIR];
    run_pair(both, first, second, ends);
    bool compared = rp_test_processes_said(ends, PAIR, "process 0 of 2 has");
    cr_expect(rp_test_processes_said(ends, PAIR, name), "%s | %s: %s%s", first, second,
              ends[0].messages, ends[1].messages);
    for (uint32_t rank = 0; rank < PAIR; rank++) {
        const rp_test_process_end *end = &ends[rank];
        cr_expect(end->status == 2 || (!compared && end->status == 1 && end->messages[0] == '\0'),
                  "%s | %s: process %u: %d, %s", first, second, rank, end->status, end->messages);
    }
    cr_expect(not(rp_test_processes_said(ends, PAIR, "this run ends")), "%s", ends[1].messages);
}

static void expect_accepted(const char *both, const char *first, const char *second)
{
    rp_test_process_end ends[PAIR];
    run_pair(both, first, second, ends);
    cr_expect(ends[0].status == 0 && ends[1].status == 0, "%s | %s: %d %s, %d %s", first, second,
              ends[0].status, ends[0].messages, ends[1].status, ends[1].messages);
}

/* ---- options --------------------------------------------------------------------------------- */

/* Words that an option needs beside it, in both processes. */
static const struct {
    const char *option;
    const char *both;
} needed[] = {{"save-every", "--save @"},
              {"keep", "--save @"},
              {"resume", "--save @"},
              {"eval-every", "--eval-data @F"},
              {"lora-alpha", "--lora-rank 2"},
              {"bytes", "--data @F"},
              {"join-documents", "--data @F"},
              {"predict", "--costs @F"},
              {"peers", "--schedule 1f1b"},
              {"tensor-parallel", "--schedule 1f1b --gpus 2"},
              {"data-parallel", "--schedule 1f1b --gpus 2"},
              {"reduce-each", "--schedule mobius"},
              {"db-ops", "--db @/db"}};

/* Values of the options whose kind does not imply a value. */
static const struct {
    const char *option;
    const char *value;
} valued[] = {{"schedule", "mobius"},   {"backend", "cuda"},          {"betas", "0.8,0.9"},
              {"partition", "1,1"},     {"assume", "llama"},          {"data-parallel", "4"},
              {"model", "@/tiny.yaml"}, {"gantt-out", "@/chart.svg"}, {"tensor-parallel", "2"},
              {"gpu-memory-mb", "100"}};

/* @return a value other than the option's usual value: of its entry above, or made from its row */
static const char *value_of(const rp_option *row, const rpexec_options *usual)
{
    const char *member = (const char *)usual + row->to.offset;
    uint32_t u32 = 0;
    uint64_t u64 = 0;
    double real = 0;
    for (size_t i = 0; i < sizeof valued / sizeof valued[0]; i++) {
        if (strcmp(valued[i].option, row->name) == 0) {
            return valued[i].value;
        }
    }
    switch (row->kind) {
    case RP_OPTION_FLAG:
        return "";
    case RP_OPTION_U32:
        memcpy(&u32, member, sizeof u32);
        return print("%u", u32 + 1);
    case RP_OPTION_U64:
    case RP_OPTION_MIB:
        memcpy(&u64, member, sizeof u64);
        return print("%llu", 1ull + (row->kind == RP_OPTION_MIB ? u64 >> 20 : u64));
    case RP_OPTION_REAL:
        memcpy(&real, member, sizeof real);
        return print("%g", real / 2 + 0.001);
    case RP_OPTION_CHOICE: { /* the last choice, or the choice before it */
        memcpy(&u32, member, row->to.size < sizeof u32 ? 1 : sizeof u32);
        const char *last = strrchr(row->choices, '|');
        uint32_t index = 0;
        for (const char *c = row->choices; c <= last; c++) {
            index += *c == '|' ? 1 : 0;
        }
        return index == u32 ? print("%.*s", (int)strcspn(row->choices, "|"), row->choices)
                            : last + 1;
    }
    case RP_OPTION_TEXT:
        return row->output ? print("@/%s", row->name) : "@F";
    case RP_OPTION_LIST:
    case RP_OPTION_TAKE:
        break;
    }
    cr_assert(false, "--%s: this test has no value of it", row->name);
    return NULL;
}

static const char *write_file(const char *name, const char *bytes, size_t length)
{
    const char *path = print("%s/%s", rp_test_tool_folder(), name);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL);
    cr_assert(eq(sz, fwrite(bytes, 1, length, file), length));
    cr_assert(eq(int, fclose(file), 0));
    return path;
}

/* Writes a copy of the text in which `from` is replaced. */
static const char *write_changed(const char *name, const char *text, const char *from,
                                 const char *to)
{
    const char *at = strstr(text, from);
    cr_assert(at != NULL, "%s is not in %s", from, name);
    const char *changed = print("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return write_file(name, changed, strlen(changed));
}

/* Replaces @F by a file and any other @ by the folder. */
static const char *expand(const char *text)
{
    char out[1024] = "";
    size_t length = 0;
    for (; *text != '\0'; text++) {
        if (*text != '@') {
            out[length++] = *text;
            continue;
        }
        bool file = text[1] == 'F';
        length += (size_t)snprintf(out + length, sizeof out - length, "%s",
                                   file ? RP_SOURCE_ROOT "/LICENSE" : rp_test_tool_folder());
        text += file ? 1 : 0;
    }
    out[length] = '\0';
    return print("%s", out);
}

static rpexec_options usual_options(void)
{
    char line[] = SMALL;
    char *words[MOST_WORDS];
    rpexec_options options;
    cr_assert(eq(int, setenv("OMPI_COMM_WORLD_SIZE", "2", 1), 0));
    cr_assert(eq(
        int, rpexec_options_parse(split(line, words), words, rp_test_tool_arena(), &options, NULL),
        RP_OK));
    return options;
}

/* Every option either must be the same in all processes or is each process's own. Without RP_LONG a
 * sample of the options is tried. */
Test(exec_together, an_option_of_one_process_alone_is_refused_by_name)
{
    const rpexec_options usual = usual_options();
    const char *model = rp_test_tool_read(RP_SOURCE_ROOT "/traces/models/tiny.yaml");
    uint32_t step = getenv("RP_LONG") != NULL ? 1 : 8;
    uint32_t refused = 0;
    uint32_t accepted = 0;
    (void)write_changed("tiny.yaml", model, "rope_theta: ", "rope_theta: 2");
    for (uint32_t i = 0; i < rpexec_setup_keys()->row_count; i += step) {
        const rp_option *row = &rpexec_setup_keys()->rows[i];
        const char *both = "";
        bool only_cuda = strncmp(row->help, "cuda", 4) == 0;
        bool runs = strcmp(row->name, "list") != 0 && strcmp(row->name, "platform-out") != 0 &&
                    strcmp(row->name, "host-rates") != 0;
        if (!runs || (only_cuda && row->own) ||
            (strcmp(row->name, "backend") == 0 && rpexec_backend_find("cuda") == NULL)) {
            continue;
        }
        for (size_t k = 0; k < sizeof needed / sizeof needed[0]; k++) {
            both = strcmp(needed[k].option, row->name) == 0 ? expand(needed[k].both) : both;
        }
        const char *words = print("--%s %s", row->name, expand(value_of(row, &usual)));
        bool own = row->own || row->output;
        for (uint32_t rank = step == 1 ? 0 : i / step % 2; rank < PAIR; rank += step) {
            const char *first = rank == 0 ? words : "";
            const char *second = rank == 0 ? "" : words;
            if (own) {
                expect_accepted(both, first, second);
            } else {
                expect_refused(both, first, second, print("--%s", row->name));
            }
        }
        accepted += own ? 1 : 0;
        refused += own ? 0 : 1;
    }
    cr_expect(refused >= (step == 1 ? 40 : 3) && accepted >= (step == 1 ? 10 : 1),
              "%u refused, %u accepted", refused, accepted);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The contents of files must agree, not their paths. A refused run writes nothing. */
Test(exec_together, other_inputs_are_refused_and_other_places_are_not)
{
    const char *text = print("%.200s", rp_test_tool_read(RP_SOURCE_ROOT "/LICENSE"));
    const char *model = rp_test_tool_read(RP_SOURCE_ROOT "/traces/models/tiny.yaml");
    const char *data = write_file("a.txt", text, strlen(text));
    const char *same = write_file("b.txt", text, strlen(text));
    const char *other = write_file("c.txt", text, strlen(text) - 1);
    const char *turned = write_changed("tiny.yaml", model, "rope_theta: ", "rope_theta: 2");
    const char *save = print("%s/save", rp_test_tool_folder());
    expect_accepted("", print("--data %s --eval-data %s", data, same),
                    print("--data %s --eval-data %s", same, data));
    expect_refused(print("--save %s", save), print("--data %s", data), print("--data %s", other),
                   "--data");
    expect_refused(print("--save %s", save), print("--eval-data %s", other),
                   print("--eval-data %s", data), "--eval-data");
    expect_refused(print("--save %s", save), "", print("--model %s", turned), "--model");
    cr_expect(ne(int, access(save, F_OK), 0), "%s was made", save);
}

/* Weights must agree in every bit, and so must the model's numbers in config.json. */
Test(exec_together, other_weights_are_refused)
{
    const char *folder = rp_test_tool_folder();
    rp_test_process_end ends[PAIR];
    run_pair(print("--save %s/made", folder), "", "", ends);
    cr_assert(eq(int, ends[0].status, 0), "%s", ends[0].messages);
    const char *command =
        print("cd '%s' && for k in same bits numbers; do cp -r made/step-1 $k; done && "
              "f=$(ls bits/model*.safetensors | head -1) && "
              "n=$(wc -c <$f) && "
              "printf '\\001' | dd of=$f bs=1 seek=$((n - 3)) conv=notrunc 2>dd &&"
              " sed 's/\"rope_theta\": [0-9.e]*/\"rope_theta\": 20000.0/' made/step-1/config.json "
              ">numbers/config.json && ! cmp -s numbers/config.json made/step-1/config.json",
              folder);
    cr_assert(eq(int, system(command), 0));
    const char *made = print("--weights %s/made/step-1", folder);
    expect_accepted("", made, print("--weights %s/same", folder));
    expect_refused("", made, print("--weights %s/bits", folder), "--weights");
    expect_refused("", print("--weights %s/numbers", folder), made, "--weights");
}

/* ---- processes that are stopped or killed ---------------------------------------------------- */

/* The network is slow, so that the processes sleep most of the time. */
#define TRAINS "--steps 100000 --watchdog-s 1 --save-every 2 --network-gb-per-s 0.01"

/* Waits until process 0 has saved. */
static void await_checkpoint(const char *save)
{
    const char *step = print("%s/step-2", save);
    double until = rp_test_now_s() + 60;
    while (access(step, F_OK) != 0 && rp_test_now_s() < until) {
        (void)usleep(10000);
    }
    cr_assert(eq(int, access(step, F_OK), 0), "%s", step);
}

/* A single process goes on from the checkpoint that the others have left. */
static void expect_to_go_on(const char *save)
{
    rp_test_processes run;
    rp_test_process_end last;
    commands c = {
        .of = {print("%s %s --microbatches 2 --steps 1 --save %s --resume", SMALL, "", save)}};
    rp_test_processes_start(1, train, &c, false, &run);
    rp_test_processes_wait(&run, 60, &last);
    cr_expect(eq(int, last.status, 0), "%s", last.messages);
}

static const struct {
    const char *words;
    uint32_t victim;
    int signal;
    const char *message;
} attacks[] = {
    {"", 1, SIGSTOP, "process 1 of 2 has been silent for 2 s and has not come to the end of step "},
    {"--optimizer async", 0, SIGSTOP,
     "process 0 of 2 has been silent for 2 s and has not come to the end of step "},
    {"", 1, SIGKILL, "process 1 of 2 is gone: this run ends"},
    {"--schedule 1f1b", 0, SIGKILL, "process 0 of 2 is gone: this run ends"},
};
#define ATTACKS (sizeof attacks / sizeof attacks[0])

/* The other process names the victim, and reports no failure of an op of its own. */
Test(exec_together, a_process_that_is_stopped_or_killed_is_named)
{
    rp_test_processes runs[ATTACKS];
    rp_test_process_end ends[PAIR];
    commands lines[ATTACKS];
    double struck_s[ATTACKS];
    size_t step = getenv("RP_LONG") != NULL ? 1 : 3; /* without RP_LONG the first attack and the
                                                      * last */
    for (size_t i = 0; i < ATTACKS; i += step) {
        const char *line = print("%s %s %s --save %s/%zu", SMALL, TRAINS, attacks[i].words,
                                 rp_test_tool_folder(), i);
        lines[i] = (commands){.of = {line, line}};
        rp_test_processes_start(PAIR, train, &lines[i], false, &runs[i]);
    }
    for (size_t i = 0; i < ATTACKS; i += step) {
        await_checkpoint(print("%s/%zu", rp_test_tool_folder(), i));
        struck_s[i] = rp_test_now_s() - runs[i].began_s;
        (void)kill(runs[i].children[attacks[i].victim], attacks[i].signal);
    }
    for (size_t i = 0; i < ATTACKS; i += step) {
        rp_test_processes_wait(&runs[i], 100, ends);
        const rp_test_process_end *other = &ends[1 - attacks[i].victim];
        cr_expect(eq(int, other->status, 1), "attack %zu: %s", i, other->messages);
        cr_expect(strstr(other->messages, attacks[i].message) != NULL, "attack %zu: %s", i,
                  other->messages);
        cr_expect(other->seconds - struck_s[i] < 20, "attack %zu: %g s", i,
                  other->seconds - struck_s[i]);
        cr_expect(strstr(other->messages, "failed (") == NULL &&
                      strstr(other->messages, "who waits for whom") == NULL,
                  "attack %zu: %s", i, other->messages);
        expect_to_go_on(print("%s/%zu", rp_test_tool_folder(), i));
    }
}

/* The copies of process 1 take 2.4 s, each of them less than the watchdog's second, and process 0
 * waits. */
Test(exec_together, a_process_that_is_slow_is_waited_for)
{
    expect_accepted("--accumulate 3 --watchdog-s 1", "", "--link-gb-per-s 0.0033");
}

/* ---- two machines ---------------------------------------------------------------------------- */

#define MACHINES 2u

typedef struct machines {
    pid_t holder[MACHINES]; /* processes that hold the machines' network namespaces */
    commands commands;
} machines;

static int command(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return system(text);
}

/* @return a process with a network namespace that lasts as long as it lives, or -1 */
static pid_t hold_network(void)
{
    int ready[2];
    char byte = 0;
    cr_assert(eq(int, pipe(ready), 0));
    pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        byte = unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
        _exit(write(ready[1], &byte, 1) == 1 && pause() == 0 ? 0 : 1);
    }
    cr_assert(read(ready[0], &byte, 1) == 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return byte == 'y' ? child : -1;
}

/* Makes two machines with a cable, in a namespace of this test. @return false if not allowed */
static bool build_machines(machines *m)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < MACHINES; i++) {
        m->holder[i] = hold_network();
        if (m->holder[i] < 0) {
            return false;
        }
    }
    if (command("ip link add port0 type veth peer name port1") != 0) {
        return false; /* there is no ip or no veth */
    }
    for (uint32_t i = 0; i < MACHINES; i++) {
        int pid = (int)m->holder[i];
        cr_assert(eq(int, command("ip link set port%u netns %d", i, pid), 0));
        cr_assert(
            eq(int, command("nsenter -t %d -n ip addr add 10.99.0.%u/24 dev port%u", pid, i + 1, i),
               0));
        cr_assert(eq(int, command("nsenter -t %d -n ip link set port%u up", pid, i), 0));
        cr_assert(eq(int, command("nsenter -t %d -n ip link set lo up", pid), 0));
    }
    return true;
}

static bool enter(pid_t holder)
{
    int network = open(print("/proc/%d/ns/net", (int)holder), O_RDONLY);
    return network >= 0 && setns(network, CLONE_NEWNET) == 0 && close(network) == 0;
}

/* Runs processes 0 and 1 on the first machine, 2 and 3 on the second machine. */
static int train_there(const rpexec_launch *launch, void *context)
{
    machines *m = context;
    return enter(m->holder[launch->rank / 2]) ? train(launch, &m->commands) : 98;
}

/* Connects from the second machine to a process of the first: some strangers stay idle, then others
 * come in turn. */
static pid_t send_strangers(const machines *m, uint16_t port)
{
    pid_t child = fork();
    cr_assert(child >= 0);
    if (child != 0) {
        return child;
    }
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = inet_addr("10.99.0.1")};
    if (!enter(m->holder[1])) {
        _exit(1);
    }
    for (uint32_t i = 0; i < 400; i++) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (s < 0 || connect(s, (const struct sockaddr *)&at, sizeof at) != 0) {
            break; /* no process listens any more */
        }
        (void)send(s, "half a greeting", i % 3 == 0 ? 15 : 0, MSG_NOSIGNAL);
        if (i >= 200) {
            (void)usleep(5000);
            (void)close(s);
        }
    }
    _exit(0);
}

#define CUT 1000 /* cuts the cable in place of a signal */

static void strike(const machines *m, pid_t victim, int signal)
{
    if (signal == CUT) {
        cr_assert(
            eq(int, command("nsenter -t %d -n ip link set port0 down", (int)m->holder[0]), 0));
    } else {
        (void)kill(victim, signal);
    }
}

static void run_on_machines(const machines *m, const char *words, uint32_t victim, int signal,
                            rp_test_process_end *ends)
{
    static uint32_t runs;
    const char *save = print("%s/machines.%u", rp_test_tool_folder(), runs++);
    machines own = *m;
    rp_test_processes run;
    uint32_t ip = 0;
    for (uint32_t i = 0; i < RP_TEST_PROCESSES; i++) {
        own.commands.of[i] = print("%s %s --save %s", SMALL, words, save);
    }
    rp_test_processes_start(RP_TEST_PROCESSES, train_there, &own, true, &run);
    rp_test_processes_await(&run);
    pid_t strangers = send_strangers(m, rp_test_process_port(&run, 0, &ip));
    (void)usleep(200000);
    cr_expect(eq(u32, ip, htonl(INADDR_ANY)), "the other machine would not reach it");
    rp_test_processes_release(&run);
    if (signal != 0) {
        await_checkpoint(save);
        strike(m, run.children[victim], signal);
    }
    rp_test_processes_wait(&run, rp_test_now_s() - run.began_s + 60, ends);
    (void)kill(strangers, SIGKILL);
    (void)waitpid(strangers, NULL, 0);
    if (signal != 0) {
        expect_to_go_on(save);
    }
}

Test(exec_together, two_machines_with_strangers)
{
    rp_test_process_end ends[RP_TEST_PROCESSES];
    machines m = {.holder = {-1, -1}};
    if (getenv("RP_LONG") == NULL || !build_machines(&m)) {
        cr_skip_test("RP_LONG is not set, or network namespaces are not allowed");
    }
    run_on_machines(&m, "--steps 3", 0, 0, ends);
    for (uint32_t i = 0; i < RP_TEST_PROCESSES; i++) {
        cr_expect(eq(int, ends[i].status, 0), "%s", ends[i].messages);
    }
    for (uint32_t victim = 0; victim < RP_TEST_PROCESSES; victim += 3) {
        for (uint32_t kills = 0; kills < 2; kills++) {
            const char *message =
                print(kills ? "process %u of 4 is gone"
                            : "process %u of 4 has been silent for 2 s and has not come to",
                      victim);
            run_on_machines(&m, TRAINS, victim, kills ? SIGKILL : SIGSTOP, ends);
            cr_expect(rp_test_processes_said(ends, RP_TEST_PROCESSES, message), "%s", message);
            for (uint32_t i = 0; i < RP_TEST_PROCESSES; i++) {
                cr_expect(i == victim || ends[i].status == 1, "%s: process %u: %d, %s", message, i,
                          ends[i].status, ends[i].messages);
            }
        }
    }
    run_on_machines(&m, TRAINS " --watchdog-s 60", 0, CUT, ends);
    for (uint32_t i = 0; i < RP_TEST_PROCESSES; i++) {
        cr_expect(ends[i].status == 1, "without a cable: process %u: %d, %s", i, ends[i].status,
                  ends[i].messages);
    }
    cr_expect(rp_test_processes_said(ends, 2, " of 4 is gone") &&
                  rp_test_processes_said(ends + 2, 2, " of 4 is gone"),
              "without a cable: %s%s", ends[0].messages, ends[2].messages);
    for (uint32_t i = 0; i < MACHINES; i++) {
        (void)kill(m.holder[i], SIGKILL);
        (void)waitpid(m.holder[i], NULL, 0);
    }
}
