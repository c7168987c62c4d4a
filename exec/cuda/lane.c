#include "exec/cuda/lane.h"

#include "common/base/log.h"
#include "exec/cuda/cublas.h"
#include "exec/cuda/cudnn.h"
#include "exec/cuda/kernels/kernels.h"

#include <string.h>

rp_status rpexec_cuda_check(cudaError_t error, const char *call, const char *file, int line)
{
    if (error == cudaSuccess) {
        return RP_OK;
    }
    bool is_full = error == cudaErrorMemoryAllocation;
    rp_log_error("%s:%d: %s: %s (%s)%s", file, line, call, cudaGetErrorString(error),
                 cudaGetErrorName(error),
                 is_full
                     ? rp_log_spell("; lower {gpu_memory_mb}, {microbatch_size} or {seq_len}").text
                     : "");
    return is_full ? RP_NO_MEMORY : RP_TOOL;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The longest bias of a linear layer; biases of experts are summed without scratch. */
static size_t longest_bias(const rp_model *model)
{
    bool of_queries = model->qkv_bias || model->attention_bias;
    size_t queries = of_queries ? (size_t)model->heads * model->head_dim : 0;
    size_t router = model->expert_bias ? model->experts : 0;
    return larger(larger(queries, router), model->mlp_bias ? model->intermediate : 0);
}

size_t rpexec_cuda_scratch_bytes(const rp_model *model, uint64_t tokens)
{
    uint64_t rows = tokens * larger(model->heads, 1); /* for the norms of queries */
    size_t width = larger(model->hidden, longest_bias(model));
    size_t norm = rpexec_cuda_norm_parts(tokens) * width * sizeof(float);
    size_t head_norm = rpexec_cuda_norm_parts(rows) * (size_t)model->head_dim * sizeof(float);
    size_t attention = 2 * rows * sizeof(float);
    size_t loss = tokens * sizeof(double);
    size_t ids = rpexec_cuda_embed_scratch(tokens);
    return larger(larger(larger(norm, head_norm), larger(attention, loss)),
                  larger(ids, RPEXEC_CUDA_SQUARES_SCRATCH));
}

static rp_status allocate(const rpexec_cuda_lane_config *config, rp_arena *arena, rpexec_lane *lane)
{
    RPEXEC_CUDA_TRY(cudaMalloc((void **)&lane->scratch, larger(config->scratch_bytes, 256)));
    lane->scratch_bytes = larger(config->scratch_bytes, 256);
    RPEXEC_CUDA_TRY(cudaHostAlloc(&lane->pinned, sizeof(rpexec_squares), cudaHostAllocDefault));
    if (!lane->own_products) {
        RPEXEC_CUDA_TRY(cudaMalloc(&lane->workspace, RPEXEC_CUDA_WORKSPACE));
        RP_TRY(rpexec_cublas_open(lane, arena, &lane->cublas));
    }
    return RP_OK;
}

rp_status rpexec_cuda_lane_open(const rpexec_cuda_lane_config *config, rp_arena *arena,
                                rpexec_lane *lane_out)
{
    rpexec_lane lane = {.dtype = config->dtype,
                        .stream = config->stream,
                        .sm_count = config->sm_count,
                        .half_accumulation = config->half_accumulation,
                        .own_products = config->own_products};
    rp_status status = allocate(config, arena, &lane);
    if (status != RP_OK) {
        rpexec_cuda_lane_close(&lane);
        return status;
    }
    *lane_out = lane;
    return RP_OK;
}

rp_status rpexec_cuda_lane_plan_attention(rpexec_lane *lane, rp_arena *arena,
                                          const rpexec_attention_sizes *sizes, const char **why_out)
{
    size_t bytes = lane->workspace != NULL ? RPEXEC_CUDA_WORKSPACE : 0;
    if (lane->cudnn == NULL) {
        RP_TRY(rpexec_cudnn_open(lane->dtype, lane->stream, lane->workspace, bytes, arena,
                                 &lane->cudnn, why_out));
    }
    return rpexec_cudnn_plan_for(lane->cudnn, sizes, why_out);
}

void rpexec_cuda_lane_own_attention(rpexec_lane *lane)
{
    rpexec_cudnn_close(lane->cudnn);
    lane->cudnn = NULL;
}

void rpexec_cuda_lane_close(rpexec_lane *lane)
{
    rpexec_cudnn_close(lane->cudnn);
    rpexec_cublas_close(lane->cublas);
    (void)cudaFree(lane->workspace); /* NULL is allowed */
    (void)cudaFree(lane->scratch);
    if (lane->pinned != NULL) {
        (void)cudaFreeHost(lane->pinned);
    }
    memset(lane, 0, sizeof *lane);
}
