// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/storefile"
)

// storeImportCmd reads objects from a file.
type storeImportCmd struct {
	From    string `arg:"" placeholder:"FILE" help:"File to read; - is standard input."`
	storeAt `embed:""`
}

// Help is shown below the command's own line.
func (*storeImportCmd) Help() string {
	return "Every object is checked before it is stored, and one that the Store has is skipped, so an import that was " +
		"cut off is repeated to be completed. Of a file that is damaged or cut off, what is good is taken."
}

// imported is the outcome of an import.
type imported struct {
	Objects int            `json:"objects"` // met in the file
	Stored  int            `json:"stored"`
	Bytes   int64          `json:"bytes"` // of those stored
	Present int            `json:"present"`
	Refused map[string]int `json:"refused"` // by reason
	Plain   int            `json:"plain"`   // stored without their tenant, time to live or soft pin, which the Store does not keep
	Evicted uint64         `json:"evicted"` // by the Store meanwhile
	File    string         `json:"file"`    // whole, or what is wrong with it
}

// Run is called by the parser.
func (c *storeImportCmd) Run(a *app) error {
	f, size, err := c.open()
	if err != nil {
		return err
	}
	defer f.Close()
	return withShelf(a, &c.storeAt, func(ctx context.Context, t *shelfTool) error {
		m := newMeter(a.Stderr, "import")
		x := imported{Refused: map[string]int{}, File: "whole"}
		err := c.run(ctx, t, f, size, m, &x)
		m.end()
		if err != nil && x.Objects == 0 && len(x.Refused) == 0 {
			return err
		}
		if err != nil {
			x.File = err.Error()
		}
		if perr := x.print(a.Stdout, c.JSON); err == nil {
			err = perr
		}
		if err == nil && len(x.Refused) > 0 {
			err = fmt.Errorf("not all objects were taken%s", reasonText(x.Refused))
		}
		return err
	})
}

// open opens what is to be taken in, of which the size is 0 if it is not known.
func (c *storeImportCmd) open() (f *os.File, size int64, err error) {
	if c.From == "-" {
		return os.Stdin, 0, nil
	}
	if f, err = os.Open(c.From); err != nil {
		return nil, 0, fileFault(c.From, err)
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		err = fileFault(c.From, err)
	case st.IsDir():
		err = usageError{fmt.Errorf("%s: is a directory; give a file that 'afterimage store export' wrote", c.From)}
	case st.Mode().IsRegular():
		size = st.Size()
	}
	if err != nil {
		f.Close()
	}
	return f, size, err
}

// run takes f in.
func (c *storeImportCmd) run(ctx context.Context, t *shelfTool, f *os.File, size int64, m *meter, x *imported) error {
	var r *storefile.Reader
	var err error
	if size > 0 {
		r, err = storefile.Open(f, size)
	} else {
		r, err = storefile.NewReader(f)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.From, err)
	}
	before, err := t.Totals(ctx)
	if err != nil && !errors.Is(err, errNoTotals) {
		return err
	}
	err = c.take(ctx, t, r, before, func() { m.at(r.Offset(), size, counted(x.Objects, "object")) }, x)
	if after, terr := t.Totals(ctx); terr == nil {
		x.Evicted = after.Evictions - before.Evictions
	}
	return err
}

// take stores what the file holds, one object at a time.
func (c *storeImportCmd) take(ctx context.Context, t *shelfTool, r *storefile.Reader, is store.Totals, progress func(), x *imported) error {
	for ctx.Err() == nil {
		progress()
		rec, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, storefile.ErrRecord) && !errors.Is(err, storefile.ErrBroken):
			x.Refused["damaged"]++
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", c.From, err)
		}
		x.Objects++
		reason, err := takeOne(ctx, t, r, rec, is.MaxObject)
		switch {
		case err != nil:
			return err
		case reason == "stored":
			x.Stored, x.Bytes = x.Stored+1, x.Bytes+rec.Bytes
			if can := t.Capabilities(); rec.Tenant != "" && !can.Tenants || rec.TTL > 0 && !can.TTL || rec.SoftPin && !can.SoftPin {
				x.Plain++
			}
		case reason == "present":
			x.Present++
		default:
			x.Refused[reason]++
		}
	}
	return fmt.Errorf("%w; repeat the import to go on", context.Cause(ctx))
}

// takeOne checks and stores one object of at most most bytes, 0 for any, and says what became of it. An error ends the import.
func takeOne(ctx context.Context, t *shelfTool, r *storefile.Reader, rec storefile.Record, most int64) (string, error) {
	states, err := t.Exists(ctx, []embedding.Key{rec.Key})
	switch {
	case err != nil:
		return "", err
	case states[0].Present:
		return "present", nil
	case most > 0 && rec.Bytes > most:
		return "too large", nil
	}
	if err := t.room(ctx, rec.Bytes); err != nil {
		return "", err
	}
	buf, err := t.arena.Reserve(int(rec.Bytes))
	if err != nil {
		return "", err
	}
	defer buf.Release()
	err = r.Object(buf.Bytes())
	switch {
	case errors.Is(err, storefile.ErrRecord):
		return "damaged", nil
	case err != nil:
		return "", err
	}
	if _, _, err := checkObject(rec.Key, buf.Bytes()); err != nil {
		return verdictOf(err), nil
	}
	return put(ctx, t, rec, buf)
}

// put stores a checked object.
func put(ctx context.Context, t *shelfTool, rec storefile.Record, buf *arena.Buf) (string, error) {
	buf.Commit()
	err := t.Put(ctx, rec.Key, buf, store.PutOptions{Tenant: rec.Tenant, TTL: rec.TTL, SoftPin: rec.SoftPin})
	switch {
	case errors.Is(err, store.ErrRejected):
		return "no room", nil
	case err != nil:
		return "", err
	}
	return "stored", nil
}

func (x *imported) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, x)
	}
	refused := 0
	for _, n := range x.Refused {
		refused += n
	}
	_, err := fmt.Fprintf(w, "import: %d stored, %s; %d there already, %d refused%s\n",
		x.Stored, sizeText(x.Bytes), x.Present, refused, reasonText(x.Refused))
	if err == nil && x.Plain > 0 {
		_, err = fmt.Fprintf(w, "import: %s without a tenant, time to live or soft pin, which this Store does not keep\n", counted(x.Plain, "object"))
	}
	if err == nil && x.Evicted > 0 {
		_, err = fmt.Fprintf(w, "import: the Store evicted %s meanwhile: it is smaller than the file (store.bytes)\n", counted(x.Evicted, "object"))
	}
	return err
}
