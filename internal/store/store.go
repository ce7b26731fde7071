// SPDX-License-Identifier: Apache-2.0

// Package store defines the shared Store of embeddings: one interface, the classes of its errors, and
// nothing of how a back end works.
//
// A Store holds objects: opaque byte ranges under a key. It does not know what is in them; whoever
// reads one checks it against the key and a contract (package embedding). A Store is an optimisation:
// no error of it may fail a request.
package store

import (
	"context"
	"errors"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// The classes of errors. Every error that a Store returns wraps exactly one of them.
var (
	// ErrMiss: the object is not there, or no longer.
	ErrMiss = errors.New("store: miss")
	// ErrRejected: the call was refused and nothing is using the caller's memory.
	ErrRejected = errors.New("store: rejected")
	// ErrUnavailable: the Store cannot be reached; encode instead.
	ErrUnavailable = errors.New("store: unavailable")
	// ErrUnconfirmed: someone may still be using the caller's memory.
	ErrUnconfirmed = errors.New("store: completion unconfirmed")
)

// State is the answer to one key of Exists.
type State struct {
	Present bool
	Bytes   int64 // object size; 0 means unknown
}

// Want asks for one object.
type Want struct {
	Key embedding.Key
	// Bytes is the most that the object may have; a larger one is ErrRejected. With Exact, any other
	// size is too.
	Bytes int
	Exact bool
}

// Got answers one Want: a committed Buf with the whole object, of which the caller owns one
// reference, or an error with a class.
type Got struct {
	Buf *arena.Buf
	Err error
}

// PutOptions are hints; a back end honours those that its Capabilities name.
type PutOptions struct {
	Tenant  string        // whose quota it counts against; "" is shared
	TTL     time.Duration // 0 keeps it until evicted
	SoftPin bool          // evicted last
}

// EventKind says what happened to a key.
type EventKind string

// The kinds of events.
const (
	Stored  EventKind = "stored"
	Removed EventKind = "removed"
	// Resync: events were lost or the Store restarted; forget what was known.
	Resync EventKind = "resync"
)

// Event tells of a change, where the back end can. Events are hints: late, and sometimes lost.
type Event struct {
	Kind EventKind
	Key  embedding.Key
	Seq  uint64 // grows by one per event of an epoch; a gap means Resync
}

// Capabilities say what a back end can honour.
type Capabilities struct {
	Name    string // "ram", "mooncake"
	Tenants bool
	TTL     bool
	SoftPin bool
	Events  bool
	Remote  bool  // reachable from other hosts
	Lends   bool  // a Get gives memory of the Store's and costs the reader's arena nothing
	Unsized bool  // Exists does not tell sizes
	Tells   bool  // it logs by itself, once each, that it is away, that it is back, and what it holds back
	MaxPut  int64 // largest object in bytes; 0 is unlimited
}

// Store is a shared key-value store of embeddings. All methods may be called from any goroutine and
// return when ctx ends.
type Store interface {
	// Exists answers each key in order. The error, if any, is for the whole batch.
	Exists(ctx context.Context, keys []embedding.Key) ([]State, error)
	// Get answers each Want in order; items fail alone.
	Get(ctx context.Context, wants []Want) []Got
	// Put stores the whole of buf under key. It borrows buf until it returns. Storing a key that is
	// there already is a success that changes nothing.
	Put(ctx context.Context, key embedding.Key, buf *arena.Buf, opts PutOptions) error
	// Remove drops keys; a key that is not there is no error.
	Remove(ctx context.Context, keys []embedding.Key) error
	// Events streams changes until ctx ends; nil when the back end has none.
	Events(ctx context.Context) <-chan Event
	Capabilities() Capabilities
	// Close ends all calls and gives back every reference. It is called once.
	Close() error
}

// Excluder is a Store that can tell without asking anybody that objects are not there.
type Excluder interface {
	// NoneStored says that for sure no key is stored; false means nothing. It does not block.
	NoneStored(keys []embedding.Key) bool
}
