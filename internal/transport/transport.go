// SPDX-License-Identifier: Apache-2.0

// Package transport delivers embeddings from an Encoder to a Prefill worker: the worker grants
// memory, the Encoder writes one object into it, the worker confirms.
package transport

import (
	"context"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// Want is one object that a Receiver makes room for.
type Want struct {
	Key      embedding.Key
	Contract embedding.Contract
	Bytes    int // size of the whole object
}

// Ticket is the receiving side of one transfer.
type Ticket interface {
	// Grant returns what the sender needs.
	Grant() control.Grant
	// Wait returns the object once it is there and checked. The caller owns one reference of the Buf.
	Wait(ctx context.Context) (*arena.Buf, embedding.Meta, error)
	// Cancel gives up: memory that no writer is filling comes back at once, bytes that arrive late
	// are dropped and counted.
	Cancel()
}

// Receiver is a Prefill worker's side.
type Receiver interface {
	// Grant reserves memory for all of wants or for none, in arrival order, and waits for it until ctx
	// ends.
	Grant(ctx context.Context, wants []Want) ([]Ticket, error)
	// Address is what senders dial.
	Address() string
	Close() error
}

// Sender is an Encoder's side.
type Sender interface {
	// Send writes the object in buf to g and returns when the receiver has confirmed it. It borrows
	// buf until it returns.
	Send(ctx context.Context, g control.Grant, buf *arena.Buf) error
	Close() error
}
