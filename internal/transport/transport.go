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
	// ErrRefused: the peers do not fit: wire version, engine, model, width or element type differ, or
	// their certificates. No retry helps.
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

// Want is one object that a Receiver makes room for. Transfers with equal Wants share one room, and one
// write.
type Want struct {
	Key      embedding.Key
	Contract embedding.Contract
	Protocol embedding.Protocol // format of the object
	Bytes    int                // exact size of the whole object
	// Fresh wants an object of its own: what another ticket waits for, or has and did not claim, may be
	// what was found to be wrong. Later Wants may share it.
	Fresh bool
}

// Ticket is the receiving side of one transfer. All methods may be called from any goroutine.
type Ticket interface {
	// Grant returns what the sender needs.
	Grant() control.Grant
	// Wait returns the object once it is there and checked. The caller owns one reference of the Buf,
	// which may lie in the sender's memory (Foreign): then its head was checked and its payload was not
	// summed, and it stays valid until it is released, even if the sender dies. The first Wait that
	// returns it takes it; others get ErrClaimed. A transfer that failed, was cancelled or expired
	// yields ErrMissing with the cause. When ctx ends first, Wait returns its error and the transfer
	// goes on. A ticket does not expire while someone waits for it.
	Wait(ctx context.Context) (*arena.Buf, embedding.Meta, error)
	// Cancel gives up: memory that no writer is filling and no other ticket wants comes back at once,
	// bytes that arrive late are dropped and counted, and the sender is told. It does nothing once the
	// object is claimed.
	Cancel()
}

// Receiver is a Prefill worker's side. All methods may be called from any goroutine.
type Receiver interface {
	// Grant reserves memory for all of wants or for none, in arrival order, and waits for it until ctx
	// ends. A request that exceeds the whole arena fails at once with arena.ErrTooLarge. An object that
	// another ticket waits for already, or has and did not claim yet, needs no memory of its own.
	Grant(ctx context.Context, wants []Want) ([]Ticket, error)
	// Turn waits, until ctx ends, for the caller's place at the head of the line in which Grants wait. It
	// is for those whose wants depend on what is there when they get it. The caller must Leave.
	Turn(ctx context.Context) (Turn, error)
	// Address is what senders dial.
	Address() string
	// Close ends all transfers with ErrMissing and returns when every goroutine has ended and every
	// reference is back, but those that Wait handed out.
	Close() error
}

// Turn is the head of the line for memory. It belongs to one goroutine.
type Turn interface {
	// Grant does Receiver.Grant without standing in line. It may be called again, for instance when what
	// the caller counted on has left meanwhile and the tickets of the first call are cancelled.
	Grant(ctx context.Context, wants []Want) ([]Ticket, error)
	// Leave gives the turn to the next in line.
	Leave()
}

// Sender is an Encoder's side. All methods may be called from any goroutine.
type Sender interface {
	// Send delivers the object in buf to g and returns when the receiver has confirmed it: by loan if
	// the receiver is on this host and a loan is possible, else by copy. It may keep references of buf
	// beyond its return: of a copy until it has left, of a loan until the receiver lets go of it or
	// dies. buf must be committed. A Send of what is being sent already joins it.
	Send(ctx context.Context, g control.Grant, buf *arena.Buf) error
	// Close fails the sends in flight with ErrPeer and returns when every goroutine has ended. What is
	// on loan then is quarantined in its arena: nobody will say when the receiver let go of it.
	Close() error
}
