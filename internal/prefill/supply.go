// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/transport"
)

// held is an embedding that is here. One reference of the Buf is its holder's.
type held struct {
	buf   *arena.Buf
	meta  embedding.Meta
	known known
}

// known says what of a payload was looked at.
type known int

const (
	unseen  known = iota // nothing: memory on loan is not summed when it is taken
	summed               // a copy is, when it is taken
	checked              // values were scanned, too
)

// taken is what is known of an embedding that has come.
func taken(b *arena.Buf) known {
	if b.Foreign() {
		return unseen
	}
	return summed
}

// check looks at what of the payload nobody has looked at, in one pass: whichever road an embedding comes by, it is
// summed once, and its values are scanned once before it is offered to anybody.
func (h *held) check(p embedding.Protocol) (err error) {
	switch h.known {
	case unseen:
		err = p.CheckPayload(h.buf.Bytes(), h.meta.DType)
	case summed:
		err = embedding.CheckFinite(h.payload(p), h.meta.DType)
	}
	if err == nil {
		h.known = checked
	}
	return err
}

// payload returns the rows of the object.
func (h held) payload(p embedding.Protocol) []byte {
	off := p.PayloadOffset(h.meta.Layout)
	return h.buf.Bytes()[off : off+h.meta.PayloadBytes()]
}

// supply says how one embedding of a request comes: it is here, being read from the Store, or an Encoder
// delivers it. One of found.buf, load and ticket is set.
type supply struct {
	found  held
	source control.Source // of found: resident or store
	read   bool           // into the residents, from the Store for this request
	load   *load
	ticket transport.Ticket
}

// open says that nothing supplies the item yet.
func (s *supply) open() bool { return s.found.buf == nil && s.load == nil && s.ticket == nil }

// wait returns the embedding, of which the caller owns the reference, and the road that it came by.
func (s *supply) wait(ctx context.Context) (held, control.Road, error) {
	if h := s.found; h.buf != nil {
		s.found = held{}
		if s.source == control.SourceResident {
			return h, control.RoadNone, nil
		}
		return h, road(h.buf, control.RoadCopy), nil
	}
	if s.load != nil {
		h, err := s.load.wait(ctx)
		return h, road(h.buf, control.RoadCopy), err
	}
	buf, meta, err := s.ticket.Wait(ctx)
	if err != nil {
		return held{}, "", err
	}
	return held{buf: buf, meta: meta, known: taken(buf)}, road(buf, control.RoadTCP), nil
}

// road tells memory on loan from bytes that came by other.
func road(b *arena.Buf, other control.Road) control.Road {
	if b != nil && b.Foreign() {
		return control.RoadLoan
	}
	return other
}

// cancel gives back what wait has not handed out.
func (s *supply) cancel() {
	if s.found.buf != nil {
		s.found.buf.Release()
		s.found = held{}
	}
	if s.load != nil {
		s.load.cancel()
	}
	if s.ticket != nil {
		s.ticket.Cancel()
	}
}

// answer describes s to the gateway.
func (s *supply) answer() control.PreparedItem {
	switch {
	case s.found.buf != nil:
		return control.PreparedItem{State: control.Ready, Source: s.source, Rows: s.found.meta.Rows, Bytes: s.found.buf.Len()}
	case s.load != nil:
		return control.PreparedItem{State: control.Loading, Source: control.SourceStore, Bytes: s.load.bytes}
	}
	g := s.ticket.Grant()
	return control.PreparedItem{State: control.Need, Grant: &g}
}

// cancelAll cancels every supply.
func cancelAll(all []supply) {
	for i := range all {
		all[i].cancel()
	}
}
