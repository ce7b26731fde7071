// SPDX-License-Identifier: Apache-2.0

package load

import "time"

// Goal is what makes an answer good.
type Goal struct {
	TTFTMS float64 `json:"ttft_ms,omitempty"` // 0 asks for nothing
	TPOTMS float64 `json:"tpot_ms,omitempty"`
}

// Summary holds what a load measured.
type Summary struct {
	Sent   int `json:"sent"`
	OK     int `json:"ok"`
	Failed int `json:"failed"`
	Good   int `json:"good"` // answers within the goal
	Tokens int `json:"tokens"`
	// Seconds is the time from when the first request was due to the end of the last answer.
	Seconds float64   `json:"seconds"`
	TTFT    Histogram `json:"ttft"`
	TPOT    Histogram `json:"tpot"`
	ITL     Histogram `json:"itl"` // between two pieces of text
	End     Histogram `json:"end"`
	Lag     Histogram `json:"lag"`
}

// Summarize counts records. Times of requests that failed are left out, but for their lag.
func Summarize(records []Record, goal Goal) Summary {
	var s Summary
	for i := range records {
		s.add(&records[i], goal)
	}
	return s
}

func (s *Summary) add(r *Record, goal Goal) {
	s.Sent++
	s.Lag.Add(duration(r.LagMS))
	s.Seconds = max(s.Seconds, (r.DueMS+r.EndMS)/1000)
	if !r.OK() {
		s.Failed++
		return
	}
	s.OK++
	s.Tokens += r.Tokens
	s.End.Add(duration(r.EndMS))
	if r.TTFTMS > 0 {
		s.TTFT.Add(duration(r.TTFTMS))
	}
	if r.TPOTMS > 0 {
		s.TPOT.Add(duration(r.TPOTMS))
	}
	for _, g := range r.gaps {
		s.ITL.Add(g)
	}
	if (goal.TTFTMS == 0 || r.TTFTMS <= goal.TTFTMS) && (goal.TPOTMS == 0 || r.TPOTMS <= goal.TPOTMS) {
		s.Good++
	}
}

// PerSecond returns n per second of the run.
func (s *Summary) PerSecond(n int) float64 {
	if s.Seconds == 0 {
		return 0
	}
	return float64(n) / s.Seconds
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
