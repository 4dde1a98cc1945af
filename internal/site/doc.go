// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command site writes the documentation as static HTML: the Markdown pages of the repository with a
// sidebar, anchors as on GitHub, and a search that needs no server. "make site" runs it.
//
//	main.go         the arguments
//	navigation.go   the sidebar: which pages the site has, in which order
//	site.go         reads all pages, then writes all files
//	page.go         one page: from Markdown to HTML, headings and text for the search
//	links.go        where a link of a Markdown file leads in the site
//	code.go         colours of code blocks, as classes
//	assets/         the template of a page, its style, and the search in the browser
//
// All links are relative and all assets are part of the site, so it works from a folder, below any
// address and without a network.
//
// The site is a module of its own, so that its dependencies stay out of the main go.mod.
package main
