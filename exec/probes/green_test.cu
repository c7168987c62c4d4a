// Splits one GPU into N green contexts ("virtual GPUs") and measures what they share.
//   build: nvcc -O2 -std=c++17 -arch=sm_90 green_test.cu -o green_test -lcublas -lcuda
//   run:   CUDA_DEVICE_MAX_CONNECTIONS=32 ./green_test [groups=8] [minSMs=16] [n=4096] [iters=30] [arenaMiB=1024]
// Reports: SMs per group and whether the groups' SM sets are disjoint (by %smid), GEMM rate of each group
// alone and all together, H2D rate alone / together / while all groups compute, the whole-GPU rate, and whether
// streams of green contexts work while the primary context is current (exec/gpu/turn.h would not be needed then).
// This is a probe, not a test: it asserts nothing. What to expect of it (disjoint SM sets, rates that add up, shared
// copy engines) are hypotheses that nobody has measured here yet; its output is the measurement. No part of rpexec.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cublas_v2.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>
#define DRV(x) do { CUresult r_ = (x); if (r_) { const char* s_ = "?"; cuGetErrorName(r_, &s_); \
  fprintf(stderr, "%s:%d %s -> %s\n", __FILE__, __LINE__, #x, s_); exit(1); } } while (0)
#define RT(x) do { cudaError_t r_ = (x); if (r_) { fprintf(stderr, "%s:%d %s -> %s\n", __FILE__, __LINE__, #x, \
  cudaGetErrorString(r_)); exit(1); } } while (0)
#define BL(x) do { cublasStatus_t r_ = (x); if (r_) { fprintf(stderr, "%s:%d %s -> cublas %d\n", __FILE__, __LINE__, #x, (int)r_); exit(1); } } while (0)

struct VGpu {                                   // one virtual GPU
  CUgreenCtx green = nullptr; CUcontext ctx = nullptr;
  CUstream compute, up, pup, down;              // compute, activation upload, parameter upload, download
  cublasHandle_t blas; unsigned sms = 0;
  char *arena = nullptr, *host = nullptr; size_t cap = 0, used = 0;
  void* take(size_t n) {                        // capped bump allocator: the arena is this GPU's whole memory
    n = (n + 511) & ~size_t(511);
    if (used + n > cap) { fprintf(stderr, "arena overflow: %zu + %zu > %zu\n", used, n, cap); exit(1); }
    void* p = arena + used; used += n; return p;
  }
};
__global__ void which_sm(unsigned* mask, long long spin) {   // long enough that every SM of the group gets a block
  unsigned id; asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  if (threadIdx.x == 0) atomicOr(&mask[id >> 5], 1u << (id & 31));
  long long t0 = clock64(); while (clock64() - t0 < spin) {}
}
__global__ void nothing() {}
// Enqueues in streams of every group, with the primary context current or, as exec/gpu does it, each group's own
// context entered in turns. Two threads per group, one of which launches kernels and one copies. @return errors
static int from_threads(std::vector<VGpu>& g, CUcontext primary, bool turns, int calls, double* seconds) {
  std::vector<std::thread> all; std::vector<std::mutex> turn(g.size()); std::vector<int> errors(2 * g.size(), 0);
  auto t0 = std::chrono::steady_clock::now();
  for (size_t i = 0; i < 2 * g.size(); i++) all.emplace_back([&, i] {
    VGpu& v = g[i / 2]; cuCtxSetCurrent(primary);
    for (int k = 0; k < calls; k++) {
      if (turns) { turn[i / 2].lock(); cuCtxSetCurrent(v.ctx); }
      if (i % 2 == 0) { nothing<<<1, 32, 0, v.compute>>>(); errors[i] += cudaGetLastError() != cudaSuccess; }
      else errors[i] += cuMemcpyHtoDAsync((CUdeviceptr)v.arena, v.host, 256, v.up) != CUDA_SUCCESS;
      if (turns) { cuCtxSetCurrent(primary); turn[i / 2].unlock(); }
    }
    errors[i] += cuStreamSynchronize(i % 2 == 0 ? v.compute : v.up) != CUDA_SUCCESS;
  });
  int sum = 0;
  for (auto& t : all) t.join();
  *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
  for (int e : errors) sum += e;
  return sum;
}
static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main(int argc, char** argv) {
  int groups = argc > 1 ? atoi(argv[1]) : 8, minsm = argc > 2 ? atoi(argv[2]) : 16;
  int n = argc > 3 ? atoi(argv[3]) : 4096, iters = argc > 4 ? atoi(argv[4]) : 30;
  size_t cap = size_t(argc > 5 ? atoi(argv[5]) : 1024) << 20, nb = size_t(n) * n * 2, xfer = 256u << 20;
  DRV(cuInit(0));
  CUdevice dev; DRV(cuDeviceGet(&dev, 0));
  CUcontext primary; DRV(cuDevicePrimaryCtxRetain(&primary, dev)); DRV(cuCtxSetCurrent(primary));
  cudaDeviceProp prop; RT(cudaGetDeviceProperties(&prop, 0));
  int engines = 0; RT(cudaDeviceGetAttribute(&engines, cudaDevAttrAsyncEngineCount, 0));
  CUdevResource all = {}, rest = {}; DRV(cuDeviceGetDevResource(dev, &all, CU_DEV_RESOURCE_TYPE_SM));
  printf("%s cc %d.%d: %u SMs, copy engines %d", prop.name, prop.major, prop.minor, all.sm.smCount, engines);
#if CUDA_VERSION >= 13000                          // 12 does not tell
  printf(", minimum partition %u, alignment %u", all.sm.minSmPartitionSize, all.sm.smCoscheduledAlignment);
#endif
  printf("\n");
  unsigned flags = 0, got = 0;
  DRV(cuDevSmResourceSplitByCount(nullptr, &got, &all, nullptr, 0, minsm));
  if ((int)got < groups) {                      // topology gives fewer aligned groups: give up co-scheduling instead
    flags = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;
    printf("default split offers only %u groups of >=%d SMs; retrying without co-scheduling\n", got, minsm);
    DRV(cuDevSmResourceSplitByCount(nullptr, &got, &all, nullptr, flags, minsm));
    if ((int)got < groups) { fprintf(stderr, "only %u groups possible\n", got); return 1; }
  }
  std::vector<CUdevResource> part(groups); got = groups;
  DRV(cuDevSmResourceSplitByCount(part.data(), &got, &all, &rest, flags, minsm));   // ONE call, so the sets are disjoint
  printf("split into %u groups, %u SMs left over\n", got, rest.type == CU_DEV_RESOURCE_TYPE_SM ? rest.sm.smCount : 0u);
  std::vector<VGpu> g(got); std::vector<std::vector<unsigned>> own(got, std::vector<unsigned>(64, 0));
  std::vector<unsigned> seen(64, 0); bool disjoint = true;
  auto setup = [&](VGpu& v, CUdevResource* res) {
    if (res) {
      CUdevResourceDesc desc; DRV(cuDevResourceGenerateDesc(&desc, res, 1));
      DRV(cuGreenCtxCreate(&v.green, desc, dev, CU_GREEN_CTX_DEFAULT_STREAM)); DRV(cuCtxFromGreenCtx(&v.ctx, v.green));
      v.sms = res->sm.smCount;
      for (CUstream* s : {&v.compute, &v.up, &v.pup, &v.down}) DRV(cuGreenCtxStreamCreate(s, v.green, CU_STREAM_NON_BLOCKING, 0));
    } else {
      v.ctx = primary; v.sms = prop.multiProcessorCount;
      for (CUstream* s : {&v.compute, &v.up, &v.pup, &v.down}) DRV(cuStreamCreate(s, CU_STREAM_NON_BLOCKING));
    }
    DRV(cuCtxSetCurrent(v.ctx));                // cuBLAS handle belongs to the context current at creation
    v.cap = cap; RT(cudaMalloc((void**)&v.arena, cap)); RT(cudaMallocHost((void**)&v.host, xfer));
    memset(v.host, 0, xfer);
    BL(cublasCreate(&v.blas)); BL(cublasSetStream(v.blas, v.compute)); BL(cublasSetSmCountTarget(v.blas, v.sms));
    BL(cublasSetWorkspace(v.blas, v.take(32 << 20), 32 << 20));        // one private workspace per virtual GPU
    char* p = (char*)v.take(3 * nb); RT(cudaMemset(p, 0x3c, 2 * nb)); RT(cudaDeviceSynchronize());
    v.take(xfer);
  };
  auto gemm = [&](VGpu& v, int k) {             // row of k square bf16 products, fp32 accumulation
    DRV(cuCtxSetCurrent(v.ctx)); float one = 1, zero = 0; char* a = v.arena + (32 << 20);
    for (int i = 0; i < k; i++)
      BL(cublasGemmEx(v.blas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a, CUDA_R_16BF, n, a + nb, CUDA_R_16BF, n, &zero,
                      a + 2 * nb, CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  };
  auto h2d = [&](VGpu& v, int k) { char* d = v.arena + (32 << 20) + 3 * nb;
    for (int i = 0; i < k; i++) DRV(cuMemcpyHtoDAsync((CUdeviceptr)d, v.host, xfer, v.up)); };
  double flop = 2.0 * n * n * n * iters;
  for (unsigned i = 0; i < got; i++) {
    VGpu& v = g[i]; setup(v, &part[i]);
    unsigned* m; RT(cudaMalloc((void**)&m, 256)); RT(cudaMemset(m, 0, 256)); RT(cudaDeviceSynchronize());
    which_sm<<<4096, 128, 0, v.compute>>>(m, 20000); RT(cudaGetLastError()); DRV(cuStreamSynchronize(v.compute));
    unsigned h[64]; int c = 0; RT(cudaMemcpy(h, m, 256, cudaMemcpyDeviceToHost)); RT(cudaFree(m));
    for (int w = 0; w < 64; w++) { c += __builtin_popcount(h[w]); if (h[w] & seen[w]) disjoint = false; seen[w] |= h[w]; own[i][w] = h[w]; }
    printf("  group %u: %u SMs provisioned, %d distinct SM ids observed\n", i, v.sms, c);
  }
  printf("SM sets disjoint: %s\n", disjoint ? "yes" : "NO");
  std::vector<double> solo(got);
  for (auto& v : g) gemm(v, 3);
  DRV(cuCtxSetCurrent(primary)); RT(cudaDeviceSynchronize()); for (auto& v : g) DRV(cuStreamSynchronize(v.compute));
  for (unsigned i = 0; i < got; i++) { double t = now(); gemm(g[i], iters); DRV(cuStreamSynchronize(g[i].compute)); solo[i] = now() - t; }
  std::vector<CUevent> e0(got), e1(got);        // events made in the green context that records them
  for (unsigned i = 0; i < got; i++) { DRV(cuCtxSetCurrent(g[i].ctx)); DRV(cuEventCreate(&e0[i], 0)); DRV(cuEventCreate(&e1[i], 0)); }
  double t = now();
  for (unsigned i = 0; i < got; i++) { DRV(cuCtxSetCurrent(g[i].ctx)); DRV(cuEventRecord(e0[i], g[i].compute)); }
  for (int k = 0; k < iters; k++) for (auto& v : g) gemm(v, 1);          // interleave issue so that nobody starts late
  for (unsigned i = 0; i < got; i++) { DRV(cuCtxSetCurrent(g[i].ctx)); DRV(cuEventRecord(e1[i], g[i].compute)); }
  for (auto& v : g) DRV(cuStreamSynchronize(v.compute));
  double conc = now() - t;
  for (unsigned i = 0; i < got; i++) { float ms; DRV(cuEventElapsedTime(&ms, e0[i], e1[i]));
    printf("  group %u GEMM: solo %.1f TFLOP/s, concurrent %.1f TFLOP/s (x%.3f time)\n", i, flop / solo[i] / 1e12, flop / ms / 1e9, ms * 1e-3 / solo[i]); }
  printf("all groups together: %.1f TFLOP/s\n", flop * got / conc / 1e12);
  t = now(); h2d(g[0], 8); DRV(cuStreamSynchronize(g[0].up)); double one = now() - t;
  t = now(); for (auto& v : g) h2d(v, 8); for (auto& v : g) DRV(cuStreamSynchronize(v.up)); double many = now() - t;
  t = now(); for (int k = 0; k < iters; k++) for (auto& v : g) gemm(v, 1);
  for (auto& v : g) h2d(v, 2);
  for (auto& v : g) DRV(cuStreamSynchronize(v.up)); double mixed = now() - t;
  for (auto& v : g) DRV(cuStreamSynchronize(v.compute)); double mixedg = now() - t;
  printf("H2D GB/s: one group %.1f, all groups sum %.1f, all groups while computing >= %.1f (GEMM time x%.3f)\n", 8.0 * xfer / one / 1e9,
         8.0 * xfer * got / many / 1e9, 2.0 * xfer * got / mixed / 1e9, mixedg / conc);
  // an event recorded in one group must be able to hold back another group's stream
  DRV(cuCtxSetCurrent(g[0].ctx)); CUevent ev; DRV(cuEventCreate(&ev, CU_EVENT_DISABLE_TIMING)); DRV(cuEventRecord(ev, g[0].compute));
  DRV(cuCtxSetCurrent(g[got - 1].ctx)); DRV(cuStreamWaitEvent(g[got - 1].compute, ev, 0)); DRV(cuStreamSynchronize(g[got - 1].compute));
  printf("cross-group event wait: ok\n");
  VGpu whole; setup(whole, nullptr); gemm(whole, 3); DRV(cuStreamSynchronize(whole.compute));
  t = now(); gemm(whole, iters); DRV(cuStreamSynchronize(whole.compute)); double w = now() - t;
  printf("whole GPU: %.1f TFLOP/s; groups together reach %.1f%% of it\n", flop / w / 1e12, 100 * got * w / conc);
  // Streams of green contexts under the primary context. Last, since an error may spoil all contexts.
  DRV(cuCtxSetCurrent(primary));
  unsigned* m; RT(cudaMalloc((void**)&m, 256)); bool stays = true; int refused = 0;
  for (unsigned i = 0; i < got; i++) {
    RT(cudaMemset(m, 0, 256)); RT(cudaDeviceSynchronize());
    which_sm<<<4096, 128, 0, g[i].compute>>>(m, 20000);
    cudaError_t e = cudaGetLastError(); CUresult s = cuStreamSynchronize(g[i].compute);
    if (e != cudaSuccess || s != CUDA_SUCCESS) { refused++; printf("  group %u, primary context current: launch: %s, wait: %d\n", i, cudaGetErrorName(e), (int)s); continue; }
    unsigned h[64]; RT(cudaMemcpy(h, m, 256, cudaMemcpyDeviceToHost));
    for (int w = 0; w < 64; w++) stays = stays && !(h[w] & ~own[i][w]);
  }
  printf("primary context current: launches refused in %d of %u groups, %s\n", refused, got,
         refused == (int)got ? "SMs not seen" : stays ? "kernels stay on their group's SMs" : "kernels LEAVE their group's SMs");
  CUevent pe; DRV(cuEventCreate(&pe, 0));
  printf("primary context current: its event in a group's stream: %d (0: recorded)\n", (int)cuEventRecord(pe, g[0].compute));
  cublasHandle_t pb; BL(cublasCreate(&pb)); cublasStatus_t bs = cublasSetStream(pb, g[0].compute); float p1 = 1, p0 = 0; char* pa = g[0].arena + (32 << 20);
  if (bs == CUBLAS_STATUS_SUCCESS) bs = cublasGemmEx(pb, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &p1, pa, CUDA_R_16BF, n, pa + nb, CUDA_R_16BF, n, &p0, pa + 2 * nb, CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  printf("primary context current: cuBLAS in a group's stream: %d (0: done), wait %d\n", (int)bs, (int)cuStreamSynchronize(g[0].compute));
  for (bool turns : {true, false}) {
    double s = 0; int calls = 20000, errors = from_threads(g, primary, turns, calls, &s);
    printf("%u threads that enqueue, %s: %d errors, %.2f us per call and thread\n", 2 * got, turns ? "own contexts in turns" : "primary context, no turns", errors, 1e6 * s / calls);
  }
  if (cudaDeviceSynchronize() != cudaSuccess) { printf("the contexts are spoiled\n"); return 0; }
  BL(cublasDestroy(pb)); RT(cudaFree(m));
  for (auto& v : g) { DRV(cuCtxSetCurrent(v.ctx)); BL(cublasDestroy(v.blas));
    for (CUstream s : {v.compute, v.up, v.pup, v.down}) DRV(cuStreamDestroy(s));
    RT(cudaFree(v.arena)); RT(cudaFreeHost(v.host)); }
  DRV(cuCtxSetCurrent(primary)); for (auto& v : g) DRV(cuGreenCtxDestroy(v.green));
  return 0;
}
