# Predicted throughput on 8 A800. Needs root (plots), bars, pairs (make.sh), narrow, out, ext.
wide_height = 640
load root . '/../paper-figures/lib/size.gp'

set output out . '.' . ext
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
offset = 0
load root . '/../paper-figures/lib/' . (narrow ? 'narrow' : 'bars') . '.gp'
unset output
