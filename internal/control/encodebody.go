// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// MaxEncodeLine is the most bytes that the JSON line of an encode body may have, the line feed
// included. 32 items with 16 grants each take about 80 KiB.
const MaxEncodeLine = 1 << 20

// EncodeLimits bound what ReadEncodeBody takes. They are checked against what the JSON line declares,
// before memory for any image is allocated. All must be positive.
type EncodeLimits struct {
	Items      int   // images per call
	ImageBytes int   // one image file
	TotalBytes int64 // all image files of a call together
}

// NewEncodeBody returns the body of an encode call and its exact length, for Content-Length. The reader, a
// *net.Buffers, reads images where they lie; they must not change until it is drained.
func NewEncodeBody(req EncodeRequest, images [][]byte) (io.Reader, int64, error) {
	if len(images) != len(req.Items) {
		return nil, 0, fmt.Errorf("control: encode body: %d images for %d items", len(images), len(req.Items))
	}
	line, err := json.Marshal(req) // never holds a raw line feed: JSON strings escape it
	if err != nil {
		return nil, 0, fmt.Errorf("control: encode body: %w", err)
	}
	line = append(line, '\n')
	if len(line) > MaxEncodeLine {
		return nil, 0, fmt.Errorf("control: encode body: JSON line of %d bytes exceeds %d", len(line), MaxEncodeLine)
	}
	length := int64(len(line))
	parts := net.Buffers{line}
	for i, img := range images {
		if len(img) != req.Items[i].Bytes {
			return nil, 0, fmt.Errorf("control: encode body: item %d: image of %d bytes, declared %d",
				i, len(img), req.Items[i].Bytes)
		}
		length += int64(len(img))
		parts = append(parts, img)
	}
	return &parts, length, nil
}

// ReadEncodeBody reads the body of an encode call to its end. A body that is malformed or over a
// limit yields an *Error with the status to answer; other errors are those of r. The images are
// fresh memory that the caller owns.
func ReadEncodeBody(r io.Reader, lim EncodeLimits) (EncodeRequest, [][]byte, error) {
	br := bufio.NewReader(r)
	line, err := readLine(br)
	if err != nil {
		return EncodeRequest{}, nil, err
	}
	var req EncodeRequest
	if err := json.Unmarshal(line, &req); err != nil {
		return EncodeRequest{}, nil, badBody("", "encode body: JSON line: %v", err)
	}
	if len(req.Tenant) > maxTenant {
		return EncodeRequest{}, nil, badBody("tenant", "encode body: tenant of %d bytes, limit %d", len(req.Tenant), maxTenant)
	}
	if err := lim.check(req.Items); err != nil {
		return EncodeRequest{}, nil, err
	}
	images := make([][]byte, len(req.Items))
	for i, it := range req.Items {
		images[i] = make([]byte, it.Bytes)
		if n, err := io.ReadFull(br, images[i]); err != nil {
			return EncodeRequest{}, nil, shortBody(i, n, it.Bytes, err)
		}
	}
	switch _, err := br.ReadByte(); {
	case err == nil:
		return EncodeRequest{}, nil, badBody("", "encode body: bytes after the last image")
	case !errors.Is(err, io.EOF):
		return EncodeRequest{}, nil, err
	}
	return req, images, nil
}

// readLine returns the first line without its line feed. It never holds more than MaxEncodeLine and
// one read buffer.
func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		if len(line)+len(part) > MaxEncodeLine {
			return nil, tooLarge("", "encode body: JSON line exceeds %d bytes", MaxEncodeLine)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull): // the line is longer than one buffer: go on
		case errors.Is(err, io.EOF):
			return nil, badBody("", "encode body: ends after %d bytes, before the JSON line does", len(line))
		default:
			return nil, err
		}
	}
}

// maxIdentifier bounds a name that goes into Store keys. Ours have 64 bytes, those of vLLM a few more.
const maxIdentifier = 512

// maxTenant bounds the name of a tenant, as the Store does.
const maxTenant = 256

// check holds the declared sizes against the limits.
func (lim EncodeLimits) check(items []EncodeItem) error {
	if len(items) == 0 {
		return badBody("items", "encode body: no items")
	}
	if len(items) > lim.Items {
		return tooLarge("items", "encode body: %d items exceed %d", len(items), lim.Items)
	}
	var total int64
	for i, it := range items {
		param := fmt.Sprintf("items[%d].bytes", i)
		switch {
		case it.Bytes <= 0:
			return badBody(param, "encode body: item %d: %d bytes, want at least 1", i, it.Bytes)
		case it.Bytes > lim.ImageBytes:
			return tooLarge(param, "encode body: item %d: image of %d bytes exceeds %d", i, it.Bytes, lim.ImageBytes)
		}
		// No overflow: at most Items addends, and the sum is checked after each.
		if total += int64(it.Bytes); total > lim.TotalBytes {
			return tooLarge(param, "encode body: images up to item %d have %d bytes, which exceeds %d in all",
				i, total, lim.TotalBytes)
		}
		if n := len(it.Identifier); n < 1 || n > maxIdentifier {
			return badBody(fmt.Sprintf("items[%d].identifier", i), "encode body: item %d: identifier of %d bytes, want 1 to %d", i, n, maxIdentifier)
		}
	}
	return nil
}

// shortBody tells a body that ends early, which is its sender's fault, from a connection that broke.
func shortBody(item, got, want int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badBody(fmt.Sprintf("items[%d].bytes", item),
			"encode body: item %d: body ends after %d of %d bytes", item, got, want)
	}
	return fmt.Errorf("control: encode body: item %d: %w", item, err)
}

func badBody(param, format string, args ...any) error {
	return &Error{Status: http.StatusBadRequest, Type: "BadRequestError", Param: param,
		Message: fmt.Sprintf(format, args...)}
}

func tooLarge(param, format string, args ...any) error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Type: "RequestEntityTooLargeError", Param: param,
		Message: fmt.Sprintf(format, args...)}
}
