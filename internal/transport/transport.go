// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// The classes of errors of Send. Every error that is not the caller's ctx wraps exactly one of them.
var (
	// ErrRefused: the peers do not fit: wire version, engine or width differ. No retry helps.
	ErrRefused = errors.New("transport: peers do not fit")
	// ErrGone: the receiver does not know the transfer, or no longer. A fresh grant helps.
	ErrGone = errors.New("transport: transfer is gone")
	// ErrRejected: the receiver, or Send itself, found the object not to be what was asked for.
	ErrRejected = errors.New("transport: object rejected")
	// ErrPeer: the connection failed; whether the object arrived is not known.
	ErrPeer = errors.New("transport: peer unreachable")
)

// The classes of errors of Grant and Wait.
var (
	// ErrMissing: the object will not come by this ticket. The request may be repaired.
	ErrMissing = errors.New("transport: object is missing")
	// ErrClaimed: an earlier Wait took the object.
	ErrClaimed = errors.New("transport: object was already claimed")
	// ErrClosed: the Receiver or Sender is closed.
	ErrClosed = errors.New("transport: closed")
)

// Want is one object that a Receiver makes room for.
type Want struct {
	Key      embedding.Key
	Contract embedding.Contract
	Protocol embedding.Protocol // format of the object
	Bytes    int                // exact size of the whole object
}

// Ticket is the receiving side of one transfer. All methods may be called from any goroutine.
type Ticket interface {
	// Grant returns what the sender needs.
	Grant() control.Grant
	// Wait returns the object once it is there and checked. The caller owns one reference of the Buf.
	// The first Wait that returns it takes it; others get ErrClaimed. A transfer that failed, was
	// cancelled or expired yields ErrMissing with the cause. When ctx ends first, Wait returns its
	// error and the transfer goes on. A ticket does not expire while someone waits for it.
	Wait(ctx context.Context) (*arena.Buf, embedding.Meta, error)
	// Cancel gives up: memory that no writer is filling comes back at once, bytes that arrive late
	// are dropped and counted. It does nothing once the object is claimed.
	Cancel()
}

// Receiver is a Prefill worker's side. All methods may be called from any goroutine.
type Receiver interface {
	// Grant reserves memory for all of wants or for none, in arrival order, and waits for it until ctx
	// ends. A request that exceeds the whole arena fails at once with arena.ErrTooLarge.
	Grant(ctx context.Context, wants []Want) ([]Ticket, error)
	// Address is what senders dial.
	Address() string
	// Close ends all transfers with ErrMissing and returns when every goroutine has ended and every
	// reference is back, but those that Wait handed out.
	Close() error
}

// Sender is an Encoder's side. All methods may be called from any goroutine.
type Sender interface {
	// Send writes the object in buf to g and returns when the receiver has confirmed it. It borrows
	// buf until it returns.
	Send(ctx context.Context, g control.Grant, buf *arena.Buf) error
	// Close fails the sends in flight with ErrPeer and returns when every goroutine has ended.
	Close() error
}
