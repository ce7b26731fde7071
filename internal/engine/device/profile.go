// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"afterimage/internal/embedding"
)

// Profile is what a modelled device is like, as one line of text says it.
type Profile struct {
	Encode  time.Duration // device time per picture
	Host    time.Duration // host time per picture, before the device begins; one picture at a time
	Prefill time.Duration // device time per prompt position
	Decode  time.Duration // device time per decode step, however many sequences are in it
	// Whole says that a prompt is prefilled in one piece when all of it is there, as a server does that
	// neither chunks nor overlaps; otherwise each part is, as it comes.
	Whole  bool
	Answer int     // tokens after which an answer ends by itself; 0 never
	Slots  int     // sequences side by side
	Rows   int     // rows per picture; 0 derives them from its size
	Scale  float64 // divides all times
	Clock  string  // file through which processes share one device; "" is a device of one's own
}

// DefaultProfile models the accelerator of the published experiment: 104.8 ms per image (53.661 s for
// 512 images) and 19.2 ms per decode step.
func DefaultProfile() Profile {
	return Profile{
		Encode: 104800 * time.Microsecond, Prefill: 20 * time.Microsecond, Decode: 19200 * time.Microsecond,
		Answer: 24, Slots: 8, Rows: 256, Scale: 1,
	}
}

// cols is the width of modelled rows: with 256 rows of bfloat16, 2.5 MiB per picture.
const cols = 5120

// ParseProfile reads text such as "encode=50ms,decode=10ms"; what it does not name has its default.
func ParseProfile(text string) (Profile, error) {
	p := DefaultProfile()
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		if err := p.set(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			return p, fmt.Errorf("%q: %w", part, err)
		}
	}
	return p, nil
}

// maxTime bounds the times of a profile, so that no sum of them overflows.
const maxTime = time.Hour

func (p *Profile) set(name, value string) (err error) {
	switch name {
	case "encode":
		return setTime(&p.Encode, value)
	case "host":
		return setTime(&p.Host, value)
	case "prefill":
		return setTime(&p.Prefill, value)
	case "decode":
		return setTime(&p.Decode, value)
	case "answer":
		return setNumber(&p.Answer, value, 0, math.MaxInt32)
	case "slots":
		return setNumber(&p.Slots, value, 1, 1<<16)
	case "rows":
		return setNumber(&p.Rows, value, 0, maxRows)
	case "whole":
		if p.Whole, err = strconv.ParseBool(value); err != nil {
			return errors.New("write true or false")
		}
		return nil
	case "scale":
		if p.Scale, err = strconv.ParseFloat(value, 64); err != nil || !(p.Scale >= 1 && p.Scale <= 1e6) {
			return errors.New("write a number from 1 to 1000000")
		}
		return nil
	case "clock":
		p.Clock = value
		return nil
	}
	return errors.New("unknown; there are encode, host, prefill, decode, whole, answer, slots, rows, scale and clock")
}

func setTime(into *time.Duration, value string) error {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > maxTime {
		return fmt.Errorf("write a time from 0s to %v, such as 20ms", maxTime)
	}
	*into = d
	return nil
}

func setNumber(into *int, value string, least, most int) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		return fmt.Errorf("write a whole number from %d to %d", least, most)
	}
	*into = n
	return nil
}

// String returns text that ParseProfile reads as p.
func (p Profile) String() string {
	s := fmt.Sprintf("encode=%v,host=%v,prefill=%v,decode=%v,whole=%v,answer=%d,slots=%d,rows=%d,scale=%v",
		p.Encode, p.Host, p.Prefill, p.Decode, p.Whole, p.Answer, p.Slots, p.Rows, p.Scale)
	if p.Clock != "" {
		s += ",clock=" + p.Clock
	}
	return s
}

func (p Profile) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) / p.Scale) }

// Encoder returns the configuration of an Encoder on this device.
func (p Profile) Encoder() EncoderConfig {
	return EncoderConfig{
		Model: "modelled", Seed: 1, EncodeTime: p.scaled(p.Encode), HostTime: p.scaled(p.Host),
		Rows: p.Rows, Cols: cols, DType: embedding.BFloat16, ClockFile: p.Clock,
	}
}

// Text returns the configuration of a text model on this device.
func (p Profile) Text() TextConfig {
	return TextConfig{
		Model: "modelled", Cols: cols, DType: embedding.BFloat16, Context: 8192, Slots: p.Slots,
		PrefillTime: p.scaled(p.Prefill), DecodeTime: p.scaled(p.Decode), Whole: p.Whole,
		AnswerLen: p.Answer, ClockFile: p.Clock,
	}
}
