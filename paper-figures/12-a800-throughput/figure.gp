# Predicted throughput on 8 A800. Needs root (plots), bars, pairs (make.sh), out, ext.
width = 1280
height = 640
load root . '/style.gp'

set output out . '.' . ext
pairs = int(pairs)
keys = 1
# The same axis as figure 10.
top = 2.5e5
bottom = 100
heading = 'PREDICTED: training throughput, 8 × A800, sequences of 2048 tokens'
what = 'tokens/s'
given = 'measured'
remark = pairs ? '' : 'predicted: nothing here has been measured by us'
panel_top = 82
panel_bottom = 520
load root . '/../paper-figures/lib/bars.gp'
unset output
