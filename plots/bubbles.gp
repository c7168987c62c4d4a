# Where the GPUs' time goes that no GPU works in: the parts of the bubble, per model and schedule.
# Needs root (this folder), db (a store), out, ext; reads the newest run of each schedule and model.
width = 1200
height = 560
load root . '/style.gp'

# Models from the shortest best makespan to the longest, schedules from the largest mean bubble to
# the smallest: both orders follow from the data, so a new schedule or model finds its place.
rows = "WITH runs_shown AS (SELECT *, max(run_id) FROM latest WHERE bubble_pct IS NOT NULL" . \
    " GROUP BY schedule, model)," . \
    " models AS (SELECT model," . \
    "  row_number() OVER (ORDER BY min(makespan_ms), model) - 1 AS place" . \
    "  FROM runs_shown GROUP BY model)," . \
    " schedules AS (SELECT schedule, count(*) OVER () AS total," . \
    "  row_number() OVER (ORDER BY avg(bubble_pct) DESC, schedule) - 1 AS place" . \
    "  FROM runs_shown GROUP BY schedule)" . \
    " SELECT models.place * (total + 1) + schedules.place AS x, schedule, fill_pct, switch_pct," . \
    "  intra_pct, drain_pct, bubble_pct, gpus, microbatches, model," . \
    "  models.place * (total + 1) + (total - 1) / 2.0 AS centre" . \
    " FROM runs_shown JOIN models USING (model) JOIN schedules USING (schedule) ORDER BY x"
# The shell takes the query in double quotes and the file name in single ones.
ask(query) = system(sprintf("sqlite3 -batch -noheader -separator '|' '%s' \"%s\"", db, query))
set datafile separator '|'

lines = ask(rows)
if (strlen(lines) == 0) {
    exit error 'the store has no runs with a bubble'
}
centres = ask("SELECT DISTINCT centre, model FROM (" . rows . ")")
set print $data
print lines
unset print

set output out . '.' . ext
stats $data using 1 nooutput
last = STATS_max
stats $data using 7 nooutput
top = STATS_max
stats $data using 8 nooutput
gpus = STATS_max
stats $data using 9 nooutput
microbatches = STATS_max

set lmargin at screen 62.0 / width
set rmargin at screen 1 - 16.0 / width
set tmargin at screen 1 - 62.0 / height
set bmargin at screen 132.0 / height
set border 3
set xrange [-0.9 : last + 0.9]
set yrange [0 : top * 1.1]
set label 1 sprintf('Bubble in %% of GPU time   (%g GPUs, %g microbatches)', gpus, microbatches) \
    at screen 62.0 / width, screen 1 - 20.0 / height left font font_title noenhanced
set key at screen 1 - 16.0 / width, screen 1 - 20.0 / height right center horizontal maxrows 1 \
    reverse Left samplen 1.6 width 1 font font_text
set ytics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set ylabel 'bubble (%)' font font_text offset 1, 0
set xtics scale 0 rotate by 40 right font font_small noenhanced
# Names of the models below their groups: tics cannot have two levels.
do for [line in centres] {
    bar = strstrt(line, '|')
    set label line[bar + 1 : *] at first real(line[1 : bar - 1]), screen 18.0 / height center \
        font font_title textcolor rgb ink noenhanced
}
half = 0.42

plot $data using 1:3:($1 - half):($1 + half):(0):3 with boxxyerror fillstyle solid noborder \
        fillcolor rgb '#7fb8e6' title 'fill', \
    $data using 1:3:($1 - half):($1 + half):3:($3 + $4) with boxxyerror fillstyle solid noborder \
        fillcolor rgb '#5b2a86' title 'switch', \
    $data using 1:3:($1 - half):($1 + half):($3 + $4):($3 + $4 + $5) with boxxyerror \
        fillstyle solid noborder fillcolor rgb '#b5452c' title 'intra', \
    $data using 1:3:($1 - half):($1 + half):($3 + $4 + $5):7 with boxxyerror \
        fillstyle solid noborder fillcolor rgb '#f3d56b' title 'drain', \
    $data using 1:7:(sprintf('%.1f', $7)):xtic(2) with labels font font_small offset 0, 0.6 notitle
unset output
