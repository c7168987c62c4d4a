# What all pictures share. Set before: ext = 'svg' | 'png' | 'pdf', width and height in SVG pixels.
# All three types have the same geometry; PNG has twice the pixels, PDF one point per pixel.
set encoding utf8
font = ext eq 'svg' ? 'sans-serif' : 'DejaVu Sans'
if (ext eq 'svg') {
    set terminal svg size width, height font sprintf('%s,12', font) background rgb 'white' fixed
}
if (ext eq 'png') {
    set terminal pngcairo size 2 * width, 2 * height font sprintf('%s,9', font) fontscale 2 \
        linewidth 2
}
if (ext eq 'pdf') {
    set terminal pdfcairo size width / 72.0, height / 72.0 font sprintf('%s,15', font) linewidth 1
}
# Fonts in SVG pixels, as the cairo terminals count them. They are variables because gnuplot takes
# no function where it wants a string.
points = ext eq 'png' ? 0.75 : ext eq 'pdf' ? 1.28 : 1.0
font_small = sprintf('%s,%g', font, 11 * points)
font_text = sprintf('%s,%g', font, 12 * points)
font_title = sprintf('%s,%g', font, 13 * points)
# Factor for the size of points, which the terminals count differently.
mark = ext eq 'svg' ? 0.5 : ext eq 'pdf' ? 0.55 : 1.0
ink = '#222222'
faint = '#d8d8d8'
set border linecolor rgb ink linewidth 0.8
set tics textcolor rgb ink
