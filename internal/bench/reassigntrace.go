// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// routes is the trace of the reassignment experiment: when each request is due, and where it goes.
type routes struct {
	at       []time.Duration
	encoders [][]int // per request and image
	prefills []int   // per request; nil leaves them to routing
}

// newRoutes makes the trace of a seed: requests come memorylessly, rate per second, images go to either
// Encoder with a share of split for the first, and P/Ds take turns. Equal arguments make equal traces.
func newRoutes(seed uint64, requests, images int, rate, split float64, prefills int) routes {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	var t routes
	at := 0.0
	for i := range requests {
		t.at = append(t.at, time.Duration(at*float64(time.Second)))
		at += r.ExpFloat64() / rate
		to := make([]int, images)
		for k := range to {
			if r.Float64() >= split {
				to[k] = 1
			}
		}
		t.encoders = append(t.encoders, to)
		t.prefills = append(t.prefills, i%prefills)
	}
	return t
}

// swapped returns the same requests with the Encoders exchanged.
func (t routes) swapped() routes {
	s := t
	s.encoders = make([][]int, len(t.encoders))
	for i, to := range t.encoders {
		s.encoders[i] = make([]int, len(to))
		for k, e := range to {
			s.encoders[i][k] = 1 - e
		}
	}
	return s
}

// monolithic returns the same requests, each on one of n servers in turn.
func (t routes) monolithic(n int) routes {
	m := routes{at: t.at}
	for i, to := range t.encoders {
		all := make([]int, len(to))
		for k := range all {
			all[k] = i % n
		}
		m.encoders = append(m.encoders, all)
		m.prefills = append(m.prefills, i%n)
	}
	return m
}

// turned returns the same requests with every P/D replaced by the next of n.
func (t routes) turned(n int) routes {
	s := t
	s.prefills = make([]int, len(t.prefills))
	for i, p := range t.prefills {
		s.prefills[i] = (p + 1) % n
	}
	return s
}

// anyEncoder returns the same requests with the Encoders left to routing.
func (t routes) anyEncoder() routes {
	t.encoders = nil
	return t
}

// encoderHeader names the Encoders of request i; "" leaves them to routing.
func (t routes) encoderHeader(i int) string {
	if t.encoders == nil {
		return ""
	}
	names := make([]string, len(t.encoders[i]))
	for k, e := range t.encoders[i] {
		names[k] = strconv.Itoa(e)
	}
	return strings.Join(names, ",")
}

// split returns the share of images that go to the first Encoder.
func (t routes) split() float64 {
	first, all := 0, 0
	for _, to := range t.encoders {
		for _, e := range to {
			all++
			if e == 0 {
				first++
			}
		}
	}
	return float64(first) / float64(max(all, 1))
}
