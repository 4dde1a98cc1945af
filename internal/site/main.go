// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// run writes the site of a repository to a folder and prints the folder.
func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: site REPOSITORY FOLDER")
	}
	out, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	if err = generate(args[0], out); err != nil {
		return err
	}
	fmt.Println(out)
	return nil
}
