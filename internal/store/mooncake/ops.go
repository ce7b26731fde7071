// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// uuid names a dummy client, and thereby its mapped memory, at mooncake_client.
type uuid [2]uint64

func newUUID() uuid {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return uuid{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
}

// result is the outcome for one key: n (bytes of a get, 0 or 1 of an exist), or a code.
type result struct {
	n    int64
	code code
}

// place is where an object lies in the memory that mooncake_client maps.
type place struct {
	addr  uint64
	bytes int
}

// anyDevice lets the server choose; it is the default of the official client.
const anyDevice = -1

var (
	fnReady     = funcID("service_ready_internal")
	fnPing      = funcID("ping")
	fnExist     = funcID("batchIsExist_internal")
	fnGet       = funcID("batch_get_into_dummy_helper")
	fnGetInline = funcID("batch_get_into_multi_buffers_dummy_helper")
	fnPut       = funcID("batch_put_from_dummy_helper")
	fnRemove    = funcID("batchRemove_internal")
	fnUnmap     = funcID("unmap_shm_internal")
	fnMapped    = funcID("is_shm_mapped_internal")
	fnSize      = funcID("getSize_internal")
)

var (
	keysType   = vec(tStr)
	removeType = tuple(keysType, tBool)      // keys, force
	mappedType = tuple(tU64, tUUID)          // address, id
	pingType   = expected(tuple(tI64, tI32)) // view version, status
	getType    = tuple(vec(tStr), vec(tU64), vec(tU64), tI32, tUUID)
	inlineType = tuple(vec(tStr), vec(vec(tU64)), vec(vec(tU64)), tBool, tI32, tUUID)
	existReply = vec(expected(tBool))
	getReply   = vec(expected(tI64))
	putReply   = vec(expected(tVoid)) // of removals, too
	voidReply  = expected(tVoid)
	boolReply  = expected(tBool)
	sizeReply  = expected(tI64)
)

// encodeExist asks which keys are present.
func encodeExist(keys []string) []byte {
	longest, bytes := maxLen(keys)
	e := newEncoder(keysType, longest, bytes+8*len(keys))
	e.strs(keys)
	return e.b
}

// encodeGet asks for objects to be written to places. Keys are distinct.
func encodeGet(keys []string, at []place, id uuid) []byte {
	longest, bytes := maxLen(keys)
	e := newEncoder(getType, longest, bytes+24*len(keys)+64)
	e.strs(keys)
	e.places(at)
	e.i32(anyDevice)
	e.uuid(id)
	return e.b
}

// encodeGetInline asks for the same of the function that takes several places for each object, of which it gets one.
func encodeGetInline(keys []string, at []place, id uuid) []byte {
	longest, bytes := maxLen(keys)
	e := newEncoder(inlineType, longest, bytes+40*len(keys)+64)
	e.strs(keys)
	e.length(len(at))
	for _, p := range at {
		e.length(1)
		e.u64(p.addr)
	}
	e.length(len(at))
	for _, p := range at {
		e.length(1)
		e.u64(uint64(p.bytes))
	}
	e.bool(false) // prefer_alloc_in_same_node, which some releases read without looking at the lease
	e.i32(anyDevice)
	e.uuid(id)
	return e.b
}

// encodePut asks for places to be stored, and evicted last where pin is set. Keys are distinct.
func encodePut(l *putLayout, keys []string, at []place, id uuid, pin bool) []byte {
	longest, bytes := maxLen(keys)
	e := newEncoder(l.args, longest, bytes+24*len(keys)+128)
	e.strs(keys)
	e.places(at)
	l.write(e, pin)
	e.i32(anyDevice)
	e.uuid(id)
	return e.b
}

func (e *encoder) places(at []place) {
	e.length(len(at))
	for _, p := range at {
		e.u64(p.addr)
	}
	e.length(len(at))
	for _, p := range at {
		e.u64(uint64(p.bytes))
	}
}

func encodeUUID(id uuid) []byte {
	e := newEncoder(tUUID, 0, 16)
	e.uuid(id)
	return e.b
}

// one makes a call that answers with a single result and touches no memory of ours.
func (c *conn) one(ctx context.Context, fn uint32, body []byte, t typ, value func(*decoder) int64) (result, error) {
	b, err := c.call(ctx, fn, body)
	if err != nil {
		return result{}, err
	}
	d := newDecoder(b, t)
	r := d.result(value)
	return r, d.err
}

// ready asks whether the server takes calls, and is a mooncake_client at all.
func (c *conn) ready(ctx context.Context) error {
	r, err := c.one(ctx, fnReady, nil, voidReply, asVoid)
	var re *rpcError
	switch {
	case errors.As(err, &re) && re.code == rpcUnknownFunction:
		return &errRelease{foreignServer}
	case err == nil && r.code != codeOK:
		return fmt.Errorf("mooncake_client is not ready: %v", r.code)
	}
	return err
}

// ping keeps the mapping of id alive; it is lost 10 s after the last one. It returns whether
// mooncake_client reaches the master; one without a segment of its own always says yes.
func (c *conn) ping(ctx context.Context, id uuid) (serving bool, err error) {
	r, err := c.one(ctx, fnPing, encodeUUID(id), pingType, func(d *decoder) int64 {
		d.u64() // view version
		return int64(int32(d.u32()))
	})
	if err == nil && r.code != codeOK {
		err = fmt.Errorf("ping: %v", r.code)
	}
	return r.n == 1, err
}

// exist asks which keys are present; the answer renews their leases.
func (c *conn) exist(ctx context.Context, keys []string) ([]result, error) {
	b, err := c.call(ctx, fnExist, encodeExist(keys))
	if err != nil {
		return nil, err
	}
	return newDecoder(b, existReply).results(len(keys), asBool)
}

// size asks how many bytes an object has.
func (c *conn) size(ctx context.Context, key string) (result, error) {
	e := newEncoder(tStr, len(key), len(key)+8)
	e.str(key)
	return c.one(ctx, fnSize, e.b, sizeReply, asI64)
}

// remove drops the keys that nobody has a lease on; with force also those that somebody has, whose space may be
// given away under readers.
func (c *conn) remove(ctx context.Context, keys []string, force bool) ([]result, error) {
	longest, bytes := maxLen(keys)
	e := newEncoder(removeType, longest, bytes+8*len(keys)+8)
	e.strs(keys)
	e.bool(force)
	b, err := c.call(ctx, fnRemove, e.b)
	if err != nil {
		return nil, err
	}
	return newDecoder(b, putReply).results(len(keys), asVoid)
}

// unmap withdraws the mapping of id. The server first waits for all that is running; when it answers
// with codeOK, nothing of that process can reach the memory through id any more.
func (c *conn) unmap(ctx context.Context, id uuid) (result, error) {
	return c.one(ctx, fnUnmap, encodeUUID(id), voidReply, asVoid)
}

// mapped asks whether id has a mapping at base.
func (c *conn) mapped(ctx context.Context, base uint64, id uuid) (bool, error) {
	e := newEncoder(mappedType, 0, 24)
	e.u64(base)
	e.uuid(id)
	r, err := c.one(ctx, fnMapped, e.b, boolReply, asBool)
	if err == nil && r.code != codeOK {
		err = fmt.Errorf("is_shm_mapped: %v", r.code)
	}
	return r.n == 1, err
}

// errRelease says that a mooncake_client is of a release that this client does not speak to.
type errRelease struct{ text string }

func (e *errRelease) Error() string { return e.text }

// foreignServer is said of whatever else speaks the same RPC.
const foreignServer = "the server is no mooncake_client (mooncake_master has another port), or one older than " + oldRelease

// findLayout tries the layouts with empty PUTs, which have no effect.
func (c *conn) findLayout(ctx context.Context, layouts []putLayout) (*putLayout, error) {
	for i := range layouts {
		l := &layouts[i]
		_, err := c.call(ctx, fnPut, encodePut(l, nil, nil, uuid{}, false))
		var re *rpcError
		switch {
		case errors.As(err, &re) && re.code == rpcBadArguments:
			continue
		case errors.As(err, &re) && re.code == rpcUnknownFunction:
			return nil, &errRelease{foreignServer}
		case err != nil:
			return nil, fmt.Errorf("probe the layout of %s: %w", l.release, err)
		case l.release == oldRelease:
			return nil, &errRelease{"mooncake_client is of release " + oldRelease + ", 0.3.11 or newer is needed"}
		}
		return l, nil
	}
	var known []string
	for _, l := range layouts {
		known = append(known, l.release)
	}
	return nil, &errRelease{"mooncake_client takes PUTs in none of the known layouts (" + strings.Join(known, ", ") +
		"): it is of another release"}
}
