/* Writes a golden file of the double-precision reference: make_decoder_golden NAME FILE. */
#include "tests/reference/slow_golden.h"

int main(int argc, char **argv)
{
    slow_golden golden;
    if (argc != 3) {
        fprintf(stderr, "usage: make_decoder_golden NAME FILE\n");
        return 2;
    }
    slow_golden_make(argv[1], &golden);
    FILE *stream = fopen(argv[2], "wb");
    bool written = stream != NULL && slow_golden_write(&golden, stream);
    written = stream != NULL && fclose(stream) == 0 && written;
    slow_golden_free(&golden);
    if (!written) {
        perror(argv[2]);
    }
    return written ? 0 : 1;
}
