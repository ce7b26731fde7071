// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"afterimage/internal/admit"
)

// enter waits for the request's place among those in work, and notes its salt. It is here that text parts from
// images, before any is fetched.
func (req *request) enter(ctx context.Context) (err error) {
	kind := admit.Text
	if len(req.scan.Media) > 0 {
		kind = admit.Images
	}
	req.salt = req.pass.Salt(req.scan.CacheSalt)
	req.leave, err = req.pass.Enter(ctx, kind, req.in)
	return err
}

// fileBytes sums the files of images up.
func fileBytes(images []*image) (n int64) {
	for _, m := range images {
		n += int64(m.size)
	}
	return n
}
