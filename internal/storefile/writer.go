// SPDX-License-Identifier: Apache-2.0

package storefile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
)

// writeAhead is the buffer before the file: one large write costs less than many small ones.
const writeAhead = 1 << 20

// Writer writes one file. It keeps some 50 bytes per object in memory. It is for one goroutine.
type Writer struct {
	w     *bufio.Writer
	off   int64
	index []indexEntry
	names map[uint64]struct{} // sums of the keys in index
	head  []byte              // reused
	err   error               // sticky
}

type indexEntry struct{ off, name uint64 }

// NewWriter begins a file.
func NewWriter(w io.Writer, created time.Time) (*Writer, error) {
	f := &Writer{w: bufio.NewWriterSize(w, writeAhead), names: map[uint64]struct{}{}}
	f.write(fileHead(created))
	return f, f.err
}

// File is what Resume needs of a file; *os.File is one.
type File interface {
	io.ReaderAt
	io.WriteSeeker
	Truncate(size int64) error
}

// Resume goes on with a file of size bytes that was not ended, or that was: it keeps every record from the
// start up to the first one that is damaged or cut, and cuts off the rest. It reads all of the file.
// Progress, which may be nil, hears how many bytes were checked.
func Resume(f File, size int64, progress func(done int64)) (*Writer, error) {
	r, err := Open(f, size)
	if err != nil {
		return nil, err
	}
	w := &Writer{off: fileHeadBytes, names: map[uint64]struct{}{}}
	for {
		at := r.off
		rec, err := r.Next()
		if err == nil {
			err = r.Check()
		}
		if err != nil { // the end, or where the good part ends
			break
		}
		w.note(uint64(at), rec.Key)
		w.off = r.off
		if progress != nil {
			progress(w.off)
		}
	}
	if err := f.Truncate(w.off); err != nil {
		return nil, err
	}
	if _, err := f.Seek(w.off, io.SeekStart); err != nil {
		return nil, err
	}
	w.w = bufio.NewWriterSize(f, writeAhead)
	return w, nil
}

// Has says whether the file holds an object of key.
func (w *Writer) Has(key embedding.Key) bool {
	_, ok := w.names[xxh3.HashString(string(key))]
	return ok
}

// Len returns the number of objects.
func (w *Writer) Len() int { return len(w.index) }

// Bytes returns the size of the file as it stands.
func (w *Writer) Bytes() int64 { return w.off }

// Add writes one object. rec.Bytes is set from obj. After an error of the underlying writer, all calls
// fail with it.
func (w *Writer) Add(rec Record, obj []byte) error {
	rec.Bytes, rec.sum = int64(len(obj)), xxh3.Hash(obj)
	if err := rec.check(); err != nil {
		return fmt.Errorf("storefile: %w", err)
	}
	at := w.off
	w.head = rec.append(w.head[:0])
	w.write(w.head)
	w.write(obj)
	if w.err == nil {
		w.note(uint64(at), rec.Key)
	}
	return w.err
}

func (w *Writer) note(at uint64, key embedding.Key) {
	name := xxh3.HashString(string(key))
	w.index = append(w.index, indexEntry{at, name})
	w.names[name] = struct{}{}
}

func (w *Writer) write(b []byte) {
	if w.err == nil {
		var n int
		n, w.err = w.w.Write(b)
		w.off += int64(n)
	}
}

// Flush hands everything to the underlying writer.
func (w *Writer) Flush() error {
	if w.err == nil {
		w.err = w.w.Flush()
	}
	return w.err
}

// errEnded: the file has its index.
var errEnded = errors.New("storefile: the file is ended")

// Close writes the index and ends the file; it does not close the underlying writer. Without it the file
// is one that was cut off.
func (w *Writer) Close() error {
	at := w.off
	b := binary.LittleEndian.AppendUint32([]byte(magicIndex), 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.index)))
	var sum xxh3.Hasher
	for _, e := range w.index {
		if len(b) >= writeAhead/2 {
			_, _ = sum.Write(b)
			w.write(b)
			b = b[:0]
		}
		b = binary.LittleEndian.AppendUint64(b, e.off)
		b = binary.LittleEndian.AppendUint64(b, e.name)
	}
	_, _ = sum.Write(b)
	w.write(b)
	w.write(trailer{index: uint64(at), count: uint64(len(w.index)), sum: sum.Sum64()}.append(nil))
	err := w.Flush()
	if w.err == nil {
		w.err = errEnded
	}
	return err
}
