# Published and predicted longest sequences. Needs root (plots), bars, out, ext.
width = 1280
height = 640
load root . '/style.gp'

set output out . '.' . ext
pairs = 1
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
load root . '/../paper-figures/lib/bars.gp'
unset output
