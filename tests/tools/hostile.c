/* Hostile input for the real programs: damaged files, and command lines that nobody would write.
 * With any of them a program must end by itself within 20 s with status 0, 1 or 2, print the reason
 * in lines without control characters, and leave no files of a run that it has refused.
 *
 *     hostile files|commands WORK SEED FIRST COUNT
 *
 * WORK/bin has the programs and WORK/in their input files (tests/checks/test_hostile.py makes
 * both). They run in WORK/out. Inputs FIRST .. FIRST + COUNT - 1 of a seed are the same in every
 * run. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
#define MOST_BYTES (8u << 20)
#define MOST_WORDS 64
/* A slow reader is stopped by its processor time, which other load does not lengthen; a reader that
 * waits is stopped by the clock. */
#define LIMIT_S 20
#define MOST_WAIT_S 200
#define SANITIZER_STATUS 99 /* a status that no program has */

static const char *work;
static uint64_t random_state;
static int failures;
static uint32_t ended[3]; /* number of programs that ended with status 0, 1, 2 */
static double slowest_s;

static void require(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static uint32_t draw(uint32_t below) /* splitmix64 */
{
    random_state += 0x9E3779B97F4A7C15u;
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) % below);
}

/* ---- running a program ----------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    return place->level > 0 ? remove(path) : 0;
}

static void empty_folder(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void become(char **words, const char *messages)
{
    const struct rlimit no_core = {0, 0};
    const struct rlimit processor = {LIMIT_S, LIMIT_S + 1};
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)setrlimit(RLIMIT_CPU, &processor);
    int nothing = open("/dev/null", O_RDWR);
    int errors = open(messages, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (chdir(words[1]) == 0 && dup2(nothing, 0) == 0 && dup2(nothing, 1) == 1 &&
        dup2(errors, 2) == 2) {
        words[1] = words[0];
        execv(words[0], words + 1);
    }
    _exit(127);
}

/* @param words the program, the folder to run it in, its arguments, NULL
 * @return the status, 128 + signal after one, -1 if it took too long */
static int run(char **words, const char *messages)
{
    double begin_s = now_s();
    pid_t child = fork();
    if (child == 0) {
        become(words, messages);
    }
    require(child > 0, "fork");
    int state = 0;
    for (double pause_s = 0.0005; waitpid(child, &state, WNOHANG) == 0; pause_s *= 1.2) {
        if (now_s() - begin_s > MOST_WAIT_S) {
            (void)kill(child, SIGKILL);
            (void)waitpid(child, &state, 0);
            return -1;
        }
        pause_s = pause_s < 0.02 ? pause_s : 0.02;
        const struct timespec pause = {0, (long)(pause_s * 1e9)};
        (void)nanosleep(&pause, NULL);
    }
    slowest_s = now_s() - begin_s > slowest_s ? now_s() - begin_s : slowest_s;
    if (WIFSIGNALED(state) && WTERMSIG(state) == SIGXCPU) {
        return -1;
    }
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

/* ---- requirements ---------------------------------------------------------------------------- */

static char *read_file(const char *path, size_t *length_out)
{
    FILE *stream = fopen(path, "rb");
    require(stream != NULL, path);
    char *bytes = malloc(MOST_BYTES + 1);
    require(bytes != NULL, path);
    *length_out = fread(bytes, 1, MOST_BYTES, stream);
    bytes[*length_out] = '\0';
    fclose(stream);
    return bytes;
}

static void write_file(const char *path, const char *bytes, size_t length)
{
    FILE *stream = fopen(path, "wb");
    require(stream != NULL && fwrite(bytes, 1, length, stream) == length && fclose(stream) == 0,
            path);
}

/* True if a text has bytes of C0 except for the newline, DEL, C1, or bytes that no UTF-8 has. */
static bool has_controls(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        bool second_of_c1 = i > 0 && (unsigned char)text[i - 1] == 0xC2 && byte < 0xA0;
        if ((byte < 0x20 && byte != '\n') || byte == 0x7F || byte > 0xF4 || byte == 0xC0 ||
            byte == 0xC1 || second_of_c1) {
            return true;
        }
    }
    return false;
}

static void show_word(const char *word)
{
    fputs(" '", stderr);
    for (size_t i = 0; word[i] != '\0' && i < 300; i++) {
        bool plain = word[i] >= ' ' && word[i] <= '~';
        fprintf(stderr, plain ? "%c" : "\\x%02x", (unsigned char)word[i]);
    }
    fputs("'", stderr);
}

/* Runs a program on a single input and prints the requirement that it breaks. */
static void try_words(char **words, uint32_t number)
{
    char out[PATH_MAX + 8];
    char messages[PATH_MAX + 16];
    char *shown[MOST_WORDS];
    size_t count = 0;
    (void)snprintf(out, sizeof out, "%s/out", work);
    (void)snprintf(messages, sizeof messages, "%s/messages", work);
    for (; words[count] != NULL; count++) {
        shown[count] = words[count];
    }
    words[1] = out;
    int status = run(words, messages);
    size_t length = 0;
    char *said = read_file(messages, &length);
    const char *what = NULL;
    if (status == -1) {
        what = "took more than 20 s of the processor, or 200 s";
    } else if (status == SANITIZER_STATUS || strstr(said, "runtime error:") != NULL) {
        what = "a sanitizer stopped it";
    } else if (status < 0 || status > 2) {
        what = "ended with a signal or another status";
    } else if (has_controls(said, length)) {
        what = "has a control character in a message";
    } else if (status != 0 && length == 0) {
        what = "failed without a word";
    } else if (strstr(said, "(null)") != NULL) {
        what = "prints a text that is not there";
    } else if (status == 2 && rmdir(out) != 0) {
        what = "left something of a refused run";
    }
    if (status >= 0 && status <= 2) {
        ended[status]++;
    }
    if (what != NULL) {
        failures++;
        fprintf(stderr, "input %u: %s (status %d):", number, what, status);
        for (size_t i = 0; i < count; i++) {
            if (i != 1) {
                show_word(shown[i]);
            }
        }
        fprintf(stderr, "\n%.3000s\n", said);
    }
    free(said);
    empty_folder(out);
    (void)mkdir(out, 0777);
}

/* ---- damaging files -------------------------------------------------------------------------- */

typedef struct text {
    char *bytes;
    size_t length;
} text;

static void replace_piece(text *t, size_t at, size_t gone, const char *bytes, size_t length)
{
    if (t->length - gone + length > MOST_BYTES) {
        return;
    }
    char *copy = malloc(length + 1); /* `bytes` may lie in the text */
    require(copy != NULL, "memory");
    memcpy(copy, bytes, length);
    memmove(t->bytes + at + length, t->bytes + at + gone, t->length - at - gone);
    memcpy(t->bytes + at, copy, length);
    t->length += length - gone;
    free(copy);
}

/* Finds a piece: a line, a number or word, or any range. */
static void find_piece(const text *t, size_t *begin_out, size_t *length_out)
{
    static const char *const ends[] = {"\n", " ,:;[]{}\"'\n\t", "\n"};
    size_t begin = draw((uint32_t)t->length + 1);
    size_t end = begin;
    uint32_t kind = draw(3);
    if (kind == 2) {
        end = begin + draw(40);
        end = end < t->length ? end : t->length;
    } else {
        while (begin > 0 && strchr(ends[kind], t->bytes[begin - 1]) == NULL) {
            begin--;
        }
        while (end < t->length && strchr(ends[kind], t->bytes[end]) == NULL) {
            end++;
        }
        end += kind == 0 && end < t->length ? 1 : 0;
    }
    *begin_out = begin;
    *length_out = end - begin;
}

static void insert_many(text *t, size_t at)
{
    static const char *const units[] = {"[", "{\"a\":", "x", "9", "\n", " ", "- "};
    const char *unit = units[draw(COUNT_OF(units))];
    for (uint32_t i = 0, count = 1000 + draw(20000); i < count; i++) {
        replace_piece(t, at, 0, unit, strlen(unit));
    }
}

static void damage(text *t)
{
    /* clang-format off */
    static const char *const values[] = {
        "-1", "0", "1", "2", "1.5", "-0.0", "1e400", "-1e308", "1e-320", "nan", "inf", "null",
        "18446744073709551616", "9223372036854775807", "4294967296", "65537", "2147483648", "0x10",
        "1e18", "true", "\"\"", "[]", "{}", "../../etc/passwd", "/dev/zero"};
    /* clang-format on */
    static const char *const bytes[] = {"\n",           "\r\n",         "\t",   "\x1b[31m",
                                        "\x7f",         "\x01",         "\xff", "\xc2\x9b",
                                        "\xe2\x80\xae", "\xef\xbb\xbf", "\"",   "#"};
    size_t begin;
    size_t length;
    size_t other;
    size_t other_length;
    find_piece(t, &begin, &length);
    find_piece(t, &other, &other_length);
    uint32_t kind = draw(32);
    if (kind < 9) {
        const char *value = values[draw(COUNT_OF(values))];
        replace_piece(t, begin, length, value, strlen(value));
    } else if (kind < 14) {
        const char *value = bytes[draw(COUNT_OF(bytes))];
        replace_piece(t, begin + draw((uint32_t)length + 1), 0, value, strlen(value));
    } else if (kind < 18) {
        replace_piece(t, begin, length, "", 0);
    } else if (kind < 22) { /* also makes keys occur twice */
        replace_piece(t, begin, 0, t->bytes + begin, length);
    } else if (kind < 26) {
        replace_piece(t, begin, length, t->bytes + other, other_length);
    } else if (kind < 29 && t->length > 0) {
        t->bytes[draw((uint32_t)t->length)] = (char)draw(256);
    } else if (kind == 29) {
        t->length = begin;
    } else if (kind == 30) {
        replace_piece(t, begin, 0, "", 1 < t->length - begin ? 1 : 0);
        replace_piece(t, begin, 0, "\0", 1);
    } else {
        insert_many(t, begin);
    }
}

/* ---- the readers ------------------------------------------------------------------------------
 * A copy of a file below in/ is damaged: it is @ in the command line; %NAME is the intact in/NAME.
 * If the reader takes a `folder`, @ is a folder with links to all of its files except for the
 * damaged file. */

typedef struct reader {
    const char *file;
    const char *folder;
    const char *command;
} reader;

#define STAGE "rpsim --fidelity stage --gpus 2 --microbatches 4 "
#define HARDWARE "rpsim --gpus 2 --microbatches 4 "
#define EXECUTED "rpexec --gpus 2 --microbatches 2 --steps 2 --seq-len 4 "

static const reader readers[] = {
#include "tests/tools/hostile_readers.inc"
};

static char *print_path(const char *format, const char *a, const char *b)
{
    char *path = NULL;
    require(asprintf(&path, format, work, a, b) > 0, "memory"); /* freed with the program */
    return path;
}

static const char *linked_folder; /* the folder below in/ to which link_entry links */
static const char *left_out;

static int link_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)place;
    char to[PATH_MAX * 2];
    const char *below = path + strlen(work) + strlen("/in/") + strlen(linked_folder);
    (void)snprintf(to, sizeof to, "%s/damaged/all%s", work, below);
    if (type == FTW_D) {
        return mkdir(to, 0777);
    }
    return strcmp(path, left_out) == 0 ? 0 : symlink(path, to);
}

/* @return the path for which @ stands */
static char *put_damaged(const reader *r, const text *t)
{
    char *damaged = print_path("%s/damaged", "", "");
    char *from = print_path("%s/in/%s", r->file, "");
    empty_folder(damaged);
    const char *base = strrchr(r->file, '/');
    char *path = print_path("%s/damaged/%s", base != NULL ? base + 1 : r->file, "");
    if (r->folder != NULL) {
        char *folder = print_path("%s/in/%s", r->folder, "");
        linked_folder = r->folder;
        left_out = from;
        require(nftw(folder, link_entry, 16, FTW_PHYS) == 0, folder);
        path = print_path("%s/damaged/all%s", r->file + strlen(r->folder), "");
    }
    write_file(path, t->bytes, t->length);
    return r->folder != NULL ? print_path("%s/damaged/all", "", "") : path;
}

/* Splits a command line into the words after the program's path and the folder. */
static void split_command(const char *command, const char *damaged, char **words)
{
    size_t count = 0;
    char *copy = strdup(command);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        if (count == 0) {
            words[count++] = print_path("%s/bin/%s", word, "");
            words[count++] = (char *)"";
        } else if (word[0] == '@') {
            require(asprintf(&words[count++], "%s%s", damaged, word + 1) > 0, "memory");
        } else {
            words[count++] = word[0] == '%' ? print_path("%s/in/%s", word + 1, "") : strdup(word);
        }
    }
    words[count] = NULL;
    free(copy);
}

static void try_file(uint32_t number)
{
    const reader *r = &readers[number % COUNT_OF(readers)];
    char *words[MOST_WORDS];
    text t = {0};
    t.bytes = read_file(print_path("%s/in/%s", r->file, ""), &t.length);
    for (uint32_t i = 0, times = 1 + draw(3); i < times; i++) {
        damage(&t);
    }
    char *damaged = put_damaged(r, &t);
    bool tables = r->folder != NULL && strcmp(r->folder, "traces") == 0;
    setenv("RP_TRACES", tables ? damaged : print_path("%s/in/traces", "", ""), 1);
    split_command(r->command, damaged, words);
    int before = failures;
    try_words(words, number);
    if (failures > before) {
        char name[64];
        (void)snprintf(name, sizeof name, "failed-%u", number);
        write_file(print_path("%s/%s", name, ""), t.bytes, t.length);
        fprintf(stderr, "the file is %s/%s\n", work, name);
    }
    free(t.bytes);
}

/* ---- command lines ----------------------------------------------------------------------------
 * Options and the names of their values come from each program's --help: "  --gpus N    GPUs". The
 * options with a letter, -h and -V, end the program at once and are left out. */

typedef struct program {
    const char *path;
    const char *small; /* options that keep a run small, each used unless it has been drawn */
    uint32_t count;
    char *options[MOST_WORDS];
    char *values[MOST_WORDS]; /* as in the help; NULL: none */
} program;

static program programs[] = {
    {.path = "rpsim", .small = "--schedule gpipe --gpus 2 --microbatches 4 --tune-budget 20"},
    {.path = "rpexec", .small = "--gpus 2 --microbatches 2 --steps 1 --seq-len 4 --model tiny"},
    {.path = "rpplan", .small = "--model tiny --gpus 2"},
    {.path = "rpadvise", .small = "--model tiny --gpus 2 --schedule gpipe --budget 20"},
    {.path = "rpdiff", .small = ""},
    {.path = "rpimport", .small = "--microbatch-size 1 --seq-len 8"},
    {.path = "rppredict", .small = ""},
    {.path = "rpsweep", .small = ""},
};

static void read_options(program *p)
{
    char command[PATH_MAX + 16];
    char line[1024];
    (void)snprintf(command, sizeof command, "%s/bin/%s --help", work, p->path);
    FILE *help = popen(command, "r");
    require(help != NULL, command);
    while (fgets(line, sizeof line, help) != NULL) {
        char *name = line + 2;
        if (strncmp(line, "  --", 4) == 0 && p->count < MOST_WORDS) {
            char *help_text = strstr(name, "  ");
            *(help_text != NULL ? help_text : name + strcspn(name, "\n")) = '\0';
            char *value = strchr(name, ' ');
            p->values[p->count] = value != NULL ? strdup(value + 1) : NULL;
            name[strcspn(name, " ")] = '\0';
            p->options[p->count++] = strdup(name);
        }
    }
    require(pclose(help) == 0 && p->count >= 2, command);
}

static const char *draw_absurd(void)
{
    static char longest[100001];
    /* clang-format off */
    static const char *const values[] = {
        "", "-", "--", "-1", "0", "0.5", "1e400", "nan", "-inf", "18446744073709551616",
        "99999999999999999999999", "9223372036854775808", ",", ",,", "1,,2", "|", "a,b,c", "3|3",
        "\n", "a\nb", "\x1b[2J", "\x7f", "\xff\xfe", "\xe2\x80\xae", ("\xc2\x9b" "31m"), "%s%n",
        "/",
        ".", "..", "/dev/null", "/dev/zero", "/proc/self/mem", "no/such/file", "all", "none", "*",
        "0*0", "1*1e400", "=", "gpus=8", "1/0", "2/1", "0x10", "1e3", " 8", "8 ", "+8", "-0"};
    /* clang-format on */
    uint32_t which = draw(COUNT_OF(values) + 2);
    memset(longest, 'x', sizeof longest - 1);
    return which < COUNT_OF(values) ? values[which] : longest;
}

static const char *draw_known(void)
{
    /* clang-format off */
    static const char *const names[] = {
        "gpipe", "1f1b", "roundpipe", "zbv", "dualpipev", "zero2", "fsdp", "megatron-tp", "mobius",
        "interleaved-1f1b", "gpipe,roundpipe", "tiny", "qwen3-1.7b", "rtx4090x8", "h200",
        "qwen3-1.7b@rtx4090", "even", "paper", "auto", "early", "wait", "none", "0*2", "host",
        "link_gb_per_s=20", "1,1", "2,2", "14,14", "1/2", "schedules", "models", "best"};
    /* clang-format on */
    return names[draw(COUNT_OF(names))];
}

/* Draws one of the choices "a|b|C": words in capitals stand for numbers, files and names. */
static const char *draw_valid(const char *value)
{
    static const char *const numbers[] = {"1", "2", "3", "4", "5", "8", "16", "0.1", "1e-3"};
    char *copy = strdup(value); /* freed with the program */
    char *choice = NULL;
    uint32_t count = 0;
    for (char *word = strtok(copy, "|"); word != NULL; word = strtok(NULL, "|")) {
        count++;
        choice = draw(count) == 0 ? word : choice;
    }
    if (choice == NULL || strncmp(choice, "NAME", 4) == 0) {
        return draw_known();
    }
    if (strchr("FDP", choice[0]) != NULL && draw(3) == 0) { /* a file to read */
        return print_path("%s/in/%s", readers[draw(COUNT_OF(readers))].file, "");
    }
    if (strchr("FDP", choice[0]) != NULL) { /* a file to be written, below the folder */
        return draw(2) == 0 ? "new" : "new.svg";
    }
    return isupper((unsigned char)choice[0]) ? numbers[draw(COUNT_OF(numbers))] : choice;
}

static bool is_drawn(char **words, size_t count, const char *option)
{
    return count > 2 &&
           (strcmp(words[count - 1], option) == 0 || is_drawn(words, count - 1, option));
}

static void try_command(uint32_t number)
{
    const program *p = &programs[number % 3 == 0 ? draw(COUNT_OF(programs)) : number % 3 - 1];
    char *words[MOST_WORDS];
    size_t count = 2;
    words[0] = print_path("%s/bin/%s", p->path, "");
    words[1] = (char *)"";
    if (p->small[0] == '\0') { /* a file that it reads, or a name that does not exist */
        words[count++] = draw(4) != 0
                             ? print_path("%s/in/%s", readers[draw(COUNT_OF(readers))].file, "")
                             : (char *)(uintptr_t)draw_known();
    }
    for (uint32_t i = 0, drawn = draw(6); i < drawn; i++) {
        uint32_t which = draw(p->count);
        words[count++] = p->options[which];
        if (p->values[which] != NULL && draw(40) != 0) {
            uint32_t kind = draw(10);
            const char *value = kind < 7   ? draw_valid(p->values[which])
                                : kind < 9 ? draw_absurd()
                                           : draw_known();
            words[count++] = (char *)(uintptr_t)value;
        }
    }
    char *small = strdup(p->small);
    for (char *option = strtok(small, " "); option != NULL; option = strtok(NULL, " ")) {
        char *value = strtok(NULL, " ");
        if (!is_drawn(words, count, option) && draw(20) != 0) {
            words[count++] = option;
            words[count++] = value;
        }
    }
    words[count] = NULL;
    setenv("RP_TRACES", print_path("%s/in/traces", "", ""), 1);
    try_words(words, number);
}

int main(int argc, char **argv)
{
    bool files = argc == 6 && strcmp(argv[1], "files") == 0;
    if (argc != 6 || (!files && strcmp(argv[1], "commands") != 0)) {
        fputs("usage: hostile files|commands WORK SEED FIRST COUNT\n", stderr);
        return 2;
    }
    work = argv[2];
    uint64_t seed = strtoull(argv[3], NULL, 10);
    uint32_t first = (uint32_t)strtoul(argv[4], NULL, 10);
    uint32_t count = (uint32_t)strtoul(argv[5], NULL, 10);
    (void)mkdir(print_path("%s/out", "", ""), 0777);
    (void)mkdir(print_path("%s/damaged", "", ""), 0777);
    for (size_t i = 0; i < COUNT_OF(programs) && !files; i++) {
        read_options(&programs[i]);
    }
    for (uint32_t i = first; i < first + count; i++) {
        random_state = seed * 0x9E3779B97F4A7C15u + i;
        (files ? try_file : try_command)(i);
    }
    printf("%u %s: %u ran, %u failed, %u were refused, slowest %.1f s; %d are wrong\n", count,
           argv[1], ended[0], ended[1], ended[2], slowest_s, failures);
    return failures == 0 ? 0 : 1;
}
