# Predicted longest sequences on 8 A800. Needs root (plots), bars, pairs (make.sh), out, ext.
width = 1280
height = 640
load root . '/style.gp'

set output out . '.' . ext
pairs = int(pairs)
keys = 1
# The same axis as figure 11.
top = 900
bottom = 0.5
heading = 'PREDICTED: longest sequence that fits, 8 × A800'
what = 'longest sequence (1024 tokens)'
given = 'measured'
remark = pairs ? '' : 'predicted: nothing here has been measured by us'
panel_top = 82
panel_bottom = 520
load root . '/../paper-figures/lib/bars.gp'
unset output
