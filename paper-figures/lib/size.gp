# Size of a picture of bars.gp, and style.gp. Needs narrow (1: a window of a phone), bars, pairs and
# wide_height.
pairs = int(pairs)
narrow_px(file, pairs) = 86 + (pairs ? 24 : 17) * int(system("awk -F, 'END { print $1 + 2 }' '" . file . "'"))
width = narrow ? 358 : 1280
height = narrow ? narrow_px(bars, pairs) : wide_height
load root . '/style.gp'
