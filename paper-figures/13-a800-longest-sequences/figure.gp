# Predicted longest sequences on 8 A800. Needs root (plots), bars, pairs (make.sh), narrow, out, ext.
wide_height = 640
load root . '/../paper-figures/lib/size.gp'

set output out . '.' . ext
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
offset = 0
load root . '/../paper-figures/lib/' . (narrow ? 'narrow' : 'bars') . '.gp'
unset output
