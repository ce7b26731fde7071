// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"slices"
	"strings"

	"afterimage/internal/admit"
	"afterimage/internal/control"
	"afterimage/internal/openai"
	"afterimage/internal/route"
)

// forced are the Encoders that a client asked for: none leaves the choice to routing, one is for all
// images, else there is one per media part, in prompt order.
type forced []string

// readForced reads control.HeaderEncoder.
func readForced(header string) forced {
	if header == "" {
		return nil
	}
	names := strings.Split(header, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

// at returns what is asked for media part i alone.
func (f forced) at(i int) forced {
	if len(f) == 0 {
		return nil
	}
	i = min(i, len(f)-1)
	return f[i : i+1]
}

// of returns the name for an image; one that stands at several parts goes where its first does. f names at
// least one Encoder.
func (f forced) of(m *image) string { return f.at(m.parts[0])[0] }

// mayChoose refuses a request that names workers, as its headers do, with a key that may not.
func mayChoose(pass *admit.Pass, h http.Header) error {
	for _, name := range []string{control.HeaderEncoder, control.HeaderPrefill} {
		if h.Get(name) != "" && !pass.Chooses() {
			return &openai.Error{Status: http.StatusForbidden, Type: "PermissionDeniedError", Name: "insufficient_permissions", Param: name,
				Message: name + ": this API key may not choose workers; send the request without the header, or with a key of a tenant that has choose_workers = true."}
		}
	}
	return nil
}

// check refuses names that the fleet does not have, and a list that does not fit the request's media parts.
func (f forced) check(snap *snapshot, parts int) error {
	if len(f) > 1 && len(f) != parts {
		return openai.BadRequest(control.HeaderEncoder, "%s names %d Encoders for %d media parts; name one for all, or one for each", control.HeaderEncoder, len(f), parts)
	}
	for _, name := range f {
		if name == "" {
			return openai.BadRequest(control.HeaderEncoder, "%s has an empty name between its commas", control.HeaderEncoder)
		}
		if err := checkForced(control.HeaderEncoder, "Encoder", snap.Encoders, name); err != nil {
			return err
		}
	}
	return nil
}

// checkForced refuses the name of a worker that the fleet does not have.
func checkForced(header, kind string, workers []worker, name string) error {
	if name == "" {
		return nil
	}
	all := peers(workers, everyone)
	for i := range all {
		all[i].Ready = true // whether it is up is another matter, and no fault of the caller
	}
	if _, err := route.Forced(name, all); err == nil {
		return nil
	}
	_, err := route.Forced(openai.Shorten(name), all) // for its words
	if i := slices.IndexFunc(workers, func(w worker) bool { return !w.Known }); i >= 0 {
		return openai.Unavailable(retryAfter, "%s: %v; %s %d of %d has not said its name yet", header, err, kind, i+1, len(workers))
	}
	return openai.BadRequest(header, "%s: %v", header, err)
}
