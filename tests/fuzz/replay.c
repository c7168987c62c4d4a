/* Runs a harness over every file of the given folders, so that a compiler without libFuzzer can use
 * a committed corpus. Fails if a folder is missing or empty. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* The memory block ends with the file, so that a sanitizer sees any read beyond it. */
static void run_file(const char *path)
{
    FILE *stream = fopen(path, "rb");
    fuzz_require(stream != NULL && fseek(stream, 0, SEEK_END) == 0, path);
    size_t size = (size_t)ftell(stream);
    rewind(stream);
    uint8_t *bytes = malloc(size > 0 ? size : 1);
    fuzz_require(bytes != NULL && fread(bytes, 1, size, stream) == size, path);
    fclose(stream);
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
}

static size_t run_folder(const char *folder)
{
    size_t files = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] != '.') {
            char path[PATH_MAX];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            run_file(path);
            files++;
        }
    }
    if (entries != NULL) {
        closedir(entries);
    }
    return files;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        size_t files = run_folder(argv[i]);
        printf("%s: %zu files\n", argv[i], files);
        if (files == 0) {
            fprintf(stderr, "%s: no such folder, or nothing in it\n", argv[i]);
            return 1;
        }
    }
    return argc > 1 ? 0 : 2;
}
