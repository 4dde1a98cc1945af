// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command site writes the documentation as static HTML: the Markdown pages of the repository with a
// sidebar, anchors as on GitHub, and a search that needs no server. "make site" runs it.
//
//	main.go         reads all pages, then writes all files of the site
//	navigation.go   the sidebar: which pages the site has, in which order
//	page.go         one page: from Markdown to HTML, its links, its code, and its text for the search
//	assets/         the template of a page, its style, and the search in the browser
//
// All links are relative and all assets are part of the site, so it works from a folder, below any
// address and without a network.
//
// The site is a module of its own, so that its dependencies stay out of the main go.mod.
package main

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		return errors.New("usage: site REPOSITORY FOLDER")
	}
	out, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	if err = generate(args[0], out); err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, out)
	return err
}

//go:embed assets
var assets embed.FS

// icon is the path of the icon in the repository and in the site.
const icon = "console/assets/icon.svg"

// generate replaces the folder out by the site of the repository in root.
func generate(root, out string) error {
	groups, err := navigation(root)
	if err != nil {
		return err
	}
	links := &linker{root: root, pages: map[string]bool{}, images: map[string]bool{icon: true}}
	entries := flatten(groups)
	for _, e := range entries {
		links.pages[e.Path] = true
	}
	var pages []*page
	for _, e := range entries {
		p, mistake := readPage(e.Path, links)
		if mistake != nil {
			return mistake
		}
		pages = append(pages, p)
	}
	if err = os.RemoveAll(out); err != nil { //nolint:gosec // the folder that the caller names
		return err
	}
	for i := range pages {
		if err = writePage(out, groups, entries, pages, i); err != nil {
			return err
		}
	}
	if err = copyFiles(root, out, links.images); err != nil {
		return err
	}
	return writeIndex(out, groups, pages)
}

func flatten(groups []group) []entry {
	var entries []entry
	for _, g := range groups {
		entries = append(entries, g.Entries...)
	}
	return entries
}

// view is the data of the template of a page.
type view struct {
	*page
	Groups         []group
	Group          string // the title of the page's group
	Previous, Next *entry // nil at the ends
}

// Icon returns the path from the page to the icon.
func (v view) Icon() string { return v.Root() + icon }

// Root returns the path from the page to the root of the site.
func (v view) Root() string { return toRoot(v.Path) }

// To returns the path from the page to another one.
func (v view) To(markdown string) string { return relative(v.Path, htmlPath(markdown)) }

// Source returns the address of the page in the repository.
func (v view) Source() string { return repository + "blob/main/" + v.Path }

// Open reports whether the sidebar shows the entries of a group. The decisions are many, so the
// sidebar shows them only beside a decision.
func (v view) Open(g group) bool { return g.Title == v.Group || g.Title != "Decisions" }

// groupOf returns the title of the group of a page.
func groupOf(groups []group, path string) string {
	i := slices.IndexFunc(groups, func(g group) bool {
		return slices.ContainsFunc(g.Entries, func(e entry) bool { return e.Path == path })
	})
	return groups[i].Title
}

// writePage writes the page with a number.
func writePage(out string, groups []group, entries []entry, pages []*page, number int) error {
	v := view{page: pages[number], Groups: groups, Group: groupOf(groups, pages[number].Path)}
	if number > 0 {
		v.Previous = &entries[number-1]
	}
	if number < len(entries)-1 {
		v.Next = &entries[number+1]
	}
	tmpl, err := template.ParseFS(assets, "assets/page.html")
	if err != nil {
		return err
	}
	var html strings.Builder
	if err = tmpl.Execute(&html, v); err != nil {
		return fmt.Errorf("%s: %w", v.Path, err)
	}
	return writeFile(out, htmlPath(v.Path), []byte(html.String()))
}

// copyFiles copies the images of the pages and the assets.
func copyFiles(root, out string, images map[string]bool) error {
	for image := range images {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(image))) //nolint:gosec // a file of the repository
		if err != nil {
			return err
		}
		if err = writeFile(out, image, content); err != nil {
			return err
		}
	}
	for _, name := range []string{"site.css", "site.js"} {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		if err = writeFile(out, "assets/"+name, content); err != nil {
			return err
		}
	}
	return nil
}

// record is a section in the index of the search.
type record struct {
	URL   string `json:"url"` // from the root of the site
	Group string `json:"group"`
	Page  string `json:"page"`
	Title string `json:"title"` // of the section, "" at the beginning of the page
	Text  string `json:"text"`
}

// writeIndex writes the index of the search. It is a script, because a page that was opened from a
// folder may load scripts but no other files.
func writeIndex(out string, groups []group, pages []*page) error {
	var records []record
	for _, p := range pages {
		for i, s := range p.Sections {
			r := record{URL: htmlPath(p.Path), Group: groupOf(groups, p.Path), Page: p.Title, Text: s.Text}
			if i > 0 {
				r.URL += "#" + s.Anchor
				r.Title = s.Title
			}
			records = append(records, r)
		}
	}
	index, err := json.Marshal(records)
	if err != nil {
		return err
	}
	return writeFile(out, "assets/index.js", []byte("window.searchIndex = "+string(index)+";\n"))
}

// writeFile writes a file of the site and creates its folder.
func writeFile(out, path string, content []byte) error {
	file := filepath.Join(out, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // for all to read
		return err
	}
	return os.WriteFile(file, content, 0o644) //nolint:gosec // for all to read
}
