// SPDX-License-Identifier: Apache-2.0

// Package config holds the one configuration of all roles, with the source of each value.
//
// A value comes from the command line, else from the environment, else from the file, else it is the
// default; a file never hides the rest. Each key has one name in all of them: gateway.max_images in
// messages, max_images in table [gateway] of the file, AFTERIMAGE_GATEWAY_MAX_IMAGES in the
// environment, and --max-images as the flag of a command that shows it.
//
// The struct tags are the grammar: `toml` names the key in its table, `help` says why one would
// change it, and `key` repeats the full name, by which flags of package cli find back here. A file is
// read strictly: an unknown key is an error with its line and the name that was probably meant.
package config
