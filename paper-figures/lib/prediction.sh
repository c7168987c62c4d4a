# Sourced after figure.sh: rppredict's report, and the table of one figure from it.
bin=$(cd "$1" && pwd)
published=$paper/published
# On the file system of OUTDIR, so that a move there leaves nothing half written.
work=$(mktemp -d "$out/.$name.XXXXXX")
trap 'rm -rf "$work"' EXIT

# predicted: a file with rppredict's report. One run takes most of a minute and serves three figures:
# its report stays in the output folder, and is taken again only while the program and all its data
# have the same checksums.
predicted()
{
    local report=$out/prediction.md key
    key=$(cat "$bin/rppredict" "$published"/*.csv "$paper"/../traces/*/* | cksum)
    if [ ! -s "$report" ] || [ "$(cat "$report.key" 2> /dev/null)" != "$key" ]; then
        rm -f "$report" "$report.key"
        "$bin/rppredict" "$published" > "$work/report.md"
        mv "$work/report.md" "$report"
        echo "$key" > "$report.key"
    fi
    echo "$report"
}

# table PUBLISHED KIND: writes the figure's CSV and prints it with the means. KIND: throughput,
# lengths or scaling.
table()
{
    local report
    report=$(predicted)
    awk -v kind="$2" -v means="$work/means" -f "$paper/lib/prediction.awk" \
        "$report" "$published/$1" > "$work/points.csv"
    mv "$work/points.csv" "$out/$name.csv"
    cat "$out/$name.csv" "$work/means"
}
