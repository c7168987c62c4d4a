# Heat map of RoundPipe's lead over its fastest rival: one square of generations and GPUs per uplink
# per model; above the rivals that fit, below any, as if memory had no limit. Needs root (plots),
# leads (make.sh's table), out, ext.
width = 1280
height = 590
load root . '/style.gp'

set datafile separator ','
set datafile missing ''
set output out . '.' . ext
set multiplot
set border 0
unset key
unset colorbox
set palette defined (-50 '#d9702f', -25 '#f0ae80', 0 '#f7f7f7', 50 '#a6cfe6', 100 '#5ba3d0')
set cbrange [-50 : 100]
set xrange [0.5 : 4.5]
set yrange [2.5 : 5.5]
set xtics ('1' 1, '2' 2, '4' 3, '8' 4) scale 0 offset 0, 0.4 font font_text
set label 1 'RoundPipe''s lead over its fastest rival in %, and the rival   ' \
    . '(8 GPUs, asynchronous, 2 x 16 microbatches, hardware fidelity)' \
    at screen 20.0 / width, screen 1 - 20.0 / height left font font_title noenhanced
place(uplink) = uplink == 8 ? 4 : uplink == 4 ? 3 : uplink
short(name) = name eq 'interleaved-1f1b' ? 'interleaved' : name
signed(value) = sprintf('%+.1f', value)
of(m) = strcol(1) eq models[m] ? place(column(3)) : NaN
has(rival) = strlen(strcol(rival)) > 0
array models = ['qwen3-1.7b', 'llama3.1-8b', 'gpt-oss-20b', 'qwen3-32b']
do for [m = 1 : 4] {
    set lmargin at screen (100.0 + (m - 1) * 295) / width
    set rmargin at screen (100.0 + (m - 1) * 295 + 280) / width
    do for [row = 1 : 2] {
        set tmargin at screen 1 - (row == 1 ? 70.0 : 330.0) / height
        set bmargin at screen 1 - (row == 1 ? 280.0 : 540.0) / height
        rival = row == 1 ? 4 : 6
        lead = row == 1 ? 5 : 7
        set format y (m == 1 ? 'PCIe %g' : '')
        set ytics 3, 1, 5 scale 0 font font_text
        set title (models[m] . (row == 1 ? ', rivals that fit' : ', memory ignored')) \
            font font_text offset 0, -0.6 noenhanced
        set xlabel (row == 2 ? 'GPUs per uplink' : '') font font_text offset 0, 0.4
        plot leads using (of(m)):2:(of(m) - 0.48):(of(m) + 0.48):($2 - 0.48):($2 + 0.48) \
                skip 1 with boxxyerror fillstyle solid noborder fillcolor rgb '#e4e4e4', \
            leads using (has(rival) ? of(m) : NaN):2:(of(m) - 0.48):(of(m) + 0.48): \
                ($2 - 0.48):($2 + 0.48):lead skip 1 with boxxyerror fillstyle solid noborder fillcolor palette, \
            leads using (of(m)):($2 + 0.12):(has(rival) ? signed(column(lead)) : 'none') \
                skip 1 with labels font font_text, \
            leads using (of(m)):($2 - 0.2):(has(rival) ? short(strcol(rival)) : 'fits') \
                skip 1 with labels font font_small noenhanced
        unset label 1
    }
}
unset multiplot
unset output
