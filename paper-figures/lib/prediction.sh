# Sourced after figure.sh: rppredict's answers, and the tables of the figures that rest on them.
# A failure inside $(...) ends the figure; so does a failure in `x=$(...)`, but not in an argument.
shopt -s inherit_errexit
published=$paper/published
# Measured values that nobody has published, to stand beside predictions.
measured=${RP_MEASURED:-$paper/measured}
# Draws of each interval, if fewer than rppredict's are enough.
intervals=(${RP_INTERVALS:+--intervals "$RP_INTERVALS"})
workspace

# kept FILE ARGUMENT...: rppredict's output for these arguments, in OUTDIR/FILE. Several figures need it: it is kept
# while the program and all its data have the same checksums.
kept()
{
    local file=$out/$1 key
    shift
    key=$(cat "$bin/rppredict" "$published"/*.csv "$traces"/{configs,costs,gpus,layers,models,partitions,platforms}/* "$traces"/ranges.csv "$paper"/lib/cells/*.csv "$paper"/*/cells.csv |
        cksum)
    key+=" $*"
    if [ ! -s "$file" ] || [ "$(cat "$file.key" 2> /dev/null)" != "$key" ]; then
        rm -f "$file" "$file.key"
        "$bin/rppredict" "$@" > "$work/kept"
        mv "$work/kept" "$file"
        echo "$key" > "$file.key"
    fi
}

# predicted: a file with rppredict's report.
predicted()
{
    kept prediction.md --format md "${intervals[@]}" "$published"
    echo "$out/prediction.md"
}

# answers CELLS PLATFORM: a file with the cells, each followed by rppredict's answer on the platform.
answers()
{
    local cells kept_as
    cells=$(basename "$(dirname "$1")")-$(basename "$1" .csv)
    kept_as=prediction-${cells#cells-}-$2.csv
    kept "$kept_as" --cells "$1" --platform "$2" "${intervals[@]}"
    paste -d, "$1" "$out/$kept_as" > "$work/$kept_as"
    [ "$(wc -l < "$1")" -eq "$(wc -l < "$out/$kept_as")" ] || {
        echo "$1: not one answer for each cell" >&2
        return 1
    }
    echo "$work/$kept_as"
}

# table PUBLISHED KIND [ANSWERS]: writes the figure's CSV and prints it with the means. KIND: throughput, lengths or
# scaling. ANSWERS: whether cells fit, and data of those that were not measured.
table()
{
    local report
    report=$(predicted)
    awk -v kind="$2" -v means="$work/means" -f "$paper/lib/prediction.awk" \
        "$report" ${3:+"$3"} "$published/$1" > "$work/points.csv"
    mv "$work/points.csv" "$out/$name.csv"
    cat "$out/$name.csv" "$work/means"
}

# predictions ANSWERS KEY: the CSV of a figure that nobody has published, with the values of
# measured/NAME.csv (columns: framework, KEY, value), if there are any.
predictions()
{
    local given=$measured/$name.csv
    [ -f "$given" ] || given=/dev/null
    awk -v key="$2" -f "$paper/lib/answers.awk" "$given" "$1" > "$work/points.csv"
    mv "$work/points.csv" "$out/$name.csv"
    cat "$out/$name.csv"
}

# bars GROUP GIVEN [COLUMN=VALUE]: a file for bars.gp with the bars of the figure's CSV, or of the
# rows with this value, which then have our number beside the error. GROUP: the column with a group's
# name; GIVEN: that of the left bars.
bars()
{
    awk -v group="$1" -v given="$2" -v filter="${3:-}" -v values="${3:+1}" -f "$paper/lib/bars.awk" \
        "$out/$name.csv" > "$work/bars${3:-}.csv"
    echo "$work/bars${3:-}.csv"
}

# pairs BARS: 1 with bars or marks on the left, else 0.
pairs()
{
    awk -F, 'NR > 1 && ($4 > 0 || $6 != "") { found = 1 } END { print found + 0 }' "$1"
}
