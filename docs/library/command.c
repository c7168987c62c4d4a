/* Runs rpsim's options and prints the JSON: command --schedule roundpipe. */
#include <rpsim.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    char *json = NULL;
    int code = rp_run_json(argc - 1, (const char *const *)(argv + 1), &json);
    if (code != RP_CODE_OK) {
        fprintf(stderr, "%s\n", rp_last_error());
        return code;
    }
    fputs(json, stdout);
    rp_free_json(json);
    return 0;
}
