// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

var (
	_ store.Lister = (*Client)(nil)
	_ store.Teller = (*Client)(nil)
)

// List implements store.Lister.
func (c *Client) List(ctx context.Context, prefix string, after embedding.Key, limit int) (out []store.Entry, err error) {
	if len(prefix) > maxKeyBytes || len(after) > maxKeyBytes {
		return nil, fmt.Errorf("%w: prefix or key of more than %d bytes", store.ErrRejected, maxKeyBytes)
	}
	if limit <= 0 {
		return nil, nil
	}
	err = c.call(ctx, c.reads, func(cn *conn) (err error) {
		out, err = cn.list(prefix, after, min(limit, maxBatch))
		return err
	})
	return out, err
}

// Totals implements store.Teller.
func (c *Client) Totals(ctx context.Context) (t store.Totals, err error) {
	err = c.call(ctx, c.reads, func(cn *conn) error {
		id, err := cn.send(opTotals, 0, func(b []byte) []byte { return b })
		if err != nil {
			return err
		}
		_, body, err := cn.reply(opTotals, id)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, &t); err != nil {
			return fmt.Errorf("%w: totals: %w", errProtocol, err)
		}
		return nil
	})
	return t, err
}

// list asks for one page.
func (cn *conn) list(prefix string, after embedding.Key, limit int) ([]store.Entry, error) {
	id, err := cn.send(opList, limit, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(prefix)))
		b = binary.LittleEndian.AppendUint16(b, uint16(len(after)))
		b = append(b, prefix...)
		return append(b, after...)
	})
	if err != nil {
		return nil, err
	}
	h, body, err := cn.reply(opList, id)
	if err != nil {
		return nil, err
	}
	if h.count > limit {
		return nil, fmt.Errorf("%w: %d entries, asked for %d", errProtocol, h.count, limit)
	}
	c := cursor{b: body}
	out := make([]store.Entry, h.count)
	for i := range out {
		if out[i] = c.readEntry(); out[i].Key <= after {
			return nil, fmt.Errorf("%w: a list that is out of order", errProtocol)
		}
		after = out[i].Key
	}
	return out, c.end()
}
