// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// storeVerifyCmd checks objects.
type storeVerifyCmd struct {
	Prefix  string `arg:"" optional:"" placeholder:"PREFIX" help:"Check keys that begin with this. Of a Store that cannot list, a whole key."`
	Rm      bool   `help:"Remove what is bad. It is encoded again when somebody asks for it."`
	storeAt `embed:""`
}

// verdictOf files an error under a word.
func verdictOf(err error) string {
	for _, r := range []struct {
		err  error
		word string
	}{
		{embedding.ErrForeign, "foreign"}, {embedding.ErrCorrupt, "corrupt"}, {embedding.ErrNotFinite, "not finite"},
		{embedding.ErrMalformed, "malformed"}, {store.ErrMiss, "gone"},
	} {
		if errors.Is(err, r.err) {
			return r.word
		}
	}
	return "unreadable"
}

// verified is the outcome of a check.
type verified struct {
	Objects int            `json:"objects"`
	Bytes   int64          `json:"bytes"`
	Good    int            `json:"good"`
	Gone    int            `json:"gone,omitempty"` // left while the check ran
	Bad     map[string]int `json:"bad"`            // by reason
	Removed int            `json:"removed"`
	Faults  []faultJSON    `json:"faults,omitempty"` // the first ones
}

// faultJSON is one bad object.
type faultJSON struct {
	Key    embedding.Key `json:"key"`
	Reason string        `json:"reason"`
	Error  string        `json:"error"`
}

// maxFaults is how many faults are told one by one.
const maxFaults = 100

// Run is called by the parser.
func (c *storeVerifyCmd) Run(a *app) error {
	if err := noExport(c.Prefix); err != nil {
		return err
	}
	return withShelf(a, &c.storeAt, func(ctx context.Context, t *shelfTool) error {
		m := newMeter(a.Stderr, "verify")
		v, err := c.verify(ctx, t, m)
		m.end()
		if err != nil && v.Objects == 0 {
			return err // what was not looked at is not known to be empty
		}
		if v.Objects == 0 && c.Prefix != "" {
			if err = noKey(c.Prefix); !c.JSON {
				return err
			}
		}
		if perr := v.print(a.Stdout, c.JSON); err == nil {
			err = perr
		}
		if bad := v.sum(); err == nil && bad > v.Removed {
			err = fmt.Errorf("%d of %d objects are bad; 'afterimage store verify --rm' removes them", bad, v.Objects)
		}
		return err
	})
}

func (v *verified) sum() int {
	n := 0
	for _, k := range v.Bad {
		n += k
	}
	return n
}

// verify reads every object. An error of an object is counted; one of the Store ends it.
func (c *storeVerifyCmd) verify(ctx context.Context, t *shelfTool, m *meter) (verified, error) {
	v := verified{Bad: map[string]int{}}
	total, err := c.total(ctx, t)
	if err != nil {
		return v, err
	}
	check := func(e store.Entry) error {
		v.Objects, v.Bytes = v.Objects+1, v.Bytes+e.Bytes
		err := t.read(ctx, e, func(obj []byte) error {
			if e.Bytes == 0 {
				v.Bytes += int64(len(obj))
			}
			_, _, err := checkObject(e.Key, obj)
			return err
		})
		m.at(int64(v.Objects), total, sizeText(v.Bytes))
		switch reason := verdictOf(err); {
		case err == nil:
			v.Good++
		case errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil:
			return err
		case reason == "gone":
			v.Gone++
		default:
			return c.bad(ctx, t, &v, e.Key, reason, err)
		}
		return nil
	}
	if _, err := t.lister(); err != nil && c.Prefix != "" {
		e, err := t.whole(ctx, embedding.Key(c.Prefix))
		if err != nil {
			return v, err
		}
		return v, check(e)
	}
	return v, t.each(ctx, c.Prefix, check)
}

// total is how many objects there are to look at, 0 where that shows only in the end.
func (c *storeVerifyCmd) total(ctx context.Context, t *shelfTool) (int64, error) {
	sum, err := t.Totals(ctx)
	if err != nil && !errors.Is(err, errNoTotals) {
		return 0, err
	}
	if c.Prefix != "" {
		return 0, nil
	}
	return sum.Objects, nil
}

// bad counts an object, and removes it if that is wanted. What could not be read may be good.
func (c *storeVerifyCmd) bad(ctx context.Context, t *shelfTool, v *verified, key embedding.Key, reason string, why error) error {
	v.Bad[reason]++
	if len(v.Faults) < maxFaults {
		v.Faults = append(v.Faults, faultJSON{key, reason, why.Error()})
	}
	if !c.Rm || reason == "unreadable" {
		return nil
	}
	v.Removed++
	return t.Remove(ctx, []embedding.Key{key})
}

func (v *verified) print(w io.Writer, asJSON bool) error {
	switch {
	case asJSON:
		return printJSON(w, v)
	case v.Objects == 0:
		_, err := fmt.Fprintln(w, "verify: the Store has no objects: there was nothing to check")
		return err
	}
	for _, f := range v.Faults {
		fmt.Fprintf(w, "bad: %s: %s\n", nameText(f.Key), f.Error)
	}
	_, err := fmt.Fprintf(w, "verify: %s, %s: %d good, %d bad%s, %d gone meanwhile, %d removed\n",
		counted(v.Objects, "object"), sizeText(v.Bytes), v.Good, v.sum(), reasonText(v.Bad), v.Gone, v.Removed)
	return err
}

// reasonText writes counts by reason: " (2 corrupt, 1 foreign)".
func reasonText(by map[string]int) string {
	if len(by) == 0 {
		return ""
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%d %s", by[reason], reason))
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
