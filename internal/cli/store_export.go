// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/storefile"
)

// storeExportCmd writes objects to a file.
type storeExportCmd struct {
	To      string `arg:"" placeholder:"FILE" help:"File to write; - is standard output."`
	Prefix  string `placeholder:"PREFIX" xor:"which" help:"Export keys that begin with this."`
	Keys    string `placeholder:"FILE" xor:"which" help:"Export the keys in this file, one per line; - is standard input. Any Store takes it, also one that cannot list."`
	Resume  bool   `help:"Go on with a file that an export did not end, or add what is new to one that it did."`
	Force   bool   `help:"Replace a file that is there."`
	storeAt `embed:""`
}

// exported is the outcome of an export.
type exported struct {
	Objects int            `json:"objects"`
	Bytes   int64          `json:"bytes"` // of the file
	Kept    int            `json:"kept"`  // were in the file before
	Gone    int            `json:"gone"`  // named, or listed before, and not there
	Bad     map[string]int `json:"bad"`   // left out, by reason
}

// Run is called by the parser.
func (c *storeExportCmd) Run(a *app) error {
	if c.Resume && (c.Force || c.To == "-") {
		return usageError{errors.New("--resume: goes neither with --force nor with standard output")}
	}
	names, err := c.openKeys()
	if err != nil {
		return err
	}
	defer names.Close()
	return withShelf(a, &c.storeAt, func(ctx context.Context, t *shelfTool) error {
		m := newMeter(a.Stderr, "export")
		x := exported{Bad: map[string]int{}}
		err := c.export(ctx, a, t, names, m, &x)
		m.end()
		out := a.Stdout
		if c.To == "-" {
			out = a.Stderr
		}
		if x.Bytes == 0 {
			return err // nothing was begun
		}
		if perr := x.print(out, c.JSON); err == nil {
			err = perr
		}
		if err != nil && c.To != "-" && !errors.Is(err, errNoKey) {
			err = fmt.Errorf("%w; the file holds what came before: 'afterimage store export --resume' goes on", err)
		}
		if err == nil && len(x.Bad) > 0 {
			err = fmt.Errorf("objects that are bad were left out%s; 'afterimage store verify' shows them", reasonText(x.Bad))
		}
		return err
	})
}

// openKeys opens the list of keys, before a file is made or replaced. Without one it is empty.
func (c *storeExportCmd) openKeys() (io.ReadCloser, error) {
	switch c.Keys {
	case "":
		return io.NopCloser(strings.NewReader("")), nil
	case "-":
		return io.NopCloser(os.Stdin), nil
	}
	f, err := os.Open(c.Keys)
	if err != nil {
		return nil, fileFault("--keys "+c.Keys, err)
	}
	if st, err := f.Stat(); err == nil && st.IsDir() {
		f.Close()
		return nil, usageError{fmt.Errorf("--keys %s: is a directory; give a file with one key per line", c.Keys)}
	}
	return f, nil
}

// export opens the file, fills it and ends it.
func (c *storeExportCmd) export(ctx context.Context, a *app, t *shelfTool, names io.Reader, m *meter, x *exported) (err error) {
	if c.To == "-" {
		w, err := storefile.NewWriter(a.Stdout, time.Now())
		if err != nil {
			return err
		}
		return c.fill(ctx, t, w, names, m, x)
	}
	flags := os.O_RDWR | os.O_CREATE | os.O_EXCL
	switch {
	case c.Resume:
		flags = os.O_RDWR | os.O_CREATE
	case c.Force:
		flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(c.To, flags, 0o600) // embeddings tell what was in the pictures
	if errors.Is(err, fs.ErrExist) {
		return usageError{fmt.Errorf("%s: is there; --resume adds to it, --force replaces it", c.To)}
	}
	if err != nil {
		return fileFault(c.To, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := c.begin(f, m, x)
	if err != nil {
		return err
	}
	if err := c.fill(ctx, t, w, names, m, x); err != nil {
		return err
	}
	return f.Sync()
}

// begin starts the file, or finds where to go on.
func (c *storeExportCmd) begin(f *os.File, m *meter, x *exported) (*storefile.Writer, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 {
		return storefile.NewWriter(f, time.Now())
	}
	w, err := storefile.Resume(f, st.Size(), func(done int64) { m.at(done, st.Size(), "checking the file") })
	if err != nil {
		return nil, usageError{fmt.Errorf("--resume %s: %w", c.To, err)}
	}
	x.Kept = w.Len()
	return w, nil
}

// fill writes every object that the file lacks. Whatever ends it, what was added is in the file.
func (c *storeExportCmd) fill(ctx context.Context, t *shelfTool, w *storefile.Writer, names io.Reader, m *meter, x *exported) error {
	sum, err := t.Totals(ctx)
	if err != nil && !errors.Is(err, errNoTotals) {
		return err
	}
	total := sum.Objects
	if c.Prefix != "" || c.Keys != "" {
		total = 0
	}
	each := func(f func(store.Entry) error) error { return t.each(ctx, c.Prefix, f) }
	if c.Keys != "" {
		each = func(f func(store.Entry) error) error { return eachNamed(ctx, t, names, x, f) }
	}
	done := int64(0)
	err = each(func(e store.Entry) error {
		done++
		m.at(done, total, sizeText(w.Bytes()))
		if w.Has(e.Key) {
			return nil
		}
		return c.add(ctx, t, w, e, x)
	})
	if err == nil {
		err = w.Close()
	} else {
		err = errors.Join(err, w.Flush())
	}
	if err == nil && done == 0 && c.Prefix != "" {
		err = noKey(c.Prefix)
	}
	x.Objects, x.Bytes = w.Len(), w.Bytes()
	return err
}

// eachNamed calls f with every entry of the list of keys in names.
func eachNamed(ctx context.Context, t *shelfTool, names io.Reader, x *exported, f func(store.Entry) error) error {
	lines := bufio.NewScanner(names)
	for lines.Scan() {
		key := embedding.Key(strings.TrimSuffix(lines.Text(), "\r"))
		if key == "" {
			continue
		}
		states, err := t.Exists(ctx, []embedding.Key{key})
		switch {
		case err != nil:
			return err
		case !states[0].Present:
			x.Gone++
			continue
		}
		if err := errors.Join(context.Cause(ctx), f(store.Entry{Key: key, Bytes: states[0].Bytes})); err != nil {
			return err
		}
	}
	return lines.Err()
}

// add writes one object. What does not hold what it says is no use to anybody, and is left out.
func (c *storeExportCmd) add(ctx context.Context, t *shelfTool, w *storefile.Writer, e store.Entry, x *exported) error {
	var failed error // of the file
	err := t.read(ctx, e, func(obj []byte) error {
		if _, _, _, err := embedding.Inspect(obj, e.Key); err != nil {
			return err
		}
		failed = w.Add(storefile.Record{Key: e.Key, Tenant: e.Tenant, TTL: e.TTL, SoftPin: e.SoftPin}, obj)
		return failed
	})
	switch reason := verdictOf(err); {
	case err == nil:
	case failed != nil || errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil:
		return err
	case reason == "gone":
		x.Gone++
	default:
		x.Bad[reason]++
	}
	return nil
}

func (x *exported) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, x)
	}
	bad := 0
	for _, n := range x.Bad {
		bad += n
	}
	_, err := fmt.Fprintf(w, "export: %s in the file, %s; %d of them were there before; %d not there, %d bad%s\n",
		counted(x.Objects, "object"), sizeText(x.Bytes), x.Kept, x.Gone, bad, reasonText(x.Bad))
	return err
}
