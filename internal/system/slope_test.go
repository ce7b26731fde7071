// SPDX-License-Identifier: Apache-2.0

package system

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// median of values, which it leaves as they are; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// theilSen returns the median slope of all pairs of points: a line that a quarter of the points, thrown anywhere,
// do not move. 0 if there are less than two.
func theilSen(x, y []float64) float64 {
	var slopes []float64
	for i := range x {
		for j := range i {
			if x[i] != x[j] {
				slopes = append(slopes, (y[i]-y[j])/(x[i]-x[j]))
			}
		}
	}
	return median(slopes)
}

// TestTheilSen: the fit finds a slope under noise and outliers, and none where there is none.
func TestTheilSen(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	f := func(slope, noise float64, outliers int, want, within float64) {
		t.Helper()
		var x, y []float64
		for i := range 480 {
			x = append(x, float64(i)/1200)
			y = append(y, 50+slope*x[i]+noise*(random.Float64()-0.5))
		}
		for range outliers {
			y[random.IntN(len(y))] += 500
		}
		if got := theilSen(x, y); math.Abs(got-want) > within {
			t.Errorf("slope %v with noise of %v and %d outliers: %v", slope, noise, outliers, got)
		}
	}
	f(0, 0, 0, 0, 0)
	f(0, 0, 100, 0, 0)
	f(8, 0, 0, 8, 1e-9)
	f(0, 3, 0, 0, 1.5)
	f(8, 3, 0, 8, 1.5)
	f(-8, 3, 40, -8, 3)
	if got := theilSen([]float64{1}, []float64{1}); got != 0 {
		t.Errorf("the slope of one point is %v", got)
	}
}
