// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// group is a heading of the sidebar with its pages.
type group struct {
	Title   string
	Entries []entry
}

// entry is a page in the sidebar.
type entry struct {
	Title string // short, for the sidebar
	Path  string // of the Markdown file, below the root of the repository, with slashes
}

// navigation returns the sidebar. A page that is not listed here is not part of the site.
func navigation(root string) ([]group, error) {
	decisions, err := decisionPages(root)
	if err != nil {
		return nil, err
	}
	return []group{
		{"Start", []entry{
			{"Overview", "README.md"},
			{"Tutorial", "docs/tutorial/README.md"},
			{"1. An order", "docs/tutorial/1-order/README.md"},
			{"2. Tests", "docs/tutorial/2-tests/README.md"},
			{"3. Snapshots", "docs/tutorial/3-snapshots/README.md"},
			{"4. A read model", "docs/tutorial/4-readmodel/README.md"},
			{"5. Another release", "docs/tutorial/5-evolution/README.md"},
			{"6. A saga", "docs/tutorial/6-saga/README.md"},
			{"7. Three nodes", "docs/tutorial/7-nodes/README.md"},
			{"8. The console", "docs/tutorial/8-console/README.md"},
			{"How it works", "docs/how-it-works.md"},
			{"API in one screen", "docs/api.md"},
			{"Glossary", "docs/glossary.md"},
			{"FAQ", "docs/faq.md"},
		}},
		{"How do I ...", []entry{
			{"All guides", "docs/guides/README.md"},
			{"Aggregates", "docs/guides/aggregates.md"},
			{"Events", "docs/guides/events.md"},
			{"Reading", "docs/guides/reading.md"},
			{"Processes", "docs/guides/processes.md"},
			{"Cluster", "docs/guides/cluster.md"},
			{"Operations", "docs/guides/operations.md"},
			{"Examples by question", "docs/examples.md"},
			{"The bank", "examples/bank/README.md"},
		}},
		{"Concepts and reference", []entry{
			{"All pages", "docs/README.md"},
			{"Evolution", "docs/evolution.md"},
			{"Sagas", "docs/sagas.md"},
			{"Sharding", "docs/sharding.md"},
			{"Groups and workers", "docs/groups.md"},
			{"Replicated data", "docs/ddata.md"},
			{"Defaults", "docs/defaults.md"},
			{"Features and tests", "docs/features.md"},
		}},
		{"Operations", []entry{
			{"Running a cluster", "docs/cluster.md"},
			{"Deployment", "docs/deployment.md"},
			{"PostgreSQL", "docs/postgres.md"},
			{"Observability", "docs/observability.md"},
			{"The console", "docs/console.md"},
			{"Security", "docs/security.md"},
			{"Upgrading", "docs/upgrading.md"},
		}},
		{"Compare", []entry{
			{"Other frameworks", "docs/comparison.md"},
			{"Coming from Akka", "docs/coming-from-akka.md"},
			{"Benchmarks", "docs/benchmarks.md"},
			{"Dependencies", "docs/dependencies.md"},
		}},
		{"Project", []entry{
			{"Contributing", "CONTRIBUTING.md"},
			{"Changes", "CHANGELOG.md"},
			{"Releases", "docs/releasing.md"},
			{"Reporting a vulnerability", "SECURITY.md"},
		}},
		{"Decisions", decisions},
	}, nil
}

// decisionPages returns the list of decisions and each decision, under the title of its page.
func decisionPages(root string) ([]entry, error) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "decisions", "[0-9]*.md"))
	if err != nil {
		return nil, err
	}
	entries := []entry{{"All decisions", "docs/decisions/README.md"}}
	for _, file := range files {
		title, err := firstHeading(file)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{title, "docs/decisions/" + filepath.Base(file)})
	}
	return entries, nil
}

// firstHeading returns the text of the heading in the first line of a file.
func firstHeading(file string) (string, error) {
	text, err := os.ReadFile(file) //nolint:gosec // a file of the repository
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	title, ok := strings.CutPrefix(line, "# ")
	if !ok {
		return "", fmt.Errorf("%s does not begin with a heading", file)
	}
	return title, nil
}
