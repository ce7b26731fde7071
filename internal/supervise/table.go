// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// reasonBytes bounds the last column: a table is read at a glance.
const reasonBytes = 160

// WriteTable writes one line per process: role, address, pid, model, and ready or why not.
func WriteTable(w io.Writer, all []Status) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ROLE\tADDRESS\tPID\tMODEL\tSTATE")
	for _, st := range all {
		pid := ""
		if st.PID != 0 {
			pid = strconv.Itoa(st.PID)
		}
		state := string(st.State)
		if st.Reason != "" {
			reason := strings.Join(strings.Fields(st.Reason), " ")
			if len(reason) > reasonBytes {
				reason = strings.ToValidUTF8(reason[:reasonBytes], "") + "…"
			}
			state += ": " + reason
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n",
			st.Name, cmp.Or(st.Address, "-"), cmp.Or(pid, "-"), cmp.Or(st.Model, "-"), state)
	}
	return tw.Flush()
}
