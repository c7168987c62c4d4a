# USD per billion tokens on 8 RTX 4090 and 8 A800. Needs root (plots), here and there (make.sh: the
# bars of both), pairs (1: the A800 was measured), price_here and price_there (USD/h), out, ext.
bars = here
measured_there = int(pairs)
pairs = 1
wide_height = 1220
load root . '/../paper-figures/lib/size.gp'
if (narrow) {
    # One panel below the other.
    height = narrow_px(here, 1) + narrow_px(there, measured_there) + 20
    load root . '/style.gp'
}

set datafile separator ','
set output out . '.' . ext
set multiplot
# Both panels have the axis of the dearer one.
stats here using ($5 > 0 ? $5 : NaN) skip 1 nooutput name 'here'
top = here_max * 12
bottom = here_min * 0.5
what = 'USD per billion tokens' . (narrow ? ', 8 × RTX 4090' : '')
offset = 0
panel_top = 82
panel_bottom = 470
keys = 1
given = narrow ? 'published' : 'from published throughput'
remark = '* a constant of the model was set on this cell'
heading = '8 × RTX 4090 at ' . price_here . ' USD/h: from published and from predicted throughput'
load root . '/../paper-figures/lib/' . (narrow ? 'narrow' : 'bars') . '.gp'
panel_top = 700
panel_bottom = 1088
offset = narrow_px(here, 1) + 20
what = 'USD per billion tokens' . (narrow ? ', 8 × A800, predicted' : '')
bars = there
pairs = measured_there
given = 'from measured throughput'
remark = pairs ? '' : 'predicted: nothing here has been measured by us'
heading = 'PREDICTED: 8 × A800 at ' . price_there . ' USD/h'
load root . '/../paper-figures/lib/' . (narrow ? 'narrow' : 'bars') . '.gp'
unset multiplot
unset output
