// SPDX-License-Identifier: Apache-2.0

package top

import (
	"io"
	"math"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Series are what is read of a gateway's metrics.
type Series struct {
	Running   float64
	FirstByte Histogram
}

// Histogram is a distribution of seconds, as Prometheus has it.
type Histogram struct {
	Bounds []float64 // upper ones, ascending
	Counts []uint64  // of values up to each, ascending
}

// ReadSeries reads metrics in Prometheus' text format.
func ReadSeries(r io.Reader) (s Series, err error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return s, err
	}
	for _, m := range families["afterimage_gateway_requests_running"].GetMetric() {
		s.Running += m.GetGauge().GetValue()
	}
	s.FirstByte = histogramOf(families["afterimage_gateway_first_byte_seconds"])
	return s, nil
}

func histogramOf(f *dto.MetricFamily) (h Histogram) {
	for _, m := range f.GetMetric() { // there is one, without labels
		for _, b := range m.GetHistogram().GetBucket() {
			h.Bounds, h.Counts = append(h.Bounds, b.GetUpperBound()), append(h.Counts, b.GetCumulativeCount())
		}
	}
	return h
}

// Quantile returns the value below which a share q of all lie, interpolated within its bucket; 0 for none. What
// lies beyond the last bound counts as that bound.
func (h Histogram) Quantile(q float64) float64 {
	if len(h.Counts) == 0 {
		return 0
	}
	total := h.Counts[len(h.Counts)-1]
	if total == 0 {
		return 0
	}
	rank, below, from := q*float64(total), uint64(0), 0.0
	for i, bound := range h.Bounds {
		if float64(h.Counts[i]) >= rank && h.Counts[i] > below {
			if math.IsInf(bound, 1) {
				return from
			}
			return from + (bound-from)*(rank-float64(below))/float64(h.Counts[i]-below)
		}
		below, from = h.Counts[i], bound
	}
	return from
}
