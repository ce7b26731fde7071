// SPDX-License-Identifier: Apache-2.0

// Package media turns what a client sent as an image into checked bytes and checked pixels.
//
// The data path is: ParseDataURL or Fetcher.Fetch give the bytes of a file; Inspect reads its header
// and enforces Limits without decoding anything; Decode repeats that, reserves its memory in the
// decode budget of the process, decodes, turns the picture upright, blends transparency on the
// background and, when asked, scales to a square.
//
// Types are told by content; a declared media type or a file name is never believed. PNG, JPEG, GIF
// and WebP are known. An animation stands for its first frame. Colour profiles are ignored. The
// orientation is read in one place, from EXIF alone (JPEG APP1, PNG eXIf, WebP EXIF); a damaged EXIF
// block counts as "upright" and never fails a picture.
//
// Every *Error is the caller's fault, a 4xx; its text is safe to show to a client. All functions may
// be called concurrently, and no result but that of ParseDataURL shares memory with an argument. A
// Revisits is all that remembers anything from one call to the next.
package media
