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
)

// Reader reads a file from its start to its end. What it reads may be hostile: errors say what is wrong,
// and memory does not grow with what the file claims. It is for one goroutine.
//
//	for {
//		rec, err := r.Next()
//		if errors.Is(err, ErrRecord) { continue }  // one object is lost
//		if err != nil { break }                    // io.EOF at the good end of a whole file
//		err = r.Object(memory of rec.Bytes)        // or Check, or nothing
//	}
type Reader struct {
	br      *bufio.Reader
	at      io.ReaderAt // nil in a stream
	size    int64       // with at
	created time.Time

	off      int64       // of br
	object   *Record     // whose object is next; nil before a head
	count    uint64      // records met
	sum      xxh3.Hasher // of the index as it should be
	skipped  bool        // a record was passed over, so that count and sum are of no use
	err      error       // sticky
	nameRoom [maxTenantBytes + maxKeyBytes]byte
}

// NewReader reads a stream.
func NewReader(r io.Reader) (*Reader, error) {
	return (&Reader{br: bufio.NewReaderSize(r, 256<<10)}).start()
}

// Open reads a file of size bytes that can be read at any place.
func Open(f io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{at: f, size: size}
	r.br = bufio.NewReaderSize(nil, 256<<10)
	r.seek(0)
	return r.start()
}

func (r *Reader) start() (*Reader, error) {
	var head [fileHeadBytes]byte
	n, err := io.ReadFull(r.br, head[:])
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		if n >= len(magicFile) && string(head[:len(magicFile)]) == magicFile {
			return nil, fmt.Errorf("%w: %d bytes, its head has %d", ErrTruncated, n, fileHeadBytes)
		}
		return nil, fmt.Errorf("%w: %d bytes that begin with %q", ErrNotStoreFile, n, head[:min(n, 8)])
	case err != nil:
		return nil, err
	}
	r.off = fileHeadBytes
	r.created, err = parseFileHead(head[:])
	return r, err
}

// Created returns when the export began.
func (r *Reader) Created() time.Time { return r.created }

// Offset returns how much of the file was read.
func (r *Reader) Offset() int64 { return r.off }

// seek goes to a place of a file that can be read anywhere.
func (r *Reader) seek(off int64) {
	r.br.Reset(io.NewSectionReader(r.at, off, max(r.size-off, 0)))
	r.off = off
}

// Next goes to the next record. What was not read of an object is passed over. At the end of a whole file
// it returns io.EOF. After an error that wraps ErrRecord, Next may be called again; others are final.
func (r *Reader) Next() (Record, error) {
	if r.err != nil {
		return Record{}, r.err
	}
	if err := r.pass(); err != nil {
		return Record{}, r.end(err)
	}
	at := r.off
	rec, err := r.head()
	if err == nil && r.at != nil && rec.Bytes > r.size-r.off { // nobody needs to make room for it
		return Record{}, r.end(r.cut(io.EOF))
	}
	if err == nil {
		r.expect(at, rec)
		r.object = &rec
		return rec, nil
	}
	// Damage to the lengths of a head can make it reach beyond the end.
	if !errors.Is(err, ErrRecord) && !errors.Is(err, ErrTruncated) {
		return Record{}, r.end(err)
	}
	next, ok := r.behind(at)
	switch {
	case !ok && errors.Is(err, ErrTruncated):
		return Record{}, r.end(err)
	case !ok:
		return Record{}, r.end(fmt.Errorf("%w at byte %d: %w; what follows cannot be found", ErrBroken, at, err))
	case !errors.Is(err, ErrRecord):
		err = fmt.Errorf("%w: its names reach beyond the end", ErrRecord)
	}
	r.seek(next)
	r.skipped = true
	return Record{}, fmt.Errorf("at byte %d: %w", at, err)
}

// end makes an error final.
func (r *Reader) end(err error) error {
	r.err = err
	return err
}

// cut turns the end of the input into what it means here.
func (r *Reader) cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends behind %d objects, without its index", ErrTruncated, r.count)
	}
	return err
}

// fill reads all of b.
func (r *Reader) fill(b []byte) error {
	n, err := io.ReadFull(r.br, b)
	r.off += int64(n)
	if err != nil {
		return r.cut(err)
	}
	return nil
}

// pass goes behind the object that Next announced.
func (r *Reader) pass() error {
	if r.object == nil {
		return nil
	}
	n := r.object.Bytes
	r.object = nil
	if r.at != nil {
		if n > r.size-r.off {
			r.count--
			return r.cut(io.EOF)
		}
		r.seek(r.off + n)
		return nil
	}
	done, err := io.CopyN(io.Discard, r.br, n)
	r.off += done
	if err != nil {
		r.count--
		return r.cut(err)
	}
	return nil
}

// head reads a record's head. An error that wraps ErrRecord is about this record only.
func (r *Reader) head() (rec Record, err error) {
	var head [recordHeadBytes]byte
	if err := r.fill(head[:4]); err != nil {
		return rec, err
	}
	if string(head[:4]) == magicIndex {
		return rec, r.finish()
	}
	if string(head[:4]) != magicRecord {
		return rec, fmt.Errorf("%w: it begins with %q", ErrRecord, head[:4])
	}
	if err := r.fill(head[4:]); err != nil {
		return rec, err
	}
	tenant, key := nameBytes(head[:])
	if key == 0 {
		return rec, fmt.Errorf("%w: lengths of its names are out of range", ErrRecord)
	}
	names := r.nameRoom[:tenant+key]
	if err := r.fill(names); err != nil {
		return rec, err
	}
	if err := rec.parse(head[:], string(names[:tenant]), string(names[tenant:])); err != nil {
		return rec, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return rec, nil
}

// expect notes what the index has to say of a record.
func (r *Reader) expect(at int64, rec Record) {
	r.count++
	var b [indexEntryBytes]byte
	binary.LittleEndian.PutUint64(b[:], uint64(at))
	binary.LittleEndian.PutUint64(b[8:], xxh3.HashString(string(rec.Key)))
	_, _ = r.sum.Write(b[:])
}

// Object reads the object of the record that Next returned into dst, which has its size, and checks its
// sum. An error that wraps ErrRecord is about this object only; others are final.
func (r *Reader) Object(dst []byte) error {
	if r.object == nil || int64(len(dst)) != r.object.Bytes {
		return errors.New("storefile: Object without its record, or of another size")
	}
	want := r.object.sum
	r.object = nil
	if err := r.fill(dst); err != nil {
		return r.endInObject(err)
	}
	return sumError(xxh3.Hash(dst), want)
}

// Check reads the object of the record that Next returned for its sum alone, in little memory.
func (r *Reader) Check() error {
	if r.object == nil {
		return errors.New("storefile: Check without a record")
	}
	rec := r.object
	r.object = nil
	var sum xxh3.Hasher
	n, err := io.CopyN(&sum, r.br, rec.Bytes)
	r.off += n
	if err != nil {
		return r.endInObject(r.cut(err))
	}
	return sumError(sum.Sum64(), rec.sum)
}

// endInObject ends a file whose last object is not whole and does not count.
func (r *Reader) endInObject(err error) error {
	r.count--
	if errors.Is(err, ErrTruncated) {
		err = r.cut(io.EOF)
	}
	return r.end(err)
}

func sumError(got, want uint64) error {
	if got != want {
		return fmt.Errorf("%w: the object's sum is %016x, want %016x", ErrRecord, got, want)
	}
	return nil
}
