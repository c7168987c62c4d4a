/* A run's folder belongs to its user. The tests put names that look like a checkpoint's, with all
 * kinds of contents, beside the checkpoints that a run saves. The rule is run_folder.h's: a folder
 * is removed only if its name and all names in it are rpexec's own, and no link is followed. The
 * last test reads folders with links in the layout of Hugging Face's cache (huggingface_hub,
 * "Understand caching": snapshots/REVISION/FILE -> ../../blobs/HASH). */
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/links.h"
#include "exec/checkpoint/weights.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/rp-run-folder-XXXXXX";
static rp_model config;
static rpexec_model model;
static rpexec_state state;

static void begin(void)
{
    rp_test_log_begin();
    cr_assert(mkdtemp(root) != NULL && chdir(root) == 0);
    config = rp_test_decoder(1, false, false);
    cr_assert(eq(int, rpexec_model_create(&config, 4, RP_DTYPE_F32, rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_state_create(&model, rp_test_arena, &state), RP_OK));
    cr_assert(eq(int, rpexec_state_initialise(&state, 3, true), RP_OK));
}

static void run(const char *command)
{
    cr_assert(eq(int, system(command), 0), "%s", command); // NOLINT(cert-env33-c)
}

static void end(void)
{
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", root);
    int status = system(command); // NOLINT(cert-env33-c)
    rp_test_none_left(status != 0, "folders");
    rp_test_log_end();
}

TestSuite(exec_run_folder, .init = begin, .fini = end, .timeout = 300);

static const char *print(const char *format, const char *a, const char *b)
{
    const char *text = NULL;
    cr_assert(eq(int, rp_arena_print(rp_test_arena, &text, format, a, b), RP_OK));
    return text;
}

static bool exists(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0;
}

/* ---- saving beside a user's own -------------------------------------------------------------- */

/* Saves steps in "run" as a resumed run does, whose folder may have checkpoints. */
static rp_status save(uint64_t first, uint64_t last, uint32_t keep, const rpexec_companions *with)
{
    static const rpexec_companions none;
    rpexec_checkpoints c;
    const rpexec_progress progress = {.seq_len = 4};
    rp_test_log_again();
    rp_status status = rpexec_checkpoints_open("run", keep, false, &c);
    for (uint64_t step = first; status == RP_OK && step <= last; step++) {
        state.step = step;
        status = rpexec_checkpoint_save(&c, with != NULL ? with : &none, &state, &progress);
    }
    rpexec_checkpoints_close(&c);
    return status;
}

static uint32_t checkpoints_in_run(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("run");
    for (struct dirent *e = folder != NULL ? readdir(folder) : NULL; e != NULL;
         e = readdir(folder)) {
        count += strncmp(e->d_name, "step-", 5) == 0 ? 1 : 0;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count;
}

/* Contents of a name: shell code that makes $p, and whether rpexec could have made it. */
static const struct content {
    const char *what;
    const char *make;
    bool own;   /* all names in it are a checkpoint's */
    bool whole; /* it is a checkpoint */
    bool folder;
} contents[] = {
    {"a checkpoint", "mkdir $p; touch $p/model.safetensors $p/config.json $p/training.safetensors",
     true, true, true},
    {"shards",
     "mkdir $p; touch $p/model-00001-of-00002.safetensors $p/training.safetensors "
     "$p/model.safetensors.index.json $p/tokenizer.json $p/.rp-1-3.tmp",
     true, true, true},
    {"half of one", "mkdir $p; touch $p/adapter_model.safetensors $p/.rp-999999999-0.tmp", true,
     false, true},
    {"an empty folder", "mkdir $p", true, false, true},
    {"notes beside one",
     "mkdir $p; touch $p/model.safetensors $p/training.safetensors; "
     "echo mine > $p/notes.txt",
     false, false, true},
    {"hidden notes", "mkdir $p; touch $p/training.safetensors; echo mine > $p/.notes", false, false,
     true},
    {"another shard's name",
     "mkdir $p; touch $p/training.safetensors; echo mine > "
     "$p/model-1-of-2.safetensors",
     false, false, true},
    {"a folder in one",
     "mkdir -p $p/config.json; touch $p/training.safetensors; echo mine > "
     "$p/config.json/own",
     false, false, true},
    {"a link", "ln -s ../victim $p", false, false, false},
    {"a link to a file", "ln -s ../victim/model.safetensors $p", false, false, false},
    {"a link to nothing", "ln -s nowhere $p", false, false, false},
    {"a file", "echo mine > $p", false, false, false}};

/* Names, and the meaning that each has for rpexec. */
static const struct name {
    const char *name;
    enum { LEFTOVER, OLD, FOREIGN } kind;
} names[] = {{".step-99", LEFTOVER},
             {".step-99.7", LEFTOVER},
             {".old-3", LEFTOVER},
             {".old-3.1", LEFTOVER},
             {".base", LEFTOVER},
             {".old-base", LEFTOVER},
             {".step-5", LEFTOVER},
             {"step-1", OLD},
             {"step-2", OLD},
             {"step-01", FOREIGN},
             {"step-0", FOREIGN},
             {"step-", FOREIGN},
             {"step-+1", FOREIGN},
             {"step-1.5", FOREIGN},
             {"step-1e0", FOREIGN},
             {"step-1k", FOREIGN},
             {".step-old", FOREIGN},
             {".step-099", FOREIGN},
             {".step-9x", FOREIGN},
             {".step-9.01", FOREIGN},
             {".step-", FOREIGN},
             {".step", FOREIGN},
             {".old-", FOREIGN},
             {".old-stuff", FOREIGN},
             {".old-003", FOREIGN},
             {".base.x", FOREIGN},
             {".bases", FOREIGN},
             {"Step-1", FOREIGN},
             {"step-1-copy", FOREIGN},
             {"base", FOREIGN},
             {"step-99999999999999999999", FOREIGN}};

static void check_pair(const struct name *n, const struct content *c)
{
    run(print("rm -rf run victim; mkdir run victim; touch victim/model.safetensors "
              "victim/training.safetensors victim/config.json; p='run/%s'; %s; "
              "find run victim | sort > before",
              n->name, c->make));
    const char *path = print("run/%s", n->name, "");
    rp_status status = save(6, 7, 2, NULL);
    bool refused = n->kind == OLD && !c->folder; /* a run would take it for its newest */
    bool goes = (n->kind == LEFTOVER && c->own) || (n->kind == OLD && c->whole);
    const char *what = print("%s: %s", n->name, c->what);
    cr_expect(eq(int, status, refused ? RP_INPUT : RP_OK), "%s: %s", what, rp_test_messages);
    cr_expect(eq(int, exists(path), goes ? 0 : 1), "%s: it %s", what, goes ? "is left" : "is gone");
    cr_expect(goes || system("find run victim | sort | comm -23 before - | " // NOLINT
                             "cmp -s - /dev/null") == 0,
              "%s: some of it is gone", what);
    cr_expect(exists("victim/model.safetensors") && exists("victim/training.safetensors"),
              "%s: files behind it are gone", what);
    bool told = strstr(rp_test_messages, n->name) != NULL;
    cr_expect(eq(int, told, n->kind != FOREIGN && !goes), "%s: %s", what, rp_test_messages);
    cr_expect(refused || (exists("run/step-7/training.safetensors") && exists("run/step-6")),
              "%s: other checkpoints than the newest two", what);
}

/* A plain test tries a sample of the pairs; RP_LONG=1 tries each name with each content. */
Test(exec_run_folder, what_a_user_has_there_stays)
{
    const char *long_run = getenv("RP_LONG");
    bool all = long_run != NULL && strcmp(long_run, "1") == 0;
    size_t name_count = sizeof names / sizeof names[0];
    size_t content_count = sizeof contents / sizeof contents[0];
    for (size_t i = 0; i < name_count; i++) {
        for (size_t k = 0; k < content_count; k++) {
            bool sampled = i % 3 == 0 && k == (i + 8) % content_count;
            if (all || sampled || (i == 7 && k == 4)) {
                check_pair(&names[i], &contents[k]);
            }
        }
    }
}

Test(exec_run_folder, as_many_checkpoints_are_kept_as_asked)
{
    for (uint32_t keep = 1; keep <= 7; keep += keep < 3 ? 1 : 2) {
        run("rm -rf run");
        cr_assert(eq(int, save(1, 6, keep, NULL), RP_OK), "%s", rp_test_messages);
        cr_expect(eq(u32, checkpoints_in_run(), keep < 6 ? keep : 6));
        for (uint64_t step = 1; step <= 6; step++) {
            char path[64];
            (void)snprintf(path, sizeof path, "run/step-%" PRIu64 "/training.safetensors", step);
            cr_expect(eq(int, exists(path), step + keep > 6), "%s with %u", path, keep);
        }
    }
}

/* If a name is taken, the next free name is used, and nothing of the run is lost. */
Test(exec_run_folder, unfinished_folders_find_another_name)
{
    run("mkdir run victim; touch victim/config.json; ln -s ../victim run/.step-4; "
        "echo mine > run/.step-4.1; ln -s ../victim run/.old-4");
    cr_expect(eq(int, save(4, 7, 1, NULL), RP_OK), "%s", rp_test_messages);
    cr_expect(exists("run/step-7/model.safetensors") && exists("victim/config.json"));
    cr_expect(exists("run/.step-4") && exists("run/.step-4.1") && exists("run/.old-4"));
    cr_expect(eq(u32, checkpoints_in_run(), 1));
}

/* A base that is not rpexec's is refused before the run begins; a base of rpexec's is replaced by
 * the new run's. */
Test(exec_run_folder, bases_of_others_are_refused_before_a_run)
{
    static const rpexec_companions with = {
        .base = {.count = 1, .files = {{.name = "config.json", .bytes = "{}", .length = 2}}}};
    for (size_t k = 0; k < sizeof contents / sizeof contents[0]; k++) {
        rpexec_checkpoints c;
        run("rm -rf run victim; mkdir run victim; touch victim/model.safetensors");
        run(print("p=run/%s; %s", "base", contents[k].make));
        rp_test_log_again();
        cr_assert(eq(int, rpexec_checkpoints_open("run", 2, true, &c), RP_OK));
        rp_status status = rpexec_checkpoints_check_base(&c, &with);
        rpexec_checkpoints_close(&c);
        cr_expect(eq(int, status, contents[k].own ? RP_OK : RP_INPUT), "%s: %s", contents[k].what,
                  rp_test_messages);
        cr_expect(contents[k].own || strstr(rp_test_messages, "run/base is in the way") != NULL,
                  "%s", rp_test_messages);
        cr_expect(exists("run/base") && exists("victim/model.safetensors"), "%s", contents[k].what);
    }
}

/* A lock file is empty or has a process's number; a file with other contents belongs to somebody
 * else. */
Test(exec_run_folder, a_lock_of_others_is_left_alone)
{
    static const struct {
        const char *text;
        bool own;
    } locks[] = {
        {"", true}, {"123\\n", true}, {"123", false}, {"yarn\\n", false}, {"1\\n2\\n", false}};
    for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++) {
        rpexec_checkpoints c;
        run("rm -rf run; mkdir run");
        run(print("printf '%s' > run/.lock; cp run/.lock before", locks[i].text, ""));
        rp_test_log_again();
        rp_status status = rpexec_checkpoints_open("run", 2, true, &c);
        rpexec_checkpoints_close(&c);
        cr_expect(eq(int, status, locks[i].own ? RP_OK : RP_INPUT), "%s", rp_test_messages);
        cr_expect(locks[i].own || system("cmp -s before run/.lock") == 0, "%s", // NOLINT
                  locks[i].text);
    }
}

/* ---- links in a folder that is read ---------------------------------------------------------- */

Test(exec_run_folder, links_lead_into_the_folder_or_to_the_cache)
{
    static const struct {
        const char *make; /* shell code, run in snapshots/abc, whose ../../blobs has "hash" */
        bool taken;
    } links[] = {
        {"echo > f", true},
        {"ln -s ../../blobs/hash f", true},
        {"ln -s g f; ln -s ../../blobs/hash g", true},
        {"echo > g; ln -s g f", true},
        {"mkdir sub; echo > sub/g; ln -s sub/g f", true},
        {"ln -s $PWD/../../blobs/hash f", true},
        {"ln -s nowhere f", true}, /* the reader of the file refuses it */
        {"ln -s /proc/self/environ f", false},
        {"ln -s /etc/passwd f", false},
        {"ln -s ../../../secret f", false},
        {"ln -s ../../secret f", false},
        {"ln -s ../other/secret f", false},
        {"ln -s ../abcd/secret f", false},
        {"ln -s ../../blobsecret f", false},
        {"ln -s g f; ln -s /etc/passwd g", false},
        {"ln -s ../../secret ../../blobs/inner; ln -s ../../blobs/inner f", false},
        {"ln -s ../../more ../../blobs/more; ln -s ../../blobs/more/secret f", false},
        {"rm -r ../../blobs; ln -s ../more ../../blobs; ln -s ../../blobs/secret f", false},
        {"mkdir g; rmdir g; ln -s ../other g; ln -s g/secret f", false}};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        run("rm -rf hub more secret; mkdir -p hub/blobs hub/snapshots/abc hub/snapshots/other "
            "hub/snapshots/abcd more; for f in hub/blobs/hash secret more/secret hub/secret "
            "hub/snapshots/other/secret hub/snapshots/abcd/secret hub/blobsecret; do "
            "echo x > $f; done");
        run(print("cd hub/snapshots/abc; %s", links[i].make, ""));
        for (uint32_t from = 0; from < 3; from++) { /* from the folder above, from inside the
                                                     * folder, and through a link */
            rp_test_log_again();
            run(from == 2 ? "ln -sfn hub/snapshots/abc over" : "true");
            cr_assert(eq(int, chdir(from == 1 ? "hub/snapshots/abc" : "."), 0));
            rp_status status = rpexec_links_check(from == 0   ? "hub/snapshots/abc/f"
                                                  : from == 1 ? "f"
                                                              : "over/f");
            cr_assert(eq(int, chdir(root), 0));
            cr_expect(eq(int, status, links[i].taken ? RP_OK : RP_INPUT), "%s: %s", links[i].make,
                      rp_test_messages);
            cr_expect(links[i].taken || strstr(rp_test_messages, "f: a link to /") != NULL, "%s",
                      rp_test_messages);
        }
    }
}
