// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"encoding/binary"
	"fmt"
	"io"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// get fills gots in order. What was filled before an error stays filled.
func (cn *conn) get(a *arena.Arena, wants []store.Want, gots []store.Got) error {
	id, err := cn.send(opGet, len(wants), func(b []byte) []byte { return appendWants(b, wants) })
	if err != nil {
		return err
	}
	if h, _, err := cn.reply(opGet, id); err != nil {
		return err
	} else if h.count != len(wants) {
		return fmt.Errorf("%w: %d answers to %d keys", errProtocol, h.count, len(wants))
	}
	for i, w := range wants {
		if gots[i], err = cn.item(a, w); err != nil {
			return err
		}
	}
	return nil
}

// item reads the answer to one Want. The object's bytes go straight into the arena.
func (cn *conn) item(a *arena.Arena, w store.Want) (store.Got, error) {
	cn.extend(0)
	st, size, err := readItem(cn.r, cn.scratch, w.Key)
	switch {
	case err != nil:
		return store.Got{}, err
	case st == statusMiss:
		return store.Got{Err: store.ErrMiss}, nil
	case st == statusRejected:
		return store.Got{Err: fmt.Errorf("%w: object of %d bytes, want %d", store.ErrRejected, size, w.Bytes)}, nil
	case st != statusOK || size > uint64(max(w.Bytes, 0)) || w.Exact && size != uint64(w.Bytes):
		return store.Got{}, fmt.Errorf("%w: item of status %d and %d bytes, want %d", errProtocol, st, size, w.Bytes)
	}
	return cn.object(a, int(size))
}

// object reads n bytes that are next on the connection.
func (cn *conn) object(a *arena.Arena, n int) (store.Got, error) {
	cn.extend(n)
	buf, err := a.Reserve(n)
	if err != nil {
		// The object is on its way already; reading past it keeps the rest of the batch.
		if _, skip := io.CopyN(io.Discard, cn.r, int64(n)); skip != nil {
			return store.Got{}, skip
		}
		return store.Got{Err: fmt.Errorf("%w: no memory for %d bytes: %w", store.ErrRejected, n, err)}, nil
	}
	defer buf.Abort()
	if _, err := io.ReadFull(cn.r, buf.Bytes()); err != nil {
		return store.Got{}, err
	}
	buf.Commit()
	return store.Got{Buf: buf}, nil
}

// put reserves, sends and commits. refused is the Store's answer, with a class.
func (cn *conn) put(key embedding.Key, obj []byte, opts store.PutOptions) (refused, err error) {
	id, err := cn.send(opReserve, 0, func(b []byte) []byte { return appendReserve(b, key, len(obj), opts) })
	if err != nil {
		return nil, err
	}
	if done, refused, err := cn.verdict(opReserve, id); done || err != nil {
		return refused, err
	}
	cn.extend(len(obj))
	if _, err := cn.nc.Write(obj); err != nil {
		return nil, err
	}
	_, refused, err = cn.verdict(opCommit, id)
	return refused, err
}

// verdict reads one answer to a PUT. done says that the call is over.
func (cn *conn) verdict(o op, id uint64) (done bool, refused, err error) {
	h, body, err := cn.reply(o, id)
	switch {
	case err != nil:
		return true, nil, err
	case h.status == statusOK:
		return false, nil, nil
	case h.status == statusExists:
		return true, nil, nil
	case h.status == statusRejected:
		return true, fmt.Errorf("%w: %.512s", store.ErrRejected, body), nil
	}
	return true, nil, fmt.Errorf("%w: status %d", errProtocol, h.status)
}

func appendReserve(b []byte, key embedding.Key, n int, opts store.PutOptions) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	b = binary.LittleEndian.AppendUint64(b, uint64(max(opts.TTL, 0)))
	b = binary.LittleEndian.AppendUint16(b, flagSoftPin*uint16(boolByte(opts.SoftPin)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(opts.Tenant)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, 0, 0)
	b = append(b, opts.Tenant...)
	return append(b, key...)
}

func appendWants(b []byte, wants []store.Want) []byte {
	for _, w := range wants {
		b = binary.LittleEndian.AppendUint64(b, uint64(max(w.Bytes, 0)))
		b = append(b, boolByte(w.Exact), 0)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(w.Key)))
		b = append(b, w.Key...)
	}
	return b
}
