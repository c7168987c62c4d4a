# Up to ten lines of one plot, told apart by colour, lightness and points. empty_point(k): the same
# points, empty.
line_colours = '#222222 #b5452c #3f8fcf #5b2a86 #1f9e78 #c79a10 #888888 #e08fb0 #7a5c3a #9aa83a'
line_colour(k) = word(line_colours, k)
solid_point(k) = int(word('7 5 9 13 11 15 7 5 9 13', k))
empty_point(k) = int(word('6 4 8 12 10 14 6 4 8 12', k))
