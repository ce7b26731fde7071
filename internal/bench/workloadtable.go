// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WorkloadReport turns cells into rows. With the Store, nothing may be encoded again, whatever happens to Encoders.
func WorkloadReport(cells []Cell, scale float64, fault error) Report {
	rep := Report{Name: "reassignment workloads", Note: fmt.Sprintf("%s; modelled device; scale %g, values are those of scale 1", Machine(), scale)}
	for _, c := range cells {
		name := c.Workload + ", " + c.Policy
		again := Absolute(name, "re-encoded, images", c.Reencoded, 0)
		if c.Policy == "store" || c.Policy == "both" {
			again = zero(name, "re-encoded, images", c.Reencoded)
		}
		rep.Rows = append(rep.Rows, again,
			Absolute(name, "TTFT p50, ms", c.P50, 0), Absolute(name, "TTFT p90, ms", c.P90, 0), Absolute(name, "TTFT p99, ms", c.P99, 0),
			Absolute(name, "items of the busiest Encoder over the mean", c.Spread, 0),
			Absolute(name, "read from the Store, MiB", c.StoreRead/mib, 0), Absolute(name, "held in the Store, MiB", c.StoreHeld/mib, 0))
	}
	if fault != nil {
		rep.Rows = append(rep.Rows, Missing("the rest", "all", fault.Error()))
	}
	return rep
}

// WriteWorkloads writes cells as one table, and the summary of rep.
func WriteWorkloads(w io.Writer, cells []Cell, rep Report) error {
	fmt.Fprintln(w, rep.Note)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "workload\tpolicy\titems at Encoders\tre-encoded\tTTFT p50\tp90\tp99\tspread\tread from Store\tin Store")
	for _, c := range cells {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.0f\t%.0f ms\t%.0f ms\t%.0f ms\t%.2f\t%.0f MiB\t%.0f MiB\n", c.Workload, c.Policy, c.Items, c.Reencoded,
			c.P50, c.P90, c.P99, c.Spread, c.StoreRead/mib, c.StoreHeld/mib)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, rep.Summary())
	return err
}
