#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the data and pictures of this figure, from timelines of BINDIR/rpsim.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
workspace

# timelines COSTS OPTION...: into the store, with all ops.
timelines()
{
    "$bin/rpsim" --costs "$figure/$1.yaml" --gpus 4 --microbatches 8 --fidelity stage \
        --db "$work/store.db" --db-ops "${@:2}" > /dev/null
}
timelines uniform --recompute none --partition even \
    --schedule gpipe,1f1b,interleaved-1f1b,looped-bfs,zb-h1,zb-h2,zb1p,zbv,v-half,v-min,dualpipev
rounds=(--schedule roundpipe --partition '3,3|0,1,1,1,1,1,1')
timelines uniform-head "${rounds[@]}"
timelines uniform-head "${rounds[@]}" --optimizer async --iterations 2
timelines uniform --recompute wait --schedule mobius
sqlite3 -batch -csv -header "$work/store.db" < "$figure/boxes.sql" | tr -d '\r"' > "$work/boxes.csv"
awk -v forms="$figure/forms.csv" -f "$figure/summary.awk" "$work/boxes.csv" > "$work/summary.csv"
mv "$work/boxes.csv" "$out/$name.csv"
mv "$work/summary.csv" "$out/$name-summary.csv"
cat "$out/$name-summary.csv"
for picture in $(cut -d, -f1 "$out/$name-summary.csv" | tail -n +2 | uniq); do
    suffix=-$picture
    draw summary="$out/$name-summary.csv" picture="$picture" out="$out/$name${suffix%-pipelines}"
done
