// SPDX-License-Identifier: Apache-2.0

package model

import "math"

// colours are the words that the demo tower maps cells to, in the order of the columns of its map.
var colours = []string{
	"black", "white", "gray", "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown",
}

// The indexes of colours.
const (
	black = iota
	white
	gray
	red
	orange
	yellow
	green
	blue
	purple
	pink
	brown
)

// colourOf names a colour, whose parts lie in 0..1, by hue, saturation and value. The borders are
// those that the map was fitted to.
func colourOf(r, g, b float64) int {
	hue, sat, val := toHSV(r, g, b)
	switch {
	case val < 0.16:
		return black
	case sat < 0.16 && val > 0.82:
		return white
	case sat < 0.16:
		return gray
	case hue < 15 || hue >= 345:
		if sat < 0.5 && val > 0.75 {
			return pink
		}
		return red
	case hue < 42 && val < 0.65, hue >= 42 && hue < 70 && val < 0.45:
		return brown
	case hue < 42:
		return orange
	case hue < 70:
		return yellow
	case hue < 165:
		return green
	case hue < 262:
		return blue
	case hue >= 300 && val > 0.75 && (sat < 0.75 || hue > 315):
		return pink
	}
	return purple
}

// toHSV returns the hue in degrees, the saturation and the value of a colour.
func toHSV(r, g, b float64) (hue, sat, val float64) {
	top, spread := max(r, g, b), max(r, g, b)-min(r, g, b)
	if spread == 0 {
		return 0, 0, top
	}
	switch top {
	case r:
		hue = math.Mod((g-b)/spread+6, 6)
	case g:
		hue = (b-r)/spread + 2
	default:
		hue = (r-g)/spread + 4
	}
	return 60 * hue, spread / top, top
}

// fromHSV is the inverse of toHSV.
func fromHSV(hue, sat, val float64) [3]float64 {
	part := func(n float64) float64 {
		k := math.Mod(n+hue/60, 6)
		return val - val*sat*max(0, min(k, 4-k, 1))
	}
	return [3]float64{part(5), part(3), part(1)}
}
