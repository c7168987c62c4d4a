/* Every operator of the CUDA backend against the host's, for each type. Exit status 77: no device.
 * usage: PROGRAM [all|values|tokens|products|experts|attention|cudnn|refusals] [all|fp32|bf16|fp16]
 * [N]: runs 1 of N trials. */
#include "exec/cuda/tests/families.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name;
    int (*run)(rp_dtype dtype);
} families[] = {{"values", test_values},       {"tokens", test_tokens},
                {"products", test_products},   {"experts", test_experts},
                {"attention", test_attention}, {"cudnn", test_cudnn},
                {"refusals", test_refusals}};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int count, char **words)
{
    int failed = 0;
    uint32_t run = 0;
    trial_share = count > 3 ? (uint32_t)strtoul(words[3], NULL, 10) : 1;
    if (trial_share == 0) {
        fprintf(stderr, "%s: valid are numbers from 1\n", words[3]);
        return 2;
    }
    int status = trial_open();
    if (status != 0) {
        return status;
    }
    for (uint32_t i = 0; i < sizeof families / sizeof *families; i++) {
        for (uint32_t j = 0; j < RP_DTYPE_COUNT; j++) {
            const char *type = rp_dtype_text((rp_dtype)j);
            bool all = count < 2 || strcmp(words[1], "all") == 0;
            if ((!all && strcmp(words[1], families[i].name) != 0) ||
                (count > 2 && strcmp(words[2], "all") != 0 && strcmp(words[2], type) != 0)) {
                continue;
            }
            double begin = now();
            int here = families[i].run((rp_dtype)j);
            printf("%s: %s, %s: %d trials failed, worst error %.2f of what is allowed, %.2f s\n",
                   trial_device, families[i].name, type, here, trial_worst, now() - begin);
            failed += here + !trial_forget();
            run++;
        }
    }
    trial_close();
    if (run == 0) {
        fprintf(stderr, "%s: no such operators; valid are all", words[0]);
        for (uint32_t i = 0; i < sizeof families / sizeof *families; i++) {
            fprintf(stderr, ", %s", families[i].name);
        }
        fputs(", and then all, fp32, bf16 or fp16\n", stderr);
        return 2;
    }
    return failed > 0;
}
