# Rows of the summary from the boxes: makespan, idle share, and beside the makespan its closed form
# (schedules.md) from durations and numbers found in the boxes. Variable: forms (a CSV file
# of picture, schedule and form).
#
# N GPUs, M microbatches, I iterations; F, B, R, W: longest forward, backward (inputs' part where it is
# in two), recompute and weight gradient of one op; S: stages, K: stages per GPU.

function form(text)
{
    if (text == "(M+N-1)(F+B)") return (M + N - 1) * (F + B)
    if (text == "(KM+N-1)(F+R+B)") return (K * M + N - 1) * (F + R + B)
    if (text == "KM(F+B+W)+(N-1)(F+B-W)") return K * M * (F + B + W) + (N - 1) * (F + B - W)
    if (text == "KM(F+B+W)+(N-1)F") return K * M * (F + B + W) + (N - 1) * F
    if (text == "KM(F+B)+(N-1)(F+2B-3W)") return K * M * (F + B) + (N - 1) * (F + 2 * B - 3 * W)
    if (text == "(ISM/N+N-1)F") return (I * S * M / N + N - 1) * F
    if (text == "") return ""
    print "20-schedule-diagrams: no form " text > "/dev/stderr"
    failed = 1
    exit 1
}

function finish(    expected)
{
    if (schedule == "") {
        return
    }
    K = S / N
    if (!(schedule in picture)) {
        print "20-schedule-diagrams: no picture for " schedule > "/dev/stderr"
        failed = 1
        exit 1
    }
    expected = form(forms_of[schedule])
    printf "%s,%s,%d,%d,%d,%d,%g,%s,%s,%s,%.6f\n", picture[schedule], schedule, N, M, S, I, makespan, \
        forms_of[schedule], expected == "" ? "" : sprintf("%g", expected), \
        expected == "" ? "" : sprintf("%g", makespan - expected), 100 * (1 - busy / (N * makespan))
}

BEGIN {
    FS = ","
    while ((getline line < forms) > 0) {
        split(line, cell, ",")
        picture[cell[2]] = cell[1]
        forms_of[cell[2]] = cell[3]
    }
    print "picture,schedule,gpus,microbatches,stages,iterations,makespan,form,form_value,difference,bubble_pct"
}

FNR == 1 { next }

$1 != schedule {
    finish()
    schedule = $1
    N = M = S = I = makespan = busy = F = B = R = W = 0
}

{
    length_of = $8 - $7
    N = $2 >= N ? $2 + 1 : N
    S = $4 >= S ? $4 + 1 : S
    M = $5 >= M ? $5 + 1 : M
    I = $6 >= I ? $6 + 1 : I
    makespan = $8 > makespan ? $8 : makespan
    busy += length_of
    if ($3 == "F" && length_of > F) F = length_of
    if (($3 == "B" || $3 == "I") && length_of > B) B = length_of
    if ($3 == "R" && length_of > R) R = length_of
    if ($3 == "W" && length_of > W) W = length_of
}

END {
    if (!failed) {
        finish()
    }
}
