// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// storeLsCmd lists objects.
type storeLsCmd struct {
	Prefix  string `arg:"" optional:"" placeholder:"PREFIX" help:"List keys that begin with this."`
	Limit   int    `placeholder:"N" default:"0" help:"Stop after so many objects; 0 lists all (default ${default})."`
	storeAt `embed:""`
}

// entryJSON is a store.Entry as --json prints it. Times are seconds.
type entryJSON struct {
	Key     embedding.Key `json:"key"`
	Bytes   int64         `json:"bytes"`
	Age     *float64      `json:"age_s,omitempty"` // absent, as last_use_s, where the Store does not tell
	LastUse *float64      `json:"last_use_s,omitempty"`
	TTL     float64       `json:"ttl_s,omitempty"` // left to live; none: until evicted
	Pins    int           `json:"pins"`
	SoftPin bool          `json:"soft_pin,omitempty"`
	Tenant  string        `json:"tenant,omitempty"`
}

func entryOf(e store.Entry) entryJSON {
	j := entryJSON{Key: e.Key, Bytes: e.Bytes, TTL: e.TTL.Seconds(), Pins: e.Pins, SoftPin: e.SoftPin, Tenant: e.Tenant}
	if e.Age > 0 || e.LastUse > 0 {
		age, use := e.Age.Seconds(), e.LastUse.Seconds()
		j.Age, j.LastUse = &age, &use
	}
	return j
}

// errEnough ends a listing at its limit.
var errEnough = errors.New("enough")

// Run is called by the parser.
func (c *storeLsCmd) Run(a *app) error {
	if c.Limit < 0 {
		return usageError{fmt.Errorf("--limit %d: give at least 0", c.Limit)}
	}
	if err := noExport(c.Prefix); err != nil {
		return err
	}
	return withShelf(a, &c.storeAt, func(ctx context.Context, t *shelfTool) error { return c.list(ctx, t, a.Stdout) })
}

// withShelf runs f on the Store until a signal comes.
func withShelf(a *app, at *storeAt, f func(context.Context, *shelfTool) error) error {
	ctx, stop := interruptible(a.ctx, func() {})
	defer stop()
	t, err := at.open(ctx, a)
	if err != nil {
		return err
	}
	err = f(ctx, t)
	return errors.Join(err, t.close())
}

// list prints as it goes: a page of the table is as wide as that page needs.
func (c *storeLsCmd) list(ctx context.Context, t *shelfTool, w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if !c.JSON {
		fmt.Fprintln(tw, "SIZE\tAGE\tUSED\tTTL\tPINS\tTENANT\tKEY")
	}
	n, sum := 0, int64(0)
	err := t.each(ctx, c.Prefix, func(e store.Entry) error {
		if c.Limit > 0 && n == c.Limit {
			return errEnough
		}
		n, sum = n+1, sum+e.Bytes
		if c.JSON {
			return printJSON(w, entryOf(e))
		}
		fmt.Fprintln(tw, row(e))
		if n%listPage == 0 {
			return tw.Flush()
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errEnough):
		if n > 0 {
			err = errors.Join(tw.Flush(), err)
		}
		return err
	case n == 0 && c.Prefix != "":
		return noKey(c.Prefix)
	case c.JSON:
		return nil
	}
	more := ""
	if err != nil {
		more = "; there are more (--limit)"
	}
	fmt.Fprintf(tw, "%s, %s%s\n", counted(n, "object"), sizeText(sum), more)
	return tw.Flush()
}

// row is a line of the table.
func row(e store.Entry) string {
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	ttl, age, use, size := "", "", "", ""
	if e.TTL > 0 {
		ttl = ageText(e.TTL)
	}
	if e.Age > 0 || e.LastUse > 0 {
		age, use = ageText(e.Age), ageText(e.LastUse)
	}
	if e.Bytes > 0 {
		size = sizeText(e.Bytes)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%s", dash(size), dash(age), dash(use), dash(ttl), e.Pins, dash(nameText(e.Tenant)), nameText(e.Key))
}

// ageText writes a time for people.
func ageText(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// storeStatCmd sums up the Store, or one object.
type storeStatCmd struct {
	Key     string `arg:"" optional:"" placeholder:"KEY" help:"Describe this object: its key, its identifier, or the beginning of that. Nothing sums the Store up."`
	storeAt `embed:""`
}

// Run is called by the parser.
func (c *storeStatCmd) Run(a *app) error {
	if err := noExport(c.Key); err != nil {
		return err
	}
	return withShelf(a, &c.storeAt, func(ctx context.Context, t *shelfTool) error {
		if c.Key == "" {
			return c.totals(ctx, t, a.Stdout)
		}
		e, err := t.one(ctx, c.Key)
		if err != nil {
			return err
		}
		if e.Age == 0 && e.LastUse == 0 {
			return c.little(e, a.Stdout)
		}
		if c.JSON {
			return printJSON(a.Stdout, entryOf(e))
		}
		tw := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(tw, "key\t%s\nsize\t%d bytes\nage\t%s\nlast used\t%s ago\nreaders\t%d\nsoft pin\t%v\n",
			nameText(e.Key), e.Bytes, ageText(e.Age), ageText(e.LastUse), e.Pins, e.SoftPin)
		if e.TTL > 0 {
			fmt.Fprintf(tw, "time to live\t%s\n", ageText(e.TTL))
		}
		if e.Tenant != "" {
			fmt.Fprintf(tw, "tenant\t%s\n", nameText(e.Tenant))
		}
		return tw.Flush()
	})
}

// little prints what a Store tells of an object that cannot list: that it is there, perhaps its size.
func (c *storeStatCmd) little(e store.Entry, w io.Writer) error {
	size := "not told"
	if e.Bytes > 0 {
		size = fmt.Sprintf("%d bytes", e.Bytes)
	}
	if c.JSON {
		return printJSON(w, struct {
			Key   embedding.Key `json:"key"`
			Bytes int64         `json:"bytes,omitempty"`
		}{e.Key, e.Bytes})
	}
	_, err := fmt.Fprintf(w, "key   %s\nsize  %s\n", nameText(e.Key), size)
	return err
}

// totals prints what the Store is and has done.
func (c *storeStatCmd) totals(ctx context.Context, t *shelfTool, w io.Writer) error {
	sum, err := t.Totals(ctx)
	if err != nil {
		return err
	}
	if kind := t.Capabilities().Name; kind != config.StoreRAM {
		return c.fewTotals(kind, t.path, sum, w)
	}
	if c.JSON {
		return printJSON(w, struct {
			Path string `json:"path"`
			Kind string `json:"kind"`
			store.Totals
		}{t.path, t.Capabilities().Name, sum})
	}
	percent := func(part, whole float64) float64 { return 100 * part / max(whole, 1) }
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "store\t%s at %s\n", t.Capabilities().Name, t.path)
	fmt.Fprintf(tw, "objects\t%d\n", sum.Objects)
	fmt.Fprintf(tw, "size\t%s of %s (%.0f %%)\n", sizeText(sum.Bytes), sizeText(sum.LimitBytes), percent(float64(sum.Bytes), float64(sum.LimitBytes)))
	fmt.Fprintf(tw, "largest object\t%s\n", sizeText(sum.MaxObject))
	fmt.Fprintf(tw, "on loan\t%d, %s\n", sum.Loans, sizeText(sum.LoanBytes))
	fmt.Fprintf(tw, "connections\t%d\n", sum.Connections)
	fmt.Fprintf(tw, "gets\t%d, %d found (%.0f %%)\n", sum.Gets, sum.Hits, percent(float64(sum.Hits), float64(sum.Gets)))
	fmt.Fprintf(tw, "puts\t%d, %d refused\n", sum.Puts, sum.Rejected)
	fmt.Fprintf(tw, "gone\t%d evicted, %d expired, %d removed\n", sum.Evictions, sum.Expired, sum.Removed)
	return tw.Flush()
}

// fewTotals prints what a Store counts that keeps no other figures.
func (c *storeStatCmd) fewTotals(kind, path string, sum store.Totals, w io.Writer) error {
	if c.JSON {
		return printJSON(w, struct {
			Path       string `json:"path"`
			Kind       string `json:"kind"`
			Objects    int64  `json:"objects"`
			Bytes      int64  `json:"bytes"`
			LimitBytes int64  `json:"limit_bytes"`
			Evictions  uint64 `json:"evictions"`
		}{path, kind, sum.Objects, sum.Bytes, sum.LimitBytes, sum.Evictions})
	}
	_, err := fmt.Fprintf(w, "store    %s\nobjects  %d\nsize     %s of %s\ngone     %d evicted\n",
		path, sum.Objects, sizeText(sum.Bytes), sizeText(sum.LimitBytes), sum.Evictions)
	return err
}
