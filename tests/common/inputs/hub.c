/* Models by their names on the Hugging Face Hub, from the cache of its programs. */
#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "common/inputs/model.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void begin(void)
{
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces", 1);
    rp_test_arena_begin();
}

TestSuite(hub, .init = begin, .fini = rp_test_arena_end, .timeout = 60);

static void write_at(const char *root, const char *path, const char *text)
{
    char whole[512];
    (void)snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *c = whole + strlen(root); (c = strchr(c + 1, '/')) != NULL;) {
        *c = '\0';
        (void)mkdir(whole, 0700);
        *c = '/';
    }
    FILE *stream = fopen(whole, "w");
    cr_assert(stream != NULL, "%s", whole);
    (void)fputs(text, stream);
    cr_assert(eq(int, fclose(stream), 0));
}

static rp_status load_name(const char *name, rp_model *model_out, char *message, size_t size)
{
    rp_log_capture_begin(message, size);
    rp_status status = rp_model_load(name, rp_test_arena, model_out);
    rp_log_capture_end();
    return status;
}

#define CONFIG                                                                                     \
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_attention_heads\": 4,\n"               \
    "\"num_hidden_layers\": 6, \"intermediate_size\": 160, \"vocab_size\": 1000}"
#define HUB_NAME "Some-Org/Its-Model-1.5B"
#define FOLDER "models--Some-Org--Its-Model-1.5B/"

/* Layout of the cache as in huggingface_hub 1.2 (constants.py: HF_HUB_CACHE, HF_HOME,
 * XDG_CACHE_HOME, ~/.cache; "Understand caching": refs/main has the revision). */
Test(hub, names_of_the_hub_are_found_in_its_cache)
{
    static const struct {
        const char *variable, *value, *below;
    } ways[] = {{"HF_HUB_CACHE", "/a", "a"},
                {"HF_HOME", "/b", "b/hub"},
                {"XDG_CACHE_HOME", "/c", "c/huggingface/hub"},
                {"HOME", "/d", "d/.cache/huggingface/hub"}};
    char path[512];
    const char *root = rp_test_make_folder();
    cr_assert(root != NULL);
    cr_assert(eq(int, chdir(root), 0));
    for (size_t i = sizeof ways / sizeof ways[0]; i-- > 0;) { /* later ways take precedence */
        char message[4096] = "";
        rp_model model;
        (void)snprintf(path, sizeof path, "%s%s", root, ways[i].value);
        (void)setenv(ways[i].variable, path, 1);
        for (size_t k = 0; k < i; k++) {
            (void)unsetenv(ways[k].variable);
        }
        cr_expect(eq(int, load_name(HUB_NAME, &model, message, sizeof message), RP_INPUT));
        (void)snprintf(path, sizeof path, "%s/%s; ", root, ways[i].below);
        cr_expect(strstr(message, path) != NULL, "%s", message);
        (void)snprintf(path, sizeof path, "%s/" FOLDER "refs/main", ways[i].below);
        write_at(root, path, "0123abc");
        cr_expect(eq(int, load_name(HUB_NAME, &model, message, sizeof message), RP_INPUT));
        (void)snprintf(path, sizeof path, "%s/" FOLDER "snapshots/0123abc/config.json",
                       ways[i].below);
        write_at(root, path, CONFIG);
        cr_expect(eq(int, load_name(HUB_NAME, &model, message, sizeof message), RP_OK), "%s",
                  message);
        cr_expect(eq(u32, model.vocab, 1000));
        cr_expect(eq(str, (char *)(uintptr_t)model.name, "Its-Model-1.5B"));
        cr_expect(strstr(model.source, path) != NULL, "%s", model.source);
    }
    char message[4096] = "";
    rp_model model;
    write_at(root, "Some-Org/Its-Model-1.5B/config.json", "[]"); /* an existing path is a path */
    cr_expect(eq(int, load_name(HUB_NAME, &model, message, sizeof message), RP_INPUT));
    cr_expect(strstr(message, HUB_NAME "/config.json: ") != NULL, "%s", message);
    rp_test_remove(root);
}

Test(hub, what_the_cache_lacks_is_named_with_what_to_do)
{
    static const struct {
        const char *name, *says, *silent;
    } cases[] = {
        {"Qwen/Qwen3-8B",
         "'hf download Qwen/Qwen3-8B config.json' puts it there; this model is "
         "built in as --model qwen3-8b",
         NULL},
        {"qwen/qwen3-8b", "built in as --model qwen3-8b", NULL},
        {"meta-llama/Llama-3.1-8B", "built in as --model llama3.1-8b", NULL},
        {"openai/gpt-oss-20b", "built in as --model gpt-oss-20b", NULL},
        {"Qwen/Qwen3-8", "'hf download Qwen/Qwen3-8 config.json' puts it there", "built in"},
        {"nobody/nothing", "there is no file or folder 'nobody/nothing'", "built in"},
        {"models/mine.yaml", "models/mine.yaml", "hf download"},
        {"./mine/model", "./mine/model", "hf download"},
        {"a/b/c", "a/b/c", "hf download"},
        {"a/b c", "a/b c", "hf download"},
    };
    (void)setenv("HF_HUB_CACHE", "/nowhere", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[4096] = "";
        rp_model model;
        cr_expect(eq(int, load_name(cases[i].name, &model, message, sizeof message), RP_INPUT));
        cr_expect(strstr(message, cases[i].says) != NULL, "%s", message);
        cr_expect(cases[i].silent == NULL || strstr(message, cases[i].silent) == NULL, "%s",
                  message);
    }
}
