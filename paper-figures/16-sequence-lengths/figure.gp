# Predicted throughput by sequence length. Needs root (plots), bars, pairs (make.sh), narrow, out, ext.
wide_height = 640
load root . '/../paper-figures/lib/size.gp'

set output out . '.' . ext
keys = 1
top = 0
bottom = 0
heading = 'PREDICTED: throughput by sequence length (tokens), qwen3-1.7b, 8 × RTX 4090'
what = 'tokens/s'
given = 'measured'
remark = pairs ? '' : 'predicted: nothing here has been measured by us'
panel_top = 82
panel_bottom = 520
offset = 0
load root . '/../paper-figures/lib/' . (narrow ? 'narrow' : 'bars') . '.gp'
unset output
