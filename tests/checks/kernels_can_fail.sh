#!/usr/bin/env bash
# The emulator's comparison of CUDA operators with the host's (cuda.emulated), or the emulator under ThreadSanitizer
# (cuda.races), must notice errors in the kernels: below is a list of their texts and of what stands in their place.
# Each kernel is compiled with its error, and the named operator must fail. A text must be found exactly once, so that
# the list keeps up with the kernels. RP_LONG=1 tries all errors, everyday runs the first two; KERNEL_ERRORS=TEXT tries
# those with the text in their file, operator or description. Release only: other builds would compile the same.
set -euo pipefail
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
tests=exec/cuda/tests
if [ ! -x "$build/$tests/emulated_compare" ] || [ ! -x "$build/$tests/emulated_races" ]; then
    echo "skipped: no emulated CUDA operators in this build"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
RPEXEC_CUBLASLT=$(compgen -G "$build/$tests/libemulated_cublas.*") ||
    { echo "libemulated_cublas is not built"; exit 1; }
export RPEXEC_CUBLASLT RPEXEC_CUDNN=none TSAN_OPTIONS=exitcode=66 OPENBLAS_NUM_THREADS=1
failures=0
errors=0
tried=0

# link_command PROGRAM: how the build links an executable of the tests, to be run in the build folder.
link_command()
{
    if [ -f "$build/build.ninja" ]; then
        ninja -C "$build" -t commands "$1" | tail -n 1
    else
        echo "cd $tests && $(cat "$build/$tests/CMakeFiles/$1.dir/link.txt")"
    fi
}

# build_with PROGRAM LIBRARY UNIT: $work/program is PROGRAM with the kernels of UNIT, an object of LIBRARY, compiled
# from $work/tree where it has files of the same names.
build_with()
{
    local object=CMakeFiles/$2.dir/__/kernels/$3.o compile link unit=$source/exec/cuda/kernels/$3
    compile=$(sed -n 's/^ *"command": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" | grep -F "$object")
    compile=${compile%% -o *}
    [ ! -f "$work/tree/exec/cuda/kernels/$3" ] || unit=$work/tree/exec/cuda/kernels/$3
    (cd "$build" && eval "${compile/ -I/ -I$work/tree -I} -o $work/object.o -c $unit") >"$work/said" 2>&1 || return 1
    [ -f "$work/link_$1" ] || link_command "$1" >"$work/link_$1"
    link=$(cat "$work/link_$1")
    link=${link/$tests\/$object/$work/object.o}
    link=${link/ $object/ $work/object.o}
    link=${link/ -o *$1 / -o $work/program }
    (cd "$build" && eval "$link") >>"$work/said" 2>&1 && [ -x "$work/program" ]
}

# breaks FILE[:UNIT] FAMILY TYPE EXPECTED DESCRIPTION OLD NEW: with NEW instead of OLD in FILE and the kernels of UNIT
# (FILE where it is no header) compiled with it, the comparison of FAMILY and TYPE fails in the operator EXPECTED, or
# says EXPECTED where that has a colon. FAMILY races/NAME: the same under ThreadSanitizer, which reports a race.
breaks()
{
    local file=${1%:*} unit=${1#*:} family=${2#races/} what="$1, $4: $5" old=$6 new=$7 text without status=0
    local program=emulated_compare library=rp_emulated
    local expected="^$4[ ,].*tensor [0-9]+: .*(times what is allowed|leaves other bits|written outside)"
    text=$(<"$source/exec/cuda/kernels/$file")
    errors=$((errors + 1))
    without=${text/"$old"/}
    if [[ $text != *"$old"* || $without == *"$old"* ]]; then
        echo "$what: its text is not found exactly once; bring the error up to date: $old"
        failures=$((failures + 1))
        return
    fi
    case "$what" in *"${KERNEL_ERRORS:-}"*) ;; *) return ;; esac
    if [ "${RP_LONG:-0}" != 1 ] && [ -z "${KERNEL_ERRORS:-}" ] && [ "$errors" -gt 2 ]; then
        return
    fi
    if [ "$family" != "$2" ]; then
        program=emulated_races library=rp_raced_kernels expected="WARNING: ThreadSanitizer: data race"
    elif [ "${4#*:}" != "$4" ]; then
        expected=$4
    fi
    tried=$((tried + 1))
    rm -rf "$work/tree" "$work/program"
    mkdir -p "$work/tree/exec/cuda/kernels"
    echo "${text/"$old"/"$new"}" >"$work/tree/exec/cuda/kernels/$file"
    if ! build_with $program $library "$unit"; then
        echo "$what: does not compile"
        cat "$work/said"
        failures=$((failures + 1))
        return
    fi
    { timeout 120 "$work/program" "$family" "$3" >"$work/output" 2>&1 || status=$?; } 2>/dev/null
    if [ $status -eq 0 ] || ! grep -qE -- "$expected" "$work/output"; then
        echo "$what: not noticed (exit status $status, \"$expected\" is not said)"
        tail -n 5 "$work/output"
        failures=$((failures + 1))
    else
        echo "$what: $(grep -m 1 -E -- "$expected" "$work/output")"
    fi
}

# ---- attention
breaks attention_half.cuh:attention_half_backward.cu attention bf16 attention_backward "heads without sequences" \
    '(uint64_t)head * s.sequences * s.seq_len + token' '(uint64_t)head * s.seq_len + token'
breaks products_half.cu products bf16 linear "the result's memory instead of the base's" \
    'base != nullptr ? base + at : nullptr' 'base != nullptr ? p.c + at : nullptr'
breaks attention.cu attention bf16 join_sinks "the sink of the token's number" \
    'float sink = widen(sinks[row % heads]);' 'float sink = widen(sinks[row / heads % heads]);'
breaks attention.cu attention bf16 sinks_weight "gradients of sinks with the other sign" \
    'slopes[row] = -expf(' 'slopes[row] = expf('
breaks attention.cu attention bf16 attention_backward "logsumexp not in powers of two" \
    'sums[at] = logsumexp[row] * RPEXEC_LOG2_E;' 'sums[at] = logsumexp[row];'
breaks attention.cu attention bf16 attention_backward "sums by token, not by head" \
    'sums[rows + at] = sum;' 'sums[rows + row] = sum;'
breaks attention.cu attention fp32 attention_backward "sums of a long head's first columns only" \
    'column < head_dim; column += 32 * N' 'column < head_dim; column += head_dim'
breaks attention.cu attention bf16 "emulator: .*not aligned" "alignment of one tensor of two" \
    'aligned(lane * sizeof(T), o, d_o)' 'aligned(lane * sizeof(T), o)'
breaks attention_half_backward.cu attention bf16 attention_backward "the last query that a key's window has" \
    's.seq_len : key_end + s.window - 1;' 's.seq_len : key_end + s.window - 2;'
breaks attention_half_backward.cu attention bf16 attention_backward "the group's first head only" \
    'fetch_queries<HEAD>(view_of<T>(s, blockIdx.z, head), later' \
    'fetch_queries<HEAD>(view_of<T>(s, blockIdx.z, blockIdx.y * group), later'
breaks attention_half_backward.cu attention bf16 attention_backward "dk without the scale" \
    'dp[n][half * 2 + i] = weight * (dp[n][half * 2 + i] - sum) * scale;' \
    'dp[n][half * 2 + i] = weight * (dp[n][half * 2 + i] - sum);'
breaks attention_half_backward.cu attention bf16 attention_backward "dq without the scale" \
    'dp[n][i] = weight * (dp[n][i] - sum[i / 2]) * scale;' 'dp[n][i] = weight * (dp[n][i] - sum[i / 2]);'
breaks attention_half_backward.cu attention bf16 attention_backward "sums of the other half's queries" \
    'dp[n][i] = weight * (dp[n][i] - sum[i / 2]) * scale;' 'dp[n][i] = weight * (dp[n][i] - sum[0]) * scale;'
breaks attention_half_backward.cu attention bf16 attention_backward "a mask for half of the keys" \
    'sees_all(h, query, 16, key, LINES)' 'sees_all(h, query, 16, key, LINES / 2)'
breaks attention_half_backward.cu attention bf16 attention_backward "a mask for half of the queries" \
    'sees_all(h, query, LINES, key, 16)' 'sees_all(h, query, LINES / 2, key, 16)'
breaks attention_half_backward.cu attention bf16 attention_backward "floats of the stage before" \
    'floats + (stage ^ 1) * 2 * LINES' 'floats + stage * 2 * LINES'
breaks attention_half_backward.cu attention bf16 "emulator: .*copies that nobody waits for" \
    "copies of the next stage waited for too late" \
    'copies_wait<1>();
        __syncthreads();
        multiply_lines<HEAD, LINES>(keys' 'copies_wait<2>();
        __syncthreads();
        multiply_lines<HEAD, LINES>(keys'
breaks attention_half_backward.cu attention bf16 attention_backward "a last block of keys without its last" \
    'key + LINES, end, 0, HEAD, true,
                                      next);' 'key + LINES, end - 1, 0, HEAD, true,
                                      next);'
breaks attention_half_backward.cu attention bf16 attention_backward "keys beyond the sequence stored" \
    'store_lines<HEAD>(to_keys, one, row, key_end' 'store_lines<HEAD>(to_keys, one, row, key_end + 1'
breaks attention_half_backward.cu races/attention bf16 race "stages of keys filled while they are read" \
    'query = later;
        __syncthreads(); /* the next round fills this stage again */' 'query = later;'
breaks attention_half_backward.cu races/attention bf16 race "stages of queries filled while they are read" \
    'to_queries);
        __syncthreads(); /* the next round fills this stage again */' 'to_queries);'
breaks attention_half_backward.cu races/attention bf16 race "tiles that stay overwritten" \
    'row, kept_b);
    __syncthreads();' 'row, kept_b);'
breaks attention_half.cuh:attention_half.cu attention bf16 attention "the first key of a window" \
    '(query + 1 - h.window) / block * block' '(query + 2 - h.window) / block * block'
breaks attention_half.cuh:attention_half_backward.cu attention bf16 attention_backward "the first key of a window" \
    '(query + 1 - h.window) / block * block' '(query + 2 - h.window) / block * block'
breaks attention_half.cuh:attention_half_backward.cu attention bf16 attention_backward "a window's last key" \
    'query + queries - 1 - key < h.window' 'query + queries - 2 - key < h.window'
breaks attention_half.cuh:attention_half.cu attention bf16 attention "a window's last key" \
    'query + queries - 1 - key < h.window' 'query + queries - 2 - key < h.window'
breaks attention_half.cuh:attention_half.cu attention bf16 attention "logsumexp of the first head" \
    'h.row_at = token * s.heads + head;' 'h.row_at = token * s.heads;'
breaks attention_half.cu attention bf16 attention "tokens' logsumexp one after the other" \
    'h.row_at + (uint64_t)line * h.heads' 'h.row_at + line'
breaks attention_half.cu attention bf16 attention "the sum so far does not shrink" \
    'rows->sum[half] * shrink + sum' 'rows->sum[half] + sum'
breaks attention_half.cu attention bf16 attention "logsumexp without the scale" \
    'rows.most[half] * scale + logf(sum)' 'rows.most[half] + logf(sum)'
breaks attention_half.cu races/attention bf16 race "values overwritten while they are read" \
    '__syncthreads(); /* the keys are there, and nobody reads the values before any more */' ''
breaks attention_half.cu refusals bf16 "emulator: .*not aligned" "alignment without o's" \
    '!aligned(16, q, k, v, o)' '!aligned(16, q, k, v)'
breaks attention_half_backward.cu refusals bf16 "emulator: .*not aligned" "alignment without dv's" \
    '!aligned(16, q, k, v, d_o, dq, dk, dv)' '!aligned(16, q, k, v, d_o, dq, dk)'
breaks attention.cu attention fp32 attention "scores without their cap" \
    'float score = capped(dot(query, other) * scale, s.cap);
        float now' 'float score = dot(query, other) * scale;
        float now'
breaks attention.cu attention fp32 attention_backward "dq without the slope of the cap" \
    'float slope = scale * slope_of_cap(score, s.cap);' 'float slope = scale;'
breaks attention.cu attention fp32 attention_backward "dk without the slope of the cap" \
    '* scale * slope_of_cap(score, s.cap);' '* scale;'
breaks device.cuh:attention.cu attention fp32 attention "caps that cut" \
    'cap * tanhf(x / cap) : x' 'fminf(x, cap) : x'
# ---- norms
breaks norm.cu values bf16 rms_norm "weights without the 1 that they are stored less" \
    'in[i] = in[i] * scale * (w[i] + one);' 'in[i] = in[i] * scale * w[i];'
breaks norm.cu values bf16 rms_norm_input "sums without the 1 that weights are stored less" \
    'sum += from[i] * (w[i] + one) * in[i];' 'sum += from[i] * w[i] * in[i];'
breaks norm.cu values bf16 rms_norm_input "the base is lost" \
    'old[i] += scale * from[i]' 'old[i] = scale * from[i]'
breaks norm.cu values bf16 rms_norm_input "the base's first row for all" \
    'load<N>(base + at + j' 'load<N>(base + j'
breaks norm.cu values fp32 rms_norm_input "dx instead of the base" \
    'load<N>(base + at + j' 'load<N>(dx + at + j'
breaks norm.cu values bf16 "emulator: .*not aligned" "alignment without the base's" \
    'aligned(16, x, weight, dy, base, dx)' 'aligned(16, x, weight, dy, dx)'
breaks norm.cu values bf16 rms_norm_weight "parts added twice" \
    'i += SUM_WARPS)' 'i += SUM_WARPS / 2)'
breaks norm.cu values bf16 rms_norm_weight "the first part of each warp only" \
    'i < count; i += SUM_WARPS' 'i < SUM_WARPS && i < count; i += SUM_WARPS'
breaks norm.cu values bf16 rms_norm_weight "a tree without barriers" \
    '__syncthreads();
        if (warp < half) {' 'if (warp < half) {'
breaks norm.cu races/values bf16 race "a tree without barriers" \
    '__syncthreads();
        if (warp < half) {' 'if (warp < half) {'
breaks norm.cu values bf16 rms_norm_weight "the old gradient is lost" \
    'narrow(widen(dweight[column]) + sums[0][lane]' 'narrow(sums[0][lane]'
breaks norm.cu values bf16 rms_norm_weight "fp32 sums as if they were of 16 bits" \
    'launch(norm_weight_sum<float>, (width + 31) / 32, SUM_WARPS * 32, 0, target->stream,
                      count, width, parts, static_cast<float *>(static_cast<void *>(sums)))' \
    'launch(norm_weight_sum<T>, (width + 31) / 32, SUM_WARPS * 32, 0, target->stream,
                      count, width, parts, sums)'
breaks norm.cu values fp32 rms_norm_weight "columns beyond a multiple of 32" \
    'launch(norm_weight_sum<T>, (width + 31) / 32' 'launch(norm_weight_sum<T>, (width + 30) / 32'
# ---- products
breaks products_half.cu products bf16 linear "the base's halves exchanged" \
    'first = widen(T{(uint16_t)old}) + first;' 'first = widen(T{(uint16_t)(old >> 16)}) + first;'
breaks products_half.cu products bf16 linear "no base for the last column" \
    'narrow(base != nullptr ? widen(base[1]) + second : second' 'narrow(second'
breaks products_half.cu products bf16 linear_weight "every other fp32 sum begins anew" \
    'from[1] += old[1];' ''
breaks products_half.cu products bf16 linear_weight "fp32 sums rounded to 16 bits" \
    'put(p.c + at, sum[i][j][half * 2],' 'T low;
                    narrow(sum[i][j][half * 2], &low);
                    put(p.c + at, widen(low),'
breaks products_half.cu products bf16 linear "rounded before the base is added" \
    'first = widen(T{(uint16_t)old}) + first;' 'T low;
            narrow(first, &low);
            first = widen(T{(uint16_t)old}) + widen(low);'
breaks products_half.cu products bf16 linear_weight "16 bits where fp32 is asked for" \
    'products->wide ? products_of<T, float>' 'false ? products_of<T, float>'
breaks products_half.cu products bf16 "emulator: .*not aligned" "pairs of fp32 by the alignment of 16 bits" \
    'aligned(2 * sizeof(S), c, products->base)' 'aligned(2 * sizeof(T), c, products->base)'
breaks products_half.cu products bf16 "emulator: .*not aligned" "alignment without the base's" \
    'aligned(2 * sizeof(S), c, products->base)' 'aligned(2 * sizeof(S), c)'
breaks products_half.cu experts bf16 experts_linear_weight "the first expert's matrix for all" \
    '(weight ? t.matrix : 0) + m * c_pitch + n' 'm * c_pitch + n'
breaks products.cu products fp32 linear "the result's memory instead of the base's" \
    'base[at] + sum[i][j]' 'p.c[at] + sum[i][j]'
breaks products.cu products fp32 linear "the base is lost" \
    'base != nullptr ? base[at] + sum[i][j] : sum[i][j]' 'sum[i][j]'
# ---- one value at a time
breaks device.cuh:values.cu values bf16 swiglu "the logistic function of the wrong sign" \
    'reciprocal(1.0f + expf(-x))' 'reciprocal(1.0f + expf(x))'
breaks values.cu values bf16 swiglu "swiglu without up" \
    '*y = g * sigmoid(g) * u;' '*y = g * sigmoid(g);'
breaks values.cu values bf16 swiglu_backward "the derivative of the logistic function" \
    'sigma * (1.0f + g * (1.0f - sigma))' 'sigma * (1.0f + g * sigma)'
breaks values.cu values bf16 geglu "geglu without the cube" \
    '*y = g * gelu_sigmoid(g) * u' '*y = g * sigmoid(GELU_SLOPE * g) * u'
breaks values.cu values bf16 geglu_backward "the derivative of the cube" \
    '1.0f + 3.0f * GELU_CUBE * g * g' '1.0f + GELU_CUBE * g * g'
breaks values.cu values bf16 rotate "partners half a head away" \
    'uint32_t half = turned / 2;
    uint32_t per_head' 'uint32_t half = head_dim / 2;
    uint32_t per_head'
breaks values.cu values bf16 add_bias "rows that do not begin at a pack" \
    'column = column + 1 < width ? column + 1 : 0' 'column = column + 1'
breaks values.cu values fp32 add_bias "the bias's first values for all columns" \
    'load<N>(bias + column' 'load<N>(bias'
breaks norm.cu values bf16 bias_weight "sums of a bias scaled" \
    'float factor = 1.0f;' 'float factor = 2.0f;'
breaks values.cu values bf16 rotate "angles beyond the sequence" \
    'head / heads % seq_len' 'head / heads'
breaks values.cu values bf16 rotate "the inverse turns forward" \
    'sign * sines[angle + j]' 'sines[angle + j]'
breaks values.cu values bf16 "emulator: .*not aligned" "packs counted as pairs" \
    '(uint32_t)((I)at % per_head) * N' '(uint32_t)((I)at % per_head)'
breaks values.cu values bf16 add_sums "gradients replaced" \
    'to[j] += from[j];' 'to[j] = from[j];'
breaks values.cu values bf16 add_sums "sums rounded before they are added" \
    'to[j] += from[j];' 'T low; narrow(from[j], &low); to[j] += widen(low);'
breaks values.cu values bf16 add_sums "a tail stored as a whole pack" \
    'store<N>(to, count - i, whole, gradients + i);' 'store<N>(to, N, whole, gradients + i);'
breaks values.cu values bf16 "emulator: .*not aligned" "add_sums: alignment without the gradients'" \
    'sums) &&
                     aligned(16, gradients);' 'sums);'
breaks values.cu values bf16 "emulator: .*not aligned" "swiglu: alignment without up's" \
    'aligned(16, gate, up, s)' 'aligned(16, gate, s)'
# ---- tokens
breaks tokens.cu tokens bf16 embed "every token the first one's row" \
    'load<N>(table + (uint64_t)id * width + j' 'load<N>(table + (uint64_t)ids[0] * width + j'
breaks tokens.cu tokens bf16 embed "a row's tail stored as a whole pack" \
    'store<N>(row, width - j, whole, x + t * width + j);' 'store<N>(row, N, whole, x + t * width + j);'
breaks tokens.cu tokens bf16 embed "a warp's tokens descending" \
    'at + (uint32_t)__popc(bits & lower)' 'at + (uint32_t)__popc(bits & ~lower) - mine'
breaks tokens.cu races/tokens bf16 race "counts of warps overwritten while they are read" \
    'bins.order[place] = (uint32_t)t;
        }
        __syncthreads();' 'bins.order[place] = (uint32_t)t;
        }'
breaks tokens.cu tokens bf16 embed "ids that a block has seen before the last 256" \
    'for (uint32_t first = begin; first < place; first += BLOCK) {
        uint32_t at' 'for (uint32_t first = begin; first == begin && first < place; first += BLOCK) {
        uint32_t at'
breaks tokens.cu tokens bf16 embed "an id's first token twice" \
    'sum[i] += in[i];
                }
            }' 'sum[i] += first == place && word == 0 && rest == matches[0] ? 2 * in[i] : in[i];
                }
            }'
breaks tokens.cu tokens bf16 embed "the tokens of the first 256 of a bin only" \
    'for (uint32_t first = place; first < end; first += BLOCK)' 'for (uint32_t first = place; first < end; first = end)'
breaks tokens.cu tokens bf16 embed "descending tokens" \
    'for (uint32_t word = 0; word < BLOCK / 32; word++) {
            for (uint32_t rest' 'for (uint32_t word = BLOCK / 32; word-- > 0;) {
            for (uint32_t rest'
breaks tokens.cu tokens bf16 embed "fp32 sums as if they were of 16 bits" \
    'launch(embed_weight<T, float>, grid, BLOCK, 0, target->stream, width, near, bins,
                          static_cast<const T *>(dx), static_cast<float *>(dtable)' \
    'launch(embed_weight<T, T>, grid, BLOCK, 0, target->stream, width, near, bins,
                          static_cast<const T *>(dx), static_cast<T *>(dtable)'
breaks tokens.cu tokens bf16 embed "sums rounded to 16 bits after every token" \
    'sum[i] += in[i];
                }
            }' 'T low;
                    narrow(sum[i] + in[i], &low);
                    sum[i] = widen(low);
                }
            }'
breaks tokens.cu tokens bf16 "emulator: .*not aligned" "fp32 tables by the alignment of dx" \
    'bool whole = aligned(16, dx) && aligned(sizeof(pack<float, N>), dtable);' 'bool whole = aligned(16, dx);'
breaks tokens.cu tokens bf16 cross_entropy "the sum so far does not shrink" \
    'sum *= expf(most - here);' ''
breaks tokens.cu tokens bf16 cross_entropy "what is beyond the vocabulary counts" \
    'sum += j + i < vocab ? expf(in[i] - most) : 0.0f;' 'sum += expf(in[i] - most);'
breaks tokens.cu tokens bf16 cross_entropy "zeros beyond the vocabulary are the largest" \
    'here = j + i < vocab ? fmaxf(here, in[i]) : here;' 'here = fmaxf(here, in[i]);'
breaks tokens.cu tokens bf16 cross_entropy "threads' sums by their own largest" \
    '(double)sum * (double)expf(mine - most)' '(double)sum'
breaks tokens.cu races/tokens bf16 race "the largest of warps that have not come yet" \
    'mosts[threadIdx.x / 32] = most;
    }
    __syncthreads();' 'mosts[threadIdx.x / 32] = most;
    }'
breaks tokens.cu tokens bf16 cross_entropy "the label's logit after it is overwritten" \
    'losses[row] = ignored ? 0.0 : log(total) + (double)most - (double)own;' \
    'losses[row] = ignored ? 0.0 : log(total) + (double)most - (double)widen(z[label]);'
breaks tokens.cu tokens bf16 cross_entropy "the gradient of capped logits" \
    '(j + i == label ? own : 0.0f)) * slope;' '(j + i == label ? own : 0.0f));'
breaks tokens.cu tokens bf16 cross_entropy_part "the label's logit without its cap" \
    'mine ? capped(widen(z[label]), cap) : 0.0f' 'mine ? widen(z[label]) : 0.0f'
breaks tokens.cu tokens bf16 cross_entropy "the loss so far is lost" \
    '*loss += sum;' '*loss = sum;'
breaks tokens.cu tokens bf16 cross_entropy_part "parts' sums by their own largest" \
    '* (double)expf(statistics[i * stride] - most);' ';'
breaks tokens.cu races/tokens bf16 race "the label's logit while it is overwritten" \
    '__syncthreads(); /* everybody has read the label'"'"'s logit */' ''
# ---- experts
breaks experts.cu experts bf16 experts_swiglu "rows without their weights" \
    'r.weights[row] * (g[k] * sigmoid(alpha * g[k]) * u[k])' 'g[k] * sigmoid(alpha * g[k]) * u[k]'
breaks experts.cu experts bf16 experts_swiglu "ups without the 1 that is added" \
    '*up += limit == 0.0f ? 0.0f : 1.0f;' ''
breaks experts.cu experts bf16 experts_swiglu_backward "gradients of gates beyond the limit" \
    'to_gate[k] = gate_moves ? weighted * u[k] * slope : 0.0f;' 'to_gate[k] = weighted * u[k] * slope;'
breaks experts.cu experts bf16 experts_bias "the bias of the expert behind" \
    'bias + (uint64_t)expert_of(r, row) * width + j' 'bias + ((uint64_t)expert_of(r, row) + 1) % r.experts * width + j'
breaks experts.cu experts bf16 experts_bias_input "gradients of weights are lost" \
    'dweights[row] += (float)sum;' 'dweights[row] = (float)sum;'
breaks experts.cu experts bf16 experts_bias_weight "rows without their weights" \
    'sum += weighted ? r.weights[row] * d : d;' 'sum += d;'
breaks experts.cu experts bf16 experts_swiglu_backward "dup without the row's weight" \
    'to_up[k] = up_moves ? weighted * g[k] * sigma : 0.0f;' 'to_up[k] = up_moves ? d[k] * g[k] * sigma : 0.0f;'
breaks experts.cu experts bf16 experts_swiglu_backward "the weight's own gradient with the weight" \
    'sum += (double)(d[k] * g[k] * sigma * u[k]);' 'sum += (double)(weighted * g[k] * sigma * u[k]);'
breaks experts.cu experts bf16 "emulator: .*not aligned" "alignment without dup's" \
    'aligned(16, gate, up, ds, dgate, dup) && width' 'aligned(16, gate, up, ds, dgate) && width'
echo "$errors errors, $tried tried, $failures unexpected"
[ $failures -eq 0 ]
