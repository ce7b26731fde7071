// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bufio"
	"fmt"
	"io"
)

// Write writes t as native CSV, which Read reads back.
func (t *Trace) Write(w io.Writer) error {
	b := bufio.NewWriterSize(w, 1<<20)
	fmt.Fprintln(b, "time,request,image,bytes,text_tokens,output_tokens")
	for i, r := range t.Requests {
		uses := t.Uses(i)
		for _, u := range uses {
			fmt.Fprintf(b, "%.6f,%d,%d,%d,%d,%d\n", r.At.Seconds(), i, u.Image, u.Bytes, r.Text, r.Output)
		}
		if len(uses) == 0 {
			fmt.Fprintf(b, "%.6f,%d,,,%d,%d\n", r.At.Seconds(), i, r.Text, r.Output)
		}
	}
	return b.Flush()
}
