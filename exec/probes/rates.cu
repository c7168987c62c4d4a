// What the links and cuBLAS of one GPU do: the rates that validation and benchmarks are held against.
//   run: ./rates            prints CSV: what,size,value,unit
// A probe, not a test: it asserts nothing. Copies are of pinned memory, by piece size, each direction
// alone and both at once; products are bf16 with fp32 accumulation, of random-like data, whose mean
// over 20 runs after 3 counts.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>

#define RT(x)                                                                                      \
    do {                                                                                           \
        cudaError_t e_ = (x);                                                                      \
        if (e_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e_));      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define BL(x)                                                                                      \
    do {                                                                                           \
        cublasStatus_t s_ = (x);                                                                   \
        if (s_ != CUBLAS_STATUS_SUCCESS) {                                                         \
            fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #x, cublasGetStatusString(s_));  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// Values in [-1, 1) without a pattern: constant data lets the chip clock higher.
__global__ void scatter_bits(__nv_bfloat16 *x, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        unsigned long long z = (i + 1) * 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        x[i] = __float2bfloat16((float)(int)(z >> 40 & 0xffff) / 32768.0f - 1.0f);
    }
}

static void copies(unsigned char *gpu, unsigned char *host, size_t whole)
{
    cudaStream_t up, down;
    cudaEvent_t begin, up_done, down_done;
    RT(cudaStreamCreateWithFlags(&up, cudaStreamNonBlocking));
    RT(cudaStreamCreateWithFlags(&down, cudaStreamNonBlocking));
    RT(cudaEventCreate(&begin));
    RT(cudaEventCreate(&up_done));
    RT(cudaEventCreate(&down_done));
    for (size_t piece = (size_t)64 << 10; piece <= whole; piece *= 4) {
        for (int which = 1; which <= 3; which++) {
            for (int warm = 0; warm < 2; warm++) {
                RT(cudaDeviceSynchronize());
                RT(cudaEventRecord(begin, up));
                RT(cudaStreamWaitEvent(down, begin, 0));
                for (size_t at = 0; at + piece <= whole; at += piece) {
                    if (which & 1) {
                        RT(cudaMemcpyAsync(gpu + at, host + at, piece, cudaMemcpyHostToDevice, up));
                    }
                    if (which & 2) {
                        RT(cudaMemcpyAsync(host + whole + at, gpu + whole + at, piece,
                                           cudaMemcpyDeviceToHost, down));
                    }
                }
                RT(cudaEventRecord(up_done, up));
                RT(cudaEventRecord(down_done, down));
                RT(cudaDeviceSynchronize());
            }
            float up_ms = 0, down_ms = 0;
            RT(cudaEventElapsedTime(&up_ms, begin, up_done));
            RT(cudaEventElapsedTime(&down_ms, begin, down_done));
            const char *with = which == 3 ? "together" : "alone";
            if (which & 1) {
                printf("up %s,%zu,%.2f,GB/s\n", with, piece, (double)whole / up_ms / 1e6);
            }
            if (which & 2) {
                printf("down %s,%zu,%.2f,GB/s\n", with, piece, (double)whole / down_ms / 1e6);
            }
        }
    }
}

static void products(unsigned char *gpu)
{
    cublasHandle_t blas;
    cudaStream_t stream;
    cudaEvent_t begin, done;
    const float one = 1, zero = 0;
    RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    RT(cudaEventCreate(&begin));
    RT(cudaEventCreate(&done));
    BL(cublasCreate(&blas));
    BL(cublasSetStream(blas, stream));
    for (int n = 512; n <= 8192; n *= 2) {
        __nv_bfloat16 *a = (__nv_bfloat16 *)gpu;
        size_t count = (size_t)n * n;
        scatter_bits<<<1024, 256, 0, stream>>>(a, 2 * count);
        RT(cudaGetLastError());
        for (int i = 0; i < 23; i++) {
            if (i == 3) {
                RT(cudaEventRecord(begin, stream));
            }
            BL(cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a, CUDA_R_16BF, n,
                            a + count, CUDA_R_16BF, n, &zero, a + 2 * count, CUDA_R_16BF, n,
                            CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        }
        RT(cudaEventRecord(done, stream));
        RT(cudaStreamSynchronize(stream));
        float ms = 0;
        RT(cudaEventElapsedTime(&ms, begin, done));
        printf("cublas bf16,%d,%.1f,TFLOP/s\n", n, 20 * 2.0 * n * n * n / ms / 1e9);
    }
    BL(cublasDestroy(blas));
}

int main()
{
    const size_t whole = (size_t)256 << 20;
    unsigned char *gpu = nullptr, *host = nullptr;
    RT(cudaMalloc((void **)&gpu, 2 * whole));
    RT(cudaHostAlloc((void **)&host, 2 * whole, cudaHostAllocDefault));
    for (size_t i = 0; i < 2 * whole; i += 4096) {
        host[i] = (unsigned char)(i >> 12);
    }
    printf("what,size,value,unit\n");
    copies(gpu, host, whole);
    products(gpu);
    RT(cudaFree(gpu));
    RT(cudaFreeHost(host));
    return 0;
}
