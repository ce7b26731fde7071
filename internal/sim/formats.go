// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// nativeRow is one line of a native trace.
type nativeRow struct {
	Time    *float64        `json:"time"`
	Request json.RawMessage `json:"request"`
	Image   json.RawMessage `json:"image"`
	Bytes   *int64          `json:"bytes"`
	Text    *int64          `json:"text_tokens"`
	Output  *int64          `json:"output_tokens"`
}

func (r *reader) nativeJSON(line []byte) error {
	var v nativeRow
	if err := json.Unmarshal(line, &v); err != nil {
		return err
	}
	if v.Time == nil || len(v.Request) == 0 {
		return errors.New("time and request are required")
	}
	at, err := seconds(*v.Time)
	if err != nil {
		return fmt.Errorf("time: %w", err)
	}
	bytes, err := bounded("bytes", v.Bytes, math.MaxInt32, int64(r.sizes.ItemBytes))
	if err != nil {
		return err
	}
	text, err := bounded("text_tokens", v.Text, maxTokens, int64(r.sizes.TextTokens))
	if err != nil {
		return err
	}
	output, err := bounded("output_tokens", v.Output, maxTokens, int64(r.sizes.OutputTokens))
	if err != nil {
		return err
	}
	if string(v.Image) == "null" || string(v.Image) == `""` {
		v.Image = nil
	}
	return r.native(at, v.Request, v.Image, bytes, text, output)
}

func bounded(name string, v *int64, most, otherwise int64) (int64, error) {
	switch {
	case v == nil:
		return otherwise, nil
	case *v < 0 || *v > most:
		return 0, fmt.Errorf("%s = %d: outside of 0 to %d", name, *v, most)
	}
	return *v, nil
}

func (r *reader) nativeCSV(line []byte) error {
	var at time.Duration
	var request, image []byte
	bytes, text, output := int64(r.sizes.ItemBytes), int64(r.sizes.TextTokens), int64(r.sizes.OutputTokens)
	err := r.fields(line, func(column string, v []byte) (err error) {
		switch column {
		case "time":
			at, err = r.when(v)
		case "request":
			if request = v; len(v) == 0 {
				err = errors.New("empty")
			}
		case "image":
			image = v
		case "bytes":
			bytes, err = count(v, math.MaxInt32, bytes)
		case "text_tokens":
			text, err = count(v, maxTokens, text)
		case "output_tokens":
			output, err = count(v, maxTokens, output)
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.native(at, request, image, bytes, text, output)
}

// native files one row. Rows of a request may stand anywhere; its first row says when it came.
func (r *reader) native(at time.Duration, request, image []byte, bytes, text, output int64) error {
	i, ok := r.requests[string(request)]
	if !ok {
		i = int32(len(r.b.t.Requests))
		r.requests[string(request)] = i
		r.b.begin(at, int32(text), int32(output))
	}
	if len(image) == 0 {
		return nil
	}
	if len(r.rows) == maxUses {
		return fmt.Errorf("more than %d images", maxUses)
	}
	r.rows = append(r.rows, row{request: i, use: Use{Image: r.b.image(image), Bytes: int32(bytes)}})
	return nil
}

// trace groups the rows of a native trace and returns what was read.
func (r *reader) trace() (*Trace, error) {
	byRequest := func(x, y row) int { return cmp.Compare(x.request, y.request) }
	if !slices.IsSortedFunc(r.rows, byRequest) {
		slices.SortStableFunc(r.rows, byRequest)
	}
	t := &r.b.t
	for i, row := range r.rows {
		q := &t.Requests[row.request]
		if q.n == 0 {
			q.first = int32(i)
		}
		q.n++
		t.uses = append(t.uses, row.use)
		t.Images = max(t.Images, int(row.use.Image)+1)
	}
	return r.b.trace()
}

func (r *reader) azure(line []byte) error {
	var at time.Duration
	var images, context, output int64
	err := r.fields(line, func(column string, v []byte) (err error) {
		switch column {
		case "timestamp":
			at, err = r.when(v)
		case "numimages":
			images, err = count(v, 4096, 0)
		case "contexttokens":
			context, err = count(v, maxTokens, 0)
		case "generatedtokens":
			output, err = count(v, maxTokens, 0)
		}
		return err
	})
	if err != nil {
		return err
	}
	if r.b.t.Assumed == "" {
		r.b.t.Assumed = fmt.Sprintf("popularity: an Azure trace counts images and does not tell them apart; each is drawn from %v, with seed %d, and has %d bytes",
			r.sizes.Popularity, r.sizes.Seed, r.sizes.ItemBytes)
	}
	rows := int64(r.sizes.ItemBytes / r.sizes.RowBytes)
	r.b.begin(at, int32(max(context-images*rows, 0)), int32(output))
	for range images {
		if err := r.b.use(Use{Image: r.draw.Next(), Bytes: int32(r.sizes.ItemBytes)}); err != nil {
			return err
		}
	}
	return nil
}

// blockRow is one line of a Mooncake or Bailian trace.
type blockRow struct {
	Timestamp *float64 `json:"timestamp"`
	Input     *int64   `json:"input_length"`
	Output    *int64   `json:"output_length"`
	Hashes    []uint64 `json:"hash_ids"`
	Chat      *int64   `json:"chat_id"`
	Parent    *int64   `json:"parent_chat_id"`
	Type      string   `json:"type"`
}

// blockLine reads a line and its common fields; unit is that of the timestamp.
func blockLine(line []byte, unit float64) (v blockRow, at time.Duration, input, output int64, err error) {
	if err = json.Unmarshal(line, &v); err != nil {
		return
	}
	if v.Timestamp == nil || v.Input == nil || v.Output == nil {
		err = errors.New("timestamp, input_length and output_length are required")
		return
	}
	if at, err = seconds(*v.Timestamp * unit); err != nil {
		err = fmt.Errorf("timestamp: %w", err)
		return
	}
	if input, err = bounded("input_length", v.Input, maxTokens, 0); err == nil {
		output, err = bounded("output_length", v.Output, maxTokens, 0)
	}
	return
}

// mooncakeBlock is the tokens that one hash of a Mooncake trace stands for.
const mooncakeBlock = 512

func (r *reader) mooncake(line []byte) error {
	v, at, input, output, err := blockLine(line, 1e-3)
	if err != nil {
		return err
	}
	r.b.t.Assumed = fmt.Sprintf("block-as-image: a Mooncake trace is of text; every hash of %d tokens stands for one image of %d bytes, equal hashes for equal images",
		mooncakeBlock, r.sizes.ItemBytes)
	r.b.begin(at, int32(max(input-int64(len(v.Hashes))*mooncakeBlock, 0)), int32(output))
	for _, h := range v.Hashes {
		if err := r.b.use(Use{Image: r.b.image(binary.LittleEndian.AppendUint64(nil, h)), Bytes: int32(r.sizes.ItemBytes)}); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) bailian(line []byte) error {
	v, at, input, output, err := blockLine(line, 1)
	switch {
	case err != nil:
		return err
	case v.Chat == nil || v.Type == "":
		return errors.New("chat_id and type are required")
	}
	r.b.t.Assumed = fmt.Sprintf("conversation: a Bailian trace names no images; a request of type image holds one of %d bytes, and each turn of its conversation sends the same one again",
		r.sizes.ItemBytes)
	root := *v.Chat
	if v.Parent != nil && *v.Parent >= 0 {
		root = *v.Parent
		if known, ok := r.chats[root]; ok {
			root = known
		}
	}
	r.chats[*v.Chat] = root
	text := input
	if v.Type == "image" {
		text = max(input-int64(r.sizes.ItemBytes/r.sizes.RowBytes), 0)
	}
	r.b.begin(at, int32(text), int32(output))
	if v.Type != "image" {
		return nil
	}
	return r.b.use(Use{Image: r.b.image(bytes.Clone(binary.LittleEndian.AppendUint64(nil, uint64(root)))), Bytes: int32(r.sizes.ItemBytes)})
}
