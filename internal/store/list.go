// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"afterimage/internal/embedding"
)

// Entry describes one stored object to people and tools. It was true at one moment: the object may have
// changed its state, or be gone, when it is read.
type Entry struct {
	Key     embedding.Key
	Bytes   int64
	Age     time.Duration // since it was stored
	LastUse time.Duration // since it was stored or last read
	Pins    int           // readers that keep it in memory, loans included
	TTL     time.Duration // time left to live; 0 is until evicted
	SoftPin bool
	Tenant  string // "" is shared
}

// Lister is optional: a Store that can say what it holds.
type Lister interface {
	// List returns the next objects whose keys begin with prefix, in byte order of their keys, from the
	// first one behind after on; "" starts at the first. It returns at most limit entries, and may return
	// fewer; none means that there are no more. What is stored or removed between two calls may be
	// missed. It makes no object any warmer. Errors are as those of Exists.
	List(ctx context.Context, prefix string, after embedding.Key, limit int) ([]Entry, error)
}

// Totals sum a Store up. Counts are since its start.
type Totals struct {
	Objects     int64  `json:"objects"`
	Bytes       int64  `json:"bytes"`
	LimitBytes  int64  `json:"limit_bytes"`
	MaxObject   int64  `json:"max_object_bytes"` // largest object that it takes
	UploadBytes int64  `json:"upload_bytes"`     // reserved for objects that are being stored
	Loans       int64  `json:"loans"`
	LoanBytes   int64  `json:"loan_bytes"`
	Connections int64  `json:"connections"`
	Puts        uint64 `json:"puts"`
	Gets        uint64 `json:"gets"`
	Hits        uint64 `json:"hits"`
	Misses      uint64 `json:"misses"`
	Evictions   uint64 `json:"evictions"`
	Expired     uint64 `json:"expired"`
	Removed     uint64 `json:"removed"`
	Rejected    uint64 `json:"rejected"`
}

// Teller is optional: a Store that can sum itself up.
type Teller interface {
	Totals(ctx context.Context) (Totals, error)
}
