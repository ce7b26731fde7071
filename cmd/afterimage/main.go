// SPDX-License-Identifier: Apache-2.0

// Command afterimage serves vision-language models with every image encoded once per fleet.
package main

import (
	"context"
	"os"

	"afterimage/internal/cli"
)

func main() {
	p := cli.Program{Name: os.Args[0], Args: os.Args[1:], Env: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(p.Main(context.Background()))
}
