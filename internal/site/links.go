// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// repository is the address of files that are not pages of the site. "blob" or "tree" follows.
const repository = "https://github.com/refold-io/refold/"

var scheme = regexp.MustCompile(`^[a-z]+:`)

// linker maps the links of Markdown files to links of the site.
type linker struct {
	root   string          // the directory of the repository
	pages  map[string]bool // by the path of their Markdown file
	images map[string]bool // collects the paths of the images that the pages show
}

// link returns where a link leads: to a page of the site, or to a file in the repository.
func (l *linker) link(from, target string) (string, error) {
	if scheme.MatchString(target) {
		return target, nil
	}
	file, anchor, anchored := strings.Cut(target, "#")
	if anchored {
		anchor = "#" + anchor
	}
	if file == "" {
		return anchor, nil
	}
	to := path.Join(path.Dir(from), file)
	for _, p := range []string{to, path.Join(to, "README.md")} { // a folder is its README
		if l.pages[p] {
			return relative(from, htmlPath(p)) + anchor, nil
		}
	}
	info, err := os.Stat(filepath.Join(l.root, filepath.FromSlash(to)))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: the link to %s: %w", from, target, err)
	case info.IsDir():
		return repository + "tree/main/" + to, nil
	}
	return repository + "blob/main/" + to + anchor, nil
}

// image records an image, which has the same path in the site as in the repository.
func (l *linker) image(from, target string) {
	l.images[path.Join(path.Dir(from), target)] = true
}

// htmlPath returns the path of a page in the site.
func htmlPath(markdown string) string {
	if path.Base(markdown) == "README.md" {
		return path.Join(path.Dir(markdown), "index.html")
	}
	return strings.TrimSuffix(markdown, ".md") + ".html"
}

// toRoot returns the relative path from a page to the root of the site, "" or with a slash at its end.
func toRoot(from string) string {
	return strings.Repeat("../", strings.Count(from, "/"))
}

// relative returns the shortest relative path from a page to a file of the site.
func relative(from, to string) string {
	dir := path.Dir(from)
	up := ""
	for dir != "." && !strings.HasPrefix(to, dir+"/") {
		dir = path.Dir(dir)
		up += "../"
	}
	if dir != "." {
		to = strings.TrimPrefix(to, dir+"/")
	}
	return up + to
}
