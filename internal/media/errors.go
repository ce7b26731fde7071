// SPDX-License-Identifier: Apache-2.0

package media

import "fmt"

// Kind classifies an Error. It is an error itself, so that errors.Is(err, media.ErrTooLarge) asks for
// the kind of any error in the chain.
type Kind string

// The kinds of errors.
const (
	// ErrUnsupported is for bytes that are no image, or an image of a type or coding not served.
	ErrUnsupported Kind = "unsupported image"
	// ErrTooLarge is for more bytes, pixels or decoder memory than the limit.
	ErrTooLarge Kind = "image too large"
	// ErrTooSmall is for a side under Limits.MinSide.
	ErrTooSmall Kind = "image too small"
	// ErrBadImage is for a file that is cut off, corrupt or at odds with itself.
	ErrBadImage Kind = "bad image"
	// ErrRatio is for sides whose ratio is over the limit.
	ErrRatio Kind = "image ratio over the limit"
	// ErrEmpty is for zero bytes.
	ErrEmpty Kind = "empty image"
	// ErrURL is for a URL that is malformed, of another scheme, or denied.
	ErrURL Kind = "bad image URL"
	// ErrFetch is for what went wrong on the way to or at the other server.
	ErrFetch Kind = "image fetch failed"
)

// Error returns the name of the kind.
func (k Kind) Error() string { return string(k) }

// Error is a refusal that the caller's input earned.
type Error struct {
	Kind Kind
	Msg  string // whole sentence for the client: no internal address, no path, no part of the input
	Err  error  // cause for the log; may be nil, may hold addresses
}

// Error returns Msg alone.
func (e *Error) Error() string { return e.Msg }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the kind of e.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// refuse makes an Error about the file of an image. The opening words are those of vLLM, which
// clients match on.
func refuse(k Kind, format string, args ...any) error {
	return &Error{Kind: k, Msg: "Failed to load image: " + fmt.Sprintf(format, args...)}
}

// cutOff is the refusal of a file that ends before its own header says so.
func cutOff(format string) error {
	return refuse(ErrBadImage, "the %s file is cut off", format)
}
