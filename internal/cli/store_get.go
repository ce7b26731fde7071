// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"afterimage/internal/embedding"
)

// storeGetCmd shows one object, or writes it to a file.
type storeGetCmd struct {
	Key     string `arg:"" placeholder:"KEY" help:"Key, identifier, or the beginning of that."`
	Out     string `short:"o" placeholder:"FILE" help:"Write the object to this file, as it is in the Store. It must not exist; - is standard output."`
	storeAt `embed:""`
}

// headJSON is what --json prints of an object.
type headJSON struct {
	Key      embedding.Key      `json:"key"`
	Protocol embedding.Protocol `json:"protocol"`
	Bytes    int                `json:"bytes"`
	Rows     int                `json:"rows"`
	Cols     int                `json:"cols"`
	DType    string             `json:"dtype"`
	Layout   *embedding.Layout  `json:"layout,omitempty"` // v3 objects carry none
	Sound    bool               `json:"sound"`
	Fault    string             `json:"fault,omitempty"`
}

// Run is called by the parser.
func (c *storeGetCmd) Run(a *app) error {
	if err := noExport(c.Key); err != nil {
		return err
	}
	return withShelf(a, &c.storeAt, func(ctx context.Context, t *shelfTool) error {
		e, err := t.one(ctx, c.Key)
		if err != nil {
			return err
		}
		return t.read(ctx, e, func(obj []byte) error {
			out := a.Stdout
			switch c.Out {
			case "":
			case "-":
				if _, err := out.Write(obj); err != nil {
					return err
				}
				out = a.Stderr
			default:
				if err := writeNew(c.Out, obj); err != nil {
					return err
				}
			}
			return c.show(out, e.Key, obj)
		})
	})
}

// writeNew writes a file that must not exist yet.
func writeNew(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // embeddings tell what was in the picture
	if err != nil {
		return fileFault("--out "+name, err)
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// show prints what the object is. One that is not sound is an error, after all that could be told of it.
func (c *storeGetCmd) show(w io.Writer, key embedding.Key, obj []byte) error {
	h := headJSON{Key: key, Bytes: len(obj), Sound: true}
	p, m, err := checkObject(key, obj)
	h.Protocol = p
	if err != nil {
		h.Sound, h.Fault = false, err.Error()
	} else {
		h.Rows, h.Cols, h.DType = m.Rows, m.Cols, strings.TrimPrefix(m.DType.String(), "torch.")
		if len(m.Layout.Parts) > 0 {
			h.Layout = &m.Layout
		}
	}
	if c.JSON {
		return errors.Join(printJSON(w, h), err)
	}
	if err != nil {
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "key\t%s\nformat\t%s, %d bytes\nrows\t%d of %d x %s\n", nameText(key), h.Protocol, h.Bytes, h.Rows, h.Cols, h.DType)
	if h.Layout != nil {
		fmt.Fprintf(tw, "layout\t%s\n", layoutText(*h.Layout))
	}
	fmt.Fprintf(tw, "sound\tyes: %s\n", map[embedding.Protocol]string{
		embedding.A1: "sums of head, key and payload agree, all values are finite",
		embedding.V3: "lengths agree, all values are finite (v3 carries no sums)"}[p])
	return tw.Flush()
}

// layoutText writes a layout for people: "2 tokens, 64 rows (8 positions), 1 token".
func layoutText(l embedding.Layout) string {
	var parts []string
	for _, p := range l.Parts {
		switch {
		case p.Rows == 0:
			parts = append(parts, counted(len(p.Tokens), "token"))
		case p.Positions != p.Rows:
			parts = append(parts, counted(p.Rows, "row")+" ("+counted(p.Positions, "position")+")")
		default:
			parts = append(parts, counted(p.Rows, "row"))
		}
	}
	return strings.Join(parts, ", ")
}

// checkObject opens an object by its own word and looks at every value.
func checkObject(key embedding.Key, obj []byte) (embedding.Protocol, embedding.Meta, error) {
	p, m, payload, err := embedding.Inspect(obj, key)
	if err == nil {
		err = embedding.CheckFinite(payload, m.DType)
	}
	return p, m, err
}
