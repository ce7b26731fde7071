// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"afterimage/internal/client"
)

// imageList reads the lists among the arguments.
func imageList(args []string) ([]string, error) {
	var out []string
	for _, arg := range args {
		name, isFile := strings.CutPrefix(arg, "@")
		switch {
		case arg == "-":
			lines, err := readLines(os.Stdin)
			if err != nil {
				return nil, err
			}
			out = append(out, lines...)
		case isFile:
			f, err := os.Open(name)
			if err != nil {
				return nil, fileFault(name, err)
			}
			lines, err := readLines(f)
			f.Close()
			if err != nil {
				return nil, fileFault(name, err)
			}
			out = append(out, lines...)
		default:
			out = append(out, arg)
		}
	}
	if len(out) == 0 {
		return nil, usageError{errors.New("the list of images is empty")}
	}
	return out, nil
}

// readLines returns the lines that are neither empty nor comments.
func readLines(r io.Reader) (out []string, err error) {
	for s := bufio.NewScanner(r); ; {
		if !s.Scan() {
			return out, s.Err()
		}
		if line := strings.TrimSpace(s.Text()); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
}

// addressOf returns what a gateway is asked for an image: its URL, or the file in one.
func addressOf(name string) (string, error) {
	low := strings.ToLower(name)
	for _, scheme := range []string{"http://", "https://", "data:"} {
		if strings.HasPrefix(low, scheme) {
			return name, nil
		}
	}
	b, err := os.ReadFile(name)
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		err = pe.Err
	}
	if err != nil {
		return "", err
	}
	return client.DataURL(b), nil
}
