// SPDX-License-Identifier: Apache-2.0

// Package openai is the chat-completions wire: what a client may send, and every byte that is sent
// back.
//
// On the way in, Scan reads a body of any size once, checks that it is strict JSON, and finds the
// media parts without copying them; Request.Splice then replaces those parts and leaves every other
// byte alone. ParseChat reads the small body that remains. EventReader splits an upstream's stream
// into whole events for a byte-exact relay.
//
// On the way out, Completion and ChunkWriter write answers, Error and WriteError failures, with the
// keys, the order and the nulls of vLLM 0.32, so that its clients notice no difference.
// TextAssembler turns token bytes into whole characters and finds stop strings.
//
// What is accepted where vLLM and the strict reading of JSON differ:
//   - Bodies are UTF-8 without a byte order mark. NaN and Infinity, control characters in strings and
//     more than 64 levels of nesting are refused. A lone surrogate escape reads as U+FFFD, and is
//     refused where an answer is held to it or compared with it.
//   - A key that this package interprets may stand only once in its object; Python would take the
//     last. Keys are compared exactly, letter case included.
//   - Only the first fault of a body is told.
//   - A content part must name its type. A string among the parts is text, as in vLLM. A message
//     whose list of parts is empty is refused; content may be null only in an assistant message.
//   - Images may stand in messages of any role. Which roles there are is for the owner of the
//     chat template to say.
//   - A picture is never dropped in silence: a place that looks like one and is not understood is
//     refused.
//
// Layer 0: no I/O of its own beyond the writers and readers handed in, no goroutines, no package of
// this module. Values are not safe for use by several goroutines unless said.
package openai
