// SPDX-License-Identifier: Apache-2.0

//go:build !race

package arena

func newRegion(cfg Config, n int64) (*region, error) { return newMapped(cfg.Name, n) }
