// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"afterimage/internal/embedding"
)

// Known is what is known of a file: its content's name, and what its header says. Whoever fetches it fills it in.
type Known struct {
	Digest embedding.Digest
	Info   Info
}

// Visit is what a Revisits returns.
type Visit struct {
	// Body is the file; nil if it is known without it. It must not be changed.
	Body []byte
	Size int // of the file
	Known
	How How
}

// How says how a Visit came by its file.
type How string

// The ways.
const (
	Fetched     How = "fetched"     // the file was transferred
	Revalidated How = "revalidated" // the server said that it is still the one that it had sent before
	Refetched   How = "refetched"   // it was revalidated before and transferred after all, since its bytes were needed
)

// Revisits fetches what was fetched before by asking whether it has changed. It never takes a file for the same
// without the server's word in the same request, and never by a weak word (see validatorOf). It remembers, in one
// scope per party that shares nothing with others, what each URL gave last: what to ask with, what the file was, and of
// the files used latest the bytes. A URL whose tag has stood for two files is asked without for as long as it is
// remembered. Methods may be called from any goroutine; no result is shared with the caller but the bytes.
type Revisits struct {
	fetch *Fetcher
	memory
	metrics revisitMetrics
}

// NewRevisits returns a Revisits of at most so many URLs, some 400 bytes each, and so many bytes of their files. With 0
// entries every fetch transfers the file; with 0 bytes files are known by their names alone.
func NewRevisits(f *Fetcher, entries int, bytes int64) *Revisits {
	return &Revisits{fetch: f, memory: newMemory(entries, bytes), metrics: newRevisitMetrics()}
}

// Want says what a Visit is for.
type Want struct {
	URL      string
	Scope    []byte // whoever has the same knows the same; none is one of its own
	MaxBytes int64  // of the file
	// Bytes says that the file is needed, not only what is known of it.
	Bytes bool
	// Again says that a Visit without the bytes was not enough: the server is asked for the file, whatever is known.
	Again bool
	// Judge says what a file is; an error of it is returned. Nil knows nothing.
	Judge func(body []byte) (Known, error)
}

// Get returns what is behind a URL, in this moment. Errors are those of Fetch and of Judge.
func (r *Revisits) Get(ctx context.Context, w Want) (Visit, error) {
	asked := map[string]*visited{}
	a, err := r.fetch.ask(ctx, w.URL, w.MaxBytes, func(url string) validator {
		key := keyOf(w.Scope, url)
		v := r.find(key)
		if w.Again {
			r.doubt(key)
		}
		if v == nil || v.distrusted || v.doubted || w.Again || w.Bytes && v.body == nil || int64(v.size) > w.MaxBytes {
			return validator{}
		}
		asked[url] = v
		return v.validator
	})
	if err != nil {
		return Visit{}, err
	}
	key := keyOf(w.Scope, a.url)
	if a.unchanged {
		v := asked[a.url]
		if a.forget {
			r.drop(key)
		}
		r.metrics.count(Revalidated, v.size)
		return Visit{Body: v.body, Size: v.size, Known: v.known, How: Revalidated}, nil
	}
	out := Visit{Body: a.body, Size: len(a.body), How: Fetched}
	if w.Again {
		out.How = Refetched
	}
	r.metrics.count(out.How, out.Size)
	if w.Judge != nil {
		if out.Known, err = w.Judge(a.body); err != nil {
			r.drop(key)
			return Visit{}, err
		}
	}
	r.keep(key, visited{validator: a.next, known: out.Known, size: out.Size, body: a.body}, w.Judge != nil)
	return out, nil
}

// urlKey names a URL within a scope.
type urlKey [sha256.Size]byte

func keyOf(scope []byte, url string) (k urlKey) {
	h := sha256.New()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(scope))))
	_, _ = h.Write(scope)
	_, _ = h.Write([]byte(url))
	h.Sum(k[:0])
	return k
}
