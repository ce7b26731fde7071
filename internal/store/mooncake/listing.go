// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

const (
	// listTimeout bounds one question to the master.
	listTimeout = 30 * time.Second
	// maxListBytes bounds its answer: a million keys of 250 bytes.
	maxListBytes = 256 << 20
	// sizeKeys is how many sizes are asked for at once; the keys stand in the request's first line.
	sizeKeys = 16
)

// Listing is a Client that can say what the cluster holds. A mooncake_client cannot; the master tells whoever
// asks at its HTTP port (--metrics_port). A key with a line feed is listed as two that are not there. List
// must not be called by several goroutines at once.
type Listing struct {
	*Client
	admin string // host:port
	http  http.Client
	keys  []embedding.Key // as of the last List from the first key on, in order
}

var (
	_ store.Lister = (*Listing)(nil)
	_ store.Teller = (*Listing)(nil)
)

// NewListing asks the master that answers HTTP at admin, HOST:PORT.
func NewListing(c *Client, admin string) *Listing {
	return &Listing{Client: c, admin: admin, http: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// List implements store.Lister. Of an object it knows the size, or 0 where the master cannot be asked for
// one; nothing else is told, and what List returns beyond that is zero.
func (l *Listing) List(ctx context.Context, prefix string, after embedding.Key, limit int) ([]store.Entry, error) {
	if limit <= 0 {
		return nil, nil
	}
	if after == "" || l.keys == nil {
		if err := l.fetch(ctx); err != nil {
			return nil, err
		}
	}
	at, found := slices.BinarySearch(l.keys, max(after, embedding.Key(prefix)))
	if found && after != "" && l.keys[at] == after {
		at++
	}
	var out []store.Entry
	for ; at < len(l.keys) && len(out) < limit && strings.HasPrefix(string(l.keys[at]), prefix); at++ {
		out = append(out, store.Entry{Key: l.keys[at]})
	}
	for from := 0; from < len(out); from += sizeKeys {
		if err := l.sizes(ctx, out[from:min(from+sizeKeys, len(out))]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fetch takes a list of all keys.
func (l *Listing) fetch(ctx context.Context) error {
	l.keys = []embedding.Key{}
	err := l.each(ctx, func(key string) { l.keys = append(l.keys, embedding.Key(key)) })
	slices.Sort(l.keys)
	return err
}

// each calls f with every key, in no order.
func (l *Listing) each(ctx context.Context, f func(key string)) error {
	return l.ask(ctx, "/get_all_keys", func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if lines.Text() != "" {
				f(lines.Text())
			}
		}
		return lines.Err()
	})
}

// Find returns the keys of an identifier, whatever their namespaces. The master is asked for all keys, which none are
// kept of. It may be called at any time.
func (l *Listing) Find(ctx context.Context, id embedding.Identifier) (found []embedding.Key, err error) {
	err = l.each(ctx, func(key string) {
		if strings.HasSuffix(key, "@id:"+string(id)) {
			found = append(found, embedding.Key(key))
		}
	})
	return found, err
}

// sizes fills in the bytes of entries.
func (l *Listing) sizes(ctx context.Context, entries []store.Entry) error {
	var keys []string
	for _, e := range entries {
		if !strings.Contains(string(e.Key), ",") { // it stands between keys
			keys = append(keys, url.QueryEscape(string(e.Key)))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	var told struct {
		Data map[embedding.Key]struct {
			Values []struct {
				Size int64 `json:"size_"`
			} `json:"values"`
		} `json:"data"`
	}
	err := l.ask(ctx, "/batch_query_keys?keys="+strings.Join(keys, ","), func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&told)
	})
	for i := range entries {
		for _, v := range told.Data[entries[i].Key].Values {
			entries[i].Bytes = max(entries[i].Bytes, v.Size)
		}
	}
	return err
}

// Totals implements store.Teller with what the master counts.
func (l *Listing) Totals(ctx context.Context) (store.Totals, error) {
	series := map[string]float64{}
	err := l.ask(ctx, "/metrics", func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				series[name] = v
			}
		}
		return lines.Err()
	})
	return store.Totals{
		Objects: int64(series["master_key_count"]), Bytes: int64(series["master_allocated_bytes"]),
		LimitBytes: int64(series["master_total_capacity_bytes"]), MaxObject: l.Capabilities().MaxPut,
		Connections: int64(series["master_active_clients"]), Evictions: uint64(series["master_evicted_key_count"]),
	}, err
}

// ask gives the answer of the master's HTTP port to read.
func (l *Listing) ask(ctx context.Context, path string, read func(io.Reader) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("mooncake: %w: master at http://%s: %w", store.ErrUnavailable, l.admin, err)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.admin+path, nil)
	if err != nil {
		return err
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return err
	}
	err = read(io.LimitReader(resp.Body, maxListBytes))
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", resp.Status)
	}
	return cmp.Or(err, resp.Body.Close())
}
