# Published and predicted throughput of every system and model. Needs root (plots), bars, narrow, out, ext.
pairs = 1
wide_height = 800
load root . '/../paper-figures/lib/size.gp'

set output out . '.' . ext
set multiplot
keys = 1
# The same axis as figure 12.
top = 2.5e5
bottom = 100
heading = 'Training throughput, 8 × RTX 4090, sequences of 2048 tokens: published and predicted'
what = 'tokens/s'
given = 'published'
remark = '* a constant of the model was set on this cell'
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
