# Compares two rows of benchmarks.csv: the same work with weights that come for each job and with weights that stay.
# Programs whose executed FLOP differ by more than 1 % do not compare, whatever their times are.
# usage: awk -F, -v offloaded=CASE -v resident=CASE [-v bound=95] -f pair.awk benchmarks.csv
# Prints: passed, failed or skipped, and why.
NR > 1 { ms[$1] = $3 + 0; tflop[$1] = $4 + 0 }
END {
    if (bound == "") {
        bound = 95
    }
    if (!(ms[offloaded] > 0 && ms[resident] > 0)) {
        print "skipped " (ms[offloaded] > 0 ? resident : offloaded) " has not run"
        exit
    }
    work = sprintf("%.6g and %.6g TFLOP executed per step", tflop[offloaded], tflop[resident])
    if (!(tflop[resident] > 0)) {
        print "failed not compared: nothing says what was executed"
        exit
    }
    apart = 100 * (tflop[offloaded] / tflop[resident] - 1)
    if (apart > 1 || apart < -1) {
        printf "failed not compared: unequal work, %s, %+.1f %%\n", work, apart
        exit
    }
    share = 100 * (tflop[offloaded] / ms[offloaded]) / (tflop[resident] / ms[resident])
    printf "%s %.1f %% of the resident FLOP/s: %s in %.3f and %.3f ms, %.1f and %.1f TFLOP/s\n",
        (share >= bound) ? "passed" : "failed", share, work, ms[offloaded], ms[resident],
        1e3 * tflop[offloaded] / ms[offloaded], 1e3 * tflop[resident] / ms[resident]
}
