/* Tiles of c stay in registers while k goes by. With 6 rows of two vectors of 8 floats these are 12
 * of AVX's 16 registers, and 12 sums in flight are enough for two units with four cycles each. */
#include "exec/host/products.h"

#define ROWS 6u
#define COLUMNS RPEXEC_PRODUCT_COLUMNS
#define VECTORS 2u

const rpexec_band rpexec_everything = {-RPEXEC_UNBOUNDED, RPEXEC_UNBOUNDED};

typedef float vector __attribute__((vector_size(COLUMNS * sizeof(float)), aligned(4), may_alias));

/* A tile: its first elements, and its number of terms. */
typedef struct tile {
    const float *a, *b;
    float *c;
    uint32_t terms;
} tile;

/* `rows` and `vectors` are constants, so that the loops over them are unrolled. */
static inline __attribute__((always_inline)) void
multiply(const rpexec_product *p, const tile *t, const uint32_t rows, const uint32_t vectors)
{
    vector sums[ROWS][VECTORS];
    const float *a = t->a;
    const float *b = t->b;
    const size_t a_row = p->a_row;
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++) {
            const float *c = t->c + r * p->c_row + v * COLUMNS;
            sums[r][v] = p->add ? *(const vector *)c : (vector){0};
        }
    }
    for (uint32_t k = 0; k < t->terms; k++) {
        vector right[VECTORS];
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++) {
            right[v] = *(const vector *)(b + v * COLUMNS);
        }
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++) {
            float left = a[r * a_row];
#pragma GCC unroll 2
            for (uint32_t v = 0; v < vectors; v++) {
                sums[r][v] += left * right[v];
            }
        }
        a += p->a_step;
        b += p->b_row;
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++) {
            *(vector *)(t->c + r * p->c_row + v * COLUMNS) = sums[r][v];
        }
    }
}

static inline __attribute__((always_inline)) void
multiply_rows(const rpexec_product *p, const tile *t, uint32_t rows, const uint32_t vectors)
{
    switch (rows) {
    case 1:
        multiply(p, t, 1, vectors);
        break;
    case 2:
        multiply(p, t, 2, vectors);
        break;
    case 3:
        multiply(p, t, 3, vectors);
        break;
    case 4:
        multiply(p, t, 4, vectors);
        break;
    case 5:
        multiply(p, t, 5, vectors);
        break;
    default:
        multiply(p, t, ROWS, vectors);
        break;
    }
}

/* Columns that do not fill a vector. Unless told to fuse, GCC may multiply a whole vector of terms
 * and then add them singly. */
static inline __attribute__((always_inline)) void multiply_rest(const rpexec_product *p,
                                                                const tile *t, uint32_t rows,
                                                                uint32_t columns, const bool fused)
{
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t n = 0; n < columns; n++) {
            float sum = p->add ? t->c[r * p->c_row + n] : 0.0f;
            for (uint32_t k = 0; k < t->terms; k++) {
                float left = t->a[r * p->a_row + k * p->a_step];
                float right = t->b[k * p->b_row + n];
                sum = fused ? __builtin_fmaf(left, right, sum) : sum + left * right;
            }
            t->c[r * p->c_row + n] = sum;
        }
    }
}

static inline __attribute__((always_inline)) void multiply_all(const rpexec_product *p,
                                                               const bool fused)
{
    for (uint32_t m = 0; m < p->m; m += ROWS) {
        uint32_t rows = p->m - m < ROWS ? p->m - m : ROWS;
        uint32_t first = rpexec_band_begin(p->terms, m, p->k);
        uint32_t end = rpexec_band_end(p->terms, m + rows - 1, p->k);
        uint32_t n = rpexec_band_begin(p->columns, m, p->n) / COLUMNS * COLUMNS;
        uint32_t last = rpexec_band_end(p->columns, m + rows - 1, p->n);
        tile t = {.a = p->a + m * p->a_row + first * p->a_step,
                  .b = p->b + first * p->b_row + n,
                  .c = p->c + m * p->c_row + n,
                  .terms = end > first ? end - first : 0};
        while (n < last) {
            uint32_t columns = p->n - n;
            if (columns >= VECTORS * COLUMNS && last - n > COLUMNS) {
                columns = VECTORS * COLUMNS;
                multiply_rows(p, &t, rows, VECTORS);
            } else if (columns >= COLUMNS) {
                columns = COLUMNS;
                multiply_rows(p, &t, rows, 1);
            } else {
                multiply_rest(p, &t, rows, columns, fused);
            }
            n += columns;
            t.b += columns;
            t.c += columns;
        }
    }
}

/* The instruction set is chosen here and not by target_clones, which sanitizers do not allow: all
 * builds give the same bits, on every x86 processor with FMA. With only AVX-512 GCC fuses nothing,
 * since the instructions for vectors of 8 belong to FMA or AVX-512 VL. */
#if defined(__x86_64__)
__attribute__((target("fma"))) static void multiply_fma(const rpexec_product *p)
{
    multiply_all(p, true);
}

bool rpexec_host_fuses(void)
{
    return __builtin_cpu_supports("fma") != 0;
}

void rpexec_host_product(const rpexec_product *p)
{
    if (rpexec_host_fuses()) {
        multiply_fma(p);
    } else {
        multiply_all(p, false);
    }
}
#else
bool rpexec_host_fuses(void)
{
    return false; /* the compiler decides */
}

void rpexec_host_product(const rpexec_product *p)
{
    multiply_all(p, false);
}
#endif
