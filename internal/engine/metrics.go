// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/prometheus/client_golang/prometheus"

// RegisterBackend shows b to metrics.
func RegisterBackend(r prometheus.Registerer, b Backend) {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "afterimage_engine_info",
		Help: "1, with what computes: cpu, or the back end and the name of a GPU.",
	}, []string{"backend", "device"})
	memory := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "afterimage_engine_gpu_memory_bytes",
		Help: "Memory of the GPU; 0 without one.",
	})
	layers := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "afterimage_engine_gpu_layers",
		Help: "Layers of the text model on the GPU; 0 without one, and of an Encoder, which is there as a whole.",
	})
	r.MustRegister(info, memory, layers)
	info.WithLabelValues(b.Name, b.Device).Set(1)
	memory.Set(float64(b.MemoryBytes))
	layers.Set(float64(b.Layers))
}
