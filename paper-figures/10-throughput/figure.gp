# Published and predicted throughput of every system and model. Needs root (plots), bars, out, ext.
width = 1280
height = 640
load root . '/style.gp'

set output out . '.' . ext
pairs = 1
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
load root . '/../paper-figures/lib/bars.gp'
unset output
