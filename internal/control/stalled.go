// SPDX-License-Identifier: Apache-2.0

package control

import "strings"

// Stalled begins the reason of a worker that is not ready because a call into its engine does not return.
const Stalled = "a call into the engine has not returned"

// Stalled says whether the worker is not ready for that reason. It then ends nothing that it has in work, as one that
// drains does.
func (a *Announcement) Stalled() bool { return !a.Ready && strings.HasPrefix(a.Reason, Stalled) }
