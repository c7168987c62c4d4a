# Predicted throughput by sequence length. Needs root (plots), bars, pairs (make.sh), out, ext.
width = 1280
height = 640
load root . '/style.gp'

set output out . '.' . ext
pairs = int(pairs)
keys = 1
top = 0
bottom = 0
heading = 'PREDICTED: throughput by sequence length (tokens), qwen3-1.7b, 8 × RTX 4090'
what = 'tokens/s'
given = 'measured'
remark = pairs ? '' : 'predicted: nothing here has been measured by us'
panel_top = 82
panel_bottom = 520
load root . '/../paper-figures/lib/bars.gp'
unset output
