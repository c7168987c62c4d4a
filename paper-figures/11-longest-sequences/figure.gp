# Published and predicted longest sequences. Needs root (plots), bars, narrow, out, ext.
pairs = 1
wide_height = 800
load root . '/../paper-figures/lib/size.gp'

set output out . '.' . ext
set multiplot
keys = 1
# The same axis as figure 13.
top = 900
bottom = 0.5
heading = 'Longest sequence that fits, 8 × RTX 4090: published and predicted'
what = 'longest sequence (1024 tokens)'
given = 'published'
remark = ''
panel_top = 82
panel_bottom = 520
offset = 0
load root . '/../paper-figures/lib/' . (narrow ? 'narrow' : 'bars') . '.gp'
if (!narrow) {
    panel_top = 664
    panel_bottom = 784
    load root . '/../paper-figures/lib/dots.gp'
}
unset multiplot
unset output
