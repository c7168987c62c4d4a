/* rpexec's command line (common/cli/cli.md) as a shell script. */
#include "common/inputs/huggingface/config.h"
#include "sim/rpadvise/export/files_internal.h"

#include <string.h>
#include <unistd.h>

/* @return the length of a word of a shell's command line; quotes of both kinds may hold blanks */
static size_t word_length(const char *word)
{
    char quote = '\0';
    size_t i = 0;
    for (; word[i] != '\0' && (quote != '\0' || word[i] != ' '); i++) {
        if (word[i] == quote) {
            quote = '\0';
        } else if (quote == '\0' && (word[i] == '\'' || word[i] == '"')) {
            quote = word[i];
        }
    }
    return i;
}

/* @return the word after an option, as the shell has it; NULL if the option is not given */
static const char *argument(const char *command, const char *option, size_t *length_out)
{
    for (const char *at = command; *at != '\0';) {
        size_t length = word_length(at);
        bool found = length == strlen(option) && strncmp(at, option, length) == 0;
        at += length + strspn(at + length, " ");
        if (found) {
            *length_out = word_length(at);
            return at;
        }
    }
    return NULL;
}

/* @return whether a word is a path. ORG/NAME of the Hugging Face Hub is no path, and such a name is
 * never in quotes */
static bool is_path(const char *word, size_t length)
{
    char path[4096];
    bool yaml = length > 5 && strncmp(word + length - 5, ".yaml", 5) == 0;
    (void)snprintf(path, sizeof path, "%.*s", (int)length, word);
    return yaml || rp_hf_is_config(path) ||
           (strchr(path, '/') != NULL && (*word == '\'' || access(path, F_OK) == 0));
}

/* Writes an input as its name or as an absolute path, because the script may run in another folder.
 */
static void write_input(const rpadvise_job *job, const char *option, const char *name, FILE *stream)
{
    size_t length = 0;
    const char *word = argument(job->command, option, &length);
    char folder[4096];
    if (word == NULL) {
        fprintf(stream, " %s %s", option, name);
    } else if (is_path(word, length) && *word != '/' && strncmp(word, "'/", 2) != 0 &&
               getcwd(folder, sizeof folder) != NULL && strchr(folder, '\'') == NULL) {
        fprintf(stream, " %s '%s'/%.*s", option, folder, (int)length, word);
    } else {
        fprintf(stream, " %s %.*s", option, (int)length, word);
    }
}

static void write_options(const rpsim_row *row, FILE *stream)
{
    const rp_resolved *w = &row->run;
    fprintf(stream, " \\\n    --gpus %u --microbatches %u --microbatch-size %u --accumulate %u",
            row->run.gpus, w->decided.microbatches,
            w->global_batch / (w->decided.accumulate * w->decided.microbatches),
            w->decided.accumulate);
    fprintf(stream, " --seq-len %u --dtype %s \\\n    --optimizer %s --recompute %s",
            w->decided.seq_len, rp_dtype_text(w->decided.dtype),
            row->run.decided.asynchronous ? "async" : "sync",
            rp_recompute_text(row->run.recompute));
    if (rp_recompute_has_ops(row->run.recompute)) {
        fprintf(stream, " --grain %s", w->decided.layer_grain ? "layer" : "stage");
    }
    fprintf(stream, " \\\n    --partition '%s'", row->partition_text);
    if (w->decided.piece_bytes >= 1u << 20) {
        fprintf(stream, " --piece-mb %u", (unsigned)(w->decided.piece_bytes >> 20));
    }
    if (w->decided.reductions.each_given) {
        fprintf(stream, " --reduce-each %s",
                w->decided.reductions.each_microbatch ? "microbatch" : "step");
    }
    if (row->run.model->lora_rank != 0) {
        fprintf(stream, " --lora-rank %u", row->run.model->lora_rank);
    }
}

static rp_status write_command(const rpadvise_job *job, FILE *stream)
{
    fprintf(stream,
            "#!/bin/sh\n"
            "# Open: %s.\n"
            "# Trains with rpexec; RPEXEC names another one than that of PATH. Further options, "
            "such as --backend\n"
            "# and --record, may follow, too.\n"
            "case \" $*\" in\n"
            "*\" --weights\"*) ;; # have the model in their folder\n"
            "*) set --",
            rpadvise_export_rpexec.open);
    write_input(job, "--model", job->row->run.model->name, stream);
    fprintf(stream,
            " \"$@\" ;;\n"
            "esac\n"
            "exec \"${RPEXEC:-rpexec}\" --schedule %s",
            job->row->schedule_name);
    write_input(job, "--platform", job->row->platform->name, stream);
    write_options(job->row, stream);
    fputs(" \\\n    \"$@\"\n", stream);
    return RP_OK;
}

static void write_notes(const rpadvise_job *job, FILE *stream)
{
    rpadvise_note(
        stream,
        "- The platform gives partitions their times, and GPUs that are simulated on a CPU their "
        "links and memory. Without GPUs, `--backend host` trains on the CPU.\n");
    if (job->row->run.decided.reductions.dtype_given) {
        rpadvise_note(stream, "- The type in which gradients are reduced has no option.\n");
    }
    if (job->row->platform->peer_gb_per_s > 0) {
        rpadvise_note(stream,
                      "- `--peers` lets pipelines send boundary tensors from GPU to GPU.\n");
    }
}

const rpadvise_exporter rpadvise_export_rpexec = {
    .system = "rpexec",
    .open = "--lr (0.001), --weights, --data and --steps, which are options behind the script's "
            "name",
    .files = {{"rpexec.sh", write_command}},
    .notes = write_notes,
};
