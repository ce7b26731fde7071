// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"afterimage/internal/openai"
)

const (
	// maxRegistration bounds the body of a registration.
	maxRegistration = 64 << 10
	// maxReplicas bounds the data-parallel replicas of an instance: each is looked at for each prompt.
	maxReplicas = 1024
)

// admin lets only those through who know the admin key.
func (f *Front) admin(next http.HandlerFunc) http.HandlerFunc {
	want := []byte(f.cfg.AdminKey)
	return func(w http.ResponseWriter, r *http.Request) {
		if len(want) == 0 || subtle.ConstantTimeCompare([]byte(r.Header.Get("X-API-Key")), want) != 1 {
			openai.WriteError(w, &openai.Error{Status: http.StatusForbidden, Type: typePermission, Message: "Invalid admin API key"})
			return
		}
		next(w, r)
	}
}

// typePermission is the type of an answer to those who may not ask.
const typePermission = "PermissionDeniedError"

func (f *Front) serveInstances(w http.ResponseWriter, _ *http.Request) { answer(w, f.reg.Status()) }

// registration is the body of POST /instances.
type registration struct {
	Role      Role     `json:"role"`
	URL       string   `json:"url"`
	Addresses []string `json:"ec_zmq_addrs"`
	Replicas  *int     `json:"dp_size"`
}

// instance checks a registration.
func (r registration) instance() (Instance, error) {
	i := Instance{Role: r.Role, Addresses: r.Addresses, Replicas: 1}
	if r.Replicas != nil {
		i.Replicas = *r.Replicas
	}
	switch r.Role {
	case Encode, Prefill, Decode, PrefillDecode:
	default:
		return i, unprocessable("role", "role must be 'encode', 'prefill', 'decode' or 'prefill_decode', got %q", openai.Shorten(string(r.Role)))
	}
	var err error
	if i.URL, err = instanceURL(r.URL); err != nil {
		return i, err
	}
	switch {
	case i.Replicas < 1:
		return i, unprocessable("dp_size", "dp_size must be at least 1, got %d", i.Replicas)
	case i.Replicas > maxReplicas:
		return i, unprocessable("dp_size", "dp_size must be at most %d, got %d", maxReplicas, i.Replicas)
	case len(i.Addresses) > 0 && len(i.Addresses) != i.Replicas:
		return i, unprocessable("ec_zmq_addrs", "Provide one Mooncake control address per DP replica: got %d for %d", len(i.Addresses), i.Replicas)
	case len(i.Addresses) > 0 && r.Role != Prefill && r.Role != PrefillDecode:
		return i, openai.BadRequest("ec_zmq_addrs", "Only EC consumers accept Mooncake addresses")
	}
	return i, nil
}

// instanceURL checks the URL of an instance and takes slashes off its end.
func instanceURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", unprocessable("url", "url must be the base URL of an instance, like http://10.0.0.7:8000, got %q", openai.Shorten(s))
	}
	return strings.TrimRight(s, "/"), nil
}

func unprocessable(param, format string, args ...any) error {
	return &openai.Error{Status: http.StatusUnprocessableEntity, Type: openai.TypeValidation, Param: param, Message: fmt.Sprintf(format, args...)}
}

func (f *Front) serveRegister(w http.ResponseWriter, r *http.Request) {
	var body registration
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRegistration)).Decode(&body); err != nil {
		var big *http.MaxBytesError
		if !errors.As(err, &big) {
			err = unprocessable("", `the body is not of the form {"role":"encode","url":"http://10.0.0.7:8000"}: %v`, err)
		}
		openai.WriteError(w, err)
		return
	}
	i, err := body.instance()
	if err != nil {
		openai.WriteError(w, err)
		return
	}
	created, err := f.reg.Register(i)
	if err != nil {
		openai.WriteError(w, err)
		return
	}
	f.came(i.Role, i.URL)
	if created {
		f.cfg.Logger.Info("instance registered", "role", i.Role, "url", i.URL)
	}
	f.metrics.roster(f.reg.Status())
	answer(w, map[string]bool{"registered": created})
}

func (f *Front) serveUnregister(w http.ResponseWriter, r *http.Request) {
	at, err := instanceURL(r.URL.Query().Get("url"))
	if err != nil {
		openai.WriteError(w, err)
		return
	}
	addresses := f.reg.addresses(at)
	removed := f.reg.Unregister(at)
	if removed {
		f.gone(at, addresses)
		f.cfg.Logger.Info("instance unregistered", "url", at)
	}
	f.metrics.roster(f.reg.Status())
	answer(w, map[string]bool{"removed": removed})
}

// answer writes body as JSON.
func answer(w http.ResponseWriter, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		openai.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // a caller that left is no concern
}
