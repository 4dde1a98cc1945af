// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Parts of the command for its tests.
var (
	Generate   = generate
	Navigation = navigation
	Relative   = relative
)

// ReadPage converts a page of a repository that has one other page.
func ReadPage(root, path, other string) (body string, err error) {
	p, err := readPage(path, &linker{root: root, pages: map[string]bool{path: true, other: true}, images: map[string]bool{}})
	if err != nil {
		return "", err
	}
	return string(p.Body), nil
}
