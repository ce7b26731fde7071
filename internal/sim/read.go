// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Format names the shape of a trace file.
type Format string

// The formats that Read knows.
const (
	// Native has a row per image: time in seconds, request, image, and if known bytes of the embedding,
	// text_tokens and output_tokens. It is CSV with a header, or JSON objects, one a line, with the same
	// names. A row without an image is a request of text.
	Native Format = "native"
	// Azure is the trace of a multimodal service: TIMESTAMP, NumImages, ContextTokens, GeneratedTokens.
	Azure Format = "azure"
	// Mooncake is JSON lines of timestamp (ms), input_length, output_length and hash_ids (512 tokens each).
	Mooncake Format = "mooncake"
	// Bailian is JSON lines of chat_id, parent_chat_id, timestamp (s), input_length, output_length, type.
	Bailian Format = "bailian"
)

// Formats lists all formats.
func Formats() []Format { return []Format{Native, Azure, Mooncake, Bailian} }

// Sizes stand for what a trace does not say.
type Sizes struct {
	ItemBytes    int   // of an embedding
	TextTokens   int32 // of a request
	OutputTokens int32
	RowBytes     int // of one position of an embedding; tells image tokens from text tokens in Azure traces
	// Popularity says how often which image comes, for traces that do not tell images apart (Azure).
	Popularity Popularity
	Seed       uint64
}

// DefaultSizes are those of the published experiment.
func DefaultSizes() Sizes {
	return Sizes{
		ItemBytes: 256 * 10240, RowBytes: 10240, TextTokens: 400, OutputTokens: 32, Seed: 1,
		Popularity: Popularity{Kind: Zipf, S: 0.9, Distinct: 10_000},
	}
}

// maxLine bounds a line of a trace.
const maxLine = 16 << 20

// Read reads a trace. Errors name the line and what is wrong with it.
func Read(r io.Reader, format Format, sizes Sizes) (*Trace, error) {
	if !slices.Contains(Formats(), format) {
		return nil, fmt.Errorf("sim: unknown format %q, want one of %q", format, Formats())
	}
	if sizes.ItemBytes < 1 || sizes.ItemBytes > math.MaxInt32 || sizes.RowBytes < 1 {
		return nil, fmt.Errorf("sim: embeddings of %d bytes with rows of %d", sizes.ItemBytes, sizes.RowBytes)
	}
	lines := bufio.NewScanner(bufio.NewReaderSize(r, 1<<20))
	lines.Buffer(make([]byte, 64<<10), maxLine)
	rd := &reader{sizes: sizes, b: newBuilder(), requests: map[string]int32{}, chats: map[int64]int64{}}
	err := rd.readAll(lines, format)
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("longer than %d bytes", maxLine)
	}
	if err != nil {
		return nil, fmt.Errorf("sim: line %d: %w", max(rd.line, 1), err)
	}
	t, err := rd.trace()
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return t, nil
}

// reader holds what the lines of a trace have said so far.
type reader struct {
	sizes    Sizes
	line     int
	columns  []string // of CSV
	b        *builder
	requests map[string]int32 // native: index of a request by name
	rows     []row            // native: images in file order, grouped at the end
	chats    map[int64]int64  // bailian: root of a conversation
	epoch    time.Time        // of absolute times; the first one read
	draw     *Sampler         // azure
}

// row is an image of a native trace before its request is complete.
type row struct {
	request int32
	use     Use
}

func (r *reader) readAll(lines *bufio.Scanner, format Format) error {
	var parse func([]byte) error
	for lines.Scan() {
		r.line++
		line := bytes.TrimSpace(lines.Bytes())
		if r.line == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			continue
		}
		if parse == nil {
			var header bool
			var err error
			if parse, header, err = r.parser(line, format); err != nil {
				return err
			}
			if header {
				continue
			}
		}
		if err := parse(line); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		r.line++
		return err
	}
	return nil
}

// parser returns what reads the lines of a format, given the first one, and whether that is a header.
func (r *reader) parser(first []byte, format Format) (parse func([]byte) error, header bool, err error) {
	isJSON := first[0] == '{'
	switch {
	case format == Native && isJSON:
		return r.nativeJSON, false, nil
	case format == Mooncake && isJSON:
		return r.mooncake, false, nil
	case format == Bailian && isJSON:
		return r.bailian, false, nil
	case format == Mooncake || format == Bailian:
		return nil, false, fmt.Errorf("no JSON object; a %s trace has one per line", format)
	}
	need := []string{"time", "request", "image"}
	parse = r.nativeCSV
	if format == Azure {
		need, parse = []string{"timestamp", "numimages", "contexttokens", "generatedtokens"}, r.azure
		if r.draw, err = NewSampler(r.sizes.Popularity, r.sizes.Seed); err != nil {
			return nil, false, err
		}
	}
	for name := range strings.SplitSeq(string(first), ",") {
		r.columns = append(r.columns, strings.ToLower(strings.Trim(strings.TrimSpace(name), `"`)))
	}
	for _, name := range need {
		if !slices.Contains(r.columns, name) {
			return nil, false, fmt.Errorf("no column %q in the header %q; a %s trace has %s", name, first, format, strings.Join(need, ", "))
		}
	}
	return parse, true, nil
}

// fields cuts a CSV line whose values hold no commas.
func (r *reader) fields(line []byte, f func(column string, value []byte) error) error {
	n := 0
	for value := range bytes.SplitSeq(line, []byte(",")) {
		if n == len(r.columns) {
			return fmt.Errorf("more than the %d values of the header", len(r.columns))
		}
		value = bytes.Trim(bytes.TrimSpace(value), `"`)
		if err := f(r.columns[n], value); err != nil {
			return fmt.Errorf("%s = %q: %w", r.columns[n], value, err)
		}
		n++
	}
	if n < len(r.columns) {
		return fmt.Errorf("%d values for the %d columns of the header", n, len(r.columns))
	}
	return nil
}

// Bounds of values in a trace.
const (
	maxTokens = 1 << 24
	maxTime   = 10 * 365 * 24 * time.Hour
)

var errTime = errors.New("write seconds, or a time such as 2024-10-15T00:00:00Z")

// when reads a time: seconds, or a date of which the first in the file is 0.
func (r *reader) when(v []byte) (time.Duration, error) {
	if s, err := strconv.ParseFloat(string(v), 64); err == nil {
		return seconds(s)
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999-07:00", "2006-01-02 15:04:05.999999999"} {
		at, err := time.Parse(layout, string(v))
		if err != nil {
			continue
		}
		if r.epoch.IsZero() {
			r.epoch = at
		}
		return at.Sub(r.epoch), nil
	}
	return 0, errTime
}

func seconds(s float64) (time.Duration, error) {
	if !(s >= 0 && s <= maxTime.Seconds()) {
		return 0, fmt.Errorf("outside of 0 to %.0f seconds", maxTime.Seconds())
	}
	return time.Duration(s * float64(time.Second)), nil
}

// count reads a number of tokens, images or bytes; nothing is otherwise.
func count(v []byte, most, otherwise int64) (int64, error) {
	if len(v) == 0 {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		var f float64 // some tools write 12.0
		if f, err = strconv.ParseFloat(string(v), 64); err != nil || f != math.Trunc(f) {
			return 0, errors.New("no whole number")
		}
		n = int64(f)
	}
	if n < 0 || n > most {
		return 0, fmt.Errorf("outside of 0 to %d", most)
	}
	return n, nil
}
