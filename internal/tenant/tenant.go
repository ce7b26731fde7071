// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"encoding/binary"

	"github.com/zeebo/blake3"
)

// Tenant is one party that uses the gateway. It never changes.
type Tenant struct {
	Name string // 1 to 64 bytes
	// Weight is how many requests of it are let in at a turn when tenants wait; at least 1.
	Weight int
	Limits Limits
	// Chooses says that its requests may name the workers that they go to.
	Chooses bool
	salt    []byte
}

// Limits bound what one tenant may ask of one gateway. Zero values are no limit.
type Limits struct {
	Rate       float64 // requests per second, in the long run
	Burst      int     // requests at once; with a Rate at least 1
	Concurrent int     // requests in work or waiting
	ImageBytes int64   // bytes of image files per second, in the long run
}

// Default is the tenant of keys that are given in the clear.
const Default = "default"

// Salt goes into the names of a tenant's embeddings and into what its prompts share, so that other tenants
// meet neither. It is empty for tenants that share, and the same on all gateways with one secret.
func (t *Tenant) Salt() []byte { return t.salt }

// saltContext is what the salt of a tenant is derived under. Another text would rename all embeddings.
const saltContext = "afterimage 2026 salt of a tenant"

// saltOf returns the salt of a tenant. Without a secret others who know the name can work it out; they still
// cannot ask for anything under it.
func saltOf(secret, name string) []byte { return derive(saltContext, secret, name) }

// Narrow returns the salt for the requests of one tenant that name a salt of their own: it keeps them apart
// from the tenant's other requests, and from those of other tenants that name the same.
func Narrow(salt []byte, own string) []byte {
	if own == "" {
		return salt
	}
	return derive("afterimage 2026 salt of a request", string(salt), own)
}

// derive hashes parts, each behind its length, under a context.
func derive(context string, parts ...string) []byte {
	h := blake3.NewDeriveKey(context)
	for _, p := range parts {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		_, _ = h.Write(n[:])
		_, _ = h.WriteString(p)
	}
	return h.Sum(nil)
}
