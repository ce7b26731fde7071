// SPDX-License-Identifier: Apache-2.0

package storefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
)

// Why a file, or a part of it, cannot be used.
var (
	// ErrNotStoreFile: the file is something else, or of a version that is not known.
	ErrNotStoreFile = errors.New("storefile: not a file of exported embeddings")
	// ErrTruncated: the file ends before its index is complete. All objects before were good.
	ErrTruncated = errors.New("storefile: the file is cut off")
	// ErrRecord: one record is damaged; Next goes on behind it.
	ErrRecord = errors.New("storefile: damaged record")
	// ErrBroken: the file is damaged and cannot be read on.
	ErrBroken = errors.New("storefile: the file is damaged")
)

const (
	magicFile    = "AFISTORE"
	magicRecord  = "OBJ1"
	magicIndex   = "IDX1"
	magicTrailer = "END1"
	version      = 1

	fileHeadBytes   = 64
	recordHeadBytes = 48
	indexHeadBytes  = 16
	indexEntryBytes = 16
	trailerBytes    = 40

	maxKeyBytes    = 4096
	maxTenantBytes = 256

	flagSoftPin = 1
)

// Record describes one object of a file.
type Record struct {
	Key     embedding.Key
	Tenant  string
	Bytes   int64         // of the object
	TTL     time.Duration // left at export; 0 is until evicted
	SoftPin bool

	sum uint64 // of the object
}

// check refuses what no record can say.
func (r *Record) check() error {
	switch {
	case len(r.Key) == 0 || len(r.Key) > maxKeyBytes:
		return fmt.Errorf("key of %d bytes, want 1 to %d", len(r.Key), maxKeyBytes)
	case len(r.Tenant) > maxTenantBytes:
		return fmt.Errorf("tenant of %d bytes, at most %d", len(r.Tenant), maxTenantBytes)
	case r.Bytes <= 0:
		return fmt.Errorf("object of %d bytes", r.Bytes)
	case r.TTL < 0:
		return fmt.Errorf("time to live of %v", r.TTL)
	}
	return nil
}

// append writes the record up to its object.
func (r *Record) append(b []byte) []byte {
	le, from := binary.LittleEndian, len(b)
	b = append(b, magicRecord...)
	b = le.AppendUint16(b, uint16(len(r.Key)))
	b = le.AppendUint16(b, uint16(len(r.Tenant)))
	b = le.AppendUint64(b, uint64(r.Bytes))
	b = le.AppendUint64(b, uint64(r.TTL))
	flags := uint32(0)
	if r.SoftPin {
		flags = flagSoftPin
	}
	b = le.AppendUint32(b, flags)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, r.sum)
	sum := headSum(b[from:], r.Tenant, string(r.Key))
	b = le.AppendUint64(b, sum)
	b = append(b, r.Tenant...)
	return append(b, r.Key...)
}

// headSum sums a record's head up to the sum itself, and the names behind it.
func headSum(head []byte, tenant, key string) uint64 {
	var h xxh3.Hasher
	_, _ = h.Write(head) // never fails
	_, _ = h.WriteString(tenant)
	_, _ = h.WriteString(key)
	return h.Sum64()
}

// nameBytes returns the bytes of tenant and key of a record's head, 0 when it can be no head.
func nameBytes(head []byte) (tenant, key int) {
	key, tenant = int(binary.LittleEndian.Uint16(head[4:])), int(binary.LittleEndian.Uint16(head[6:]))
	if key == 0 || key > maxKeyBytes || tenant > maxTenantBytes {
		return 0, 0
	}
	return tenant, key
}

// parse reads a head and its names, and checks all.
func (r *Record) parse(head []byte, tenant, key string) error {
	le := binary.LittleEndian
	bytes, ttl := le.Uint64(head[8:]), le.Uint64(head[16:])
	flags, reserved := le.Uint32(head[24:]), le.Uint32(head[28:])
	switch {
	case le.Uint64(head[40:]) != headSum(head[:40], tenant, key):
		return errors.New("its head does not match its sum")
	case bytes > math.MaxInt64/2 || ttl > math.MaxInt64 || flags > flagSoftPin || reserved != 0:
		return fmt.Errorf("%d bytes, time to live %d, flags %#x, reserved %#x", bytes, ttl, flags, reserved)
	}
	*r = Record{Key: embedding.Key(key), Tenant: tenant, Bytes: int64(bytes), TTL: time.Duration(ttl),
		SoftPin: flags == flagSoftPin, sum: le.Uint64(head[32:])}
	return r.check()
}

// fileHead returns the head of a file.
func fileHead(created time.Time) []byte {
	b := make([]byte, fileHeadBytes)
	copy(b, magicFile)
	binary.LittleEndian.PutUint32(b[8:], version)
	binary.LittleEndian.PutUint64(b[16:], uint64(created.Unix()))
	binary.LittleEndian.PutUint64(b[56:], xxh3.Hash(b[:56]))
	return b
}

// parseFileHead returns when the export began.
func parseFileHead(b []byte) (time.Time, error) {
	le := binary.LittleEndian
	switch v := le.Uint32(b[8:]); {
	case string(b[:8]) != magicFile:
		return time.Time{}, fmt.Errorf("%w: it begins with %q, want %q", ErrNotStoreFile, b[:8], magicFile)
	case le.Uint64(b[56:]) != xxh3.Hash(b[:56]):
		return time.Time{}, fmt.Errorf("%w: its head does not match its sum", ErrBroken)
	case v != version:
		return time.Time{}, fmt.Errorf("%w: version %d, this program reads %d", ErrNotStoreFile, v, version)
	}
	return time.Unix(int64(le.Uint64(b[16:])), 0), nil
}

// trailer is the end of a file.
type trailer struct {
	index, count, sum uint64
}

func (t trailer) append(b []byte) []byte {
	le, from := binary.LittleEndian, len(b)
	b = append(b, magicTrailer...)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, t.index)
	b = le.AppendUint64(b, t.count)
	b = le.AppendUint64(b, t.sum)
	return le.AppendUint64(b, xxh3.Hash(b[from:]))
}

func parseTrailer(b []byte) (trailer, error) {
	le := binary.LittleEndian
	if string(b[:4]) != magicTrailer || le.Uint32(b[4:]) != 0 || le.Uint64(b[32:]) != xxh3.Hash(b[:32]) {
		return trailer{}, fmt.Errorf("%w: the trailer does not match its sum", ErrBroken)
	}
	return trailer{index: le.Uint64(b[8:]), count: le.Uint64(b[16:]), sum: le.Uint64(b[24:])}, nil
}
