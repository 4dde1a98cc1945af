// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"slices"
	"strings"
	"testing"
)

// floors maps a package, by its longest matching prefix, to its floor. A package imports only
// packages on lower floors and packages in its own top-level folder. Packages under internal/ have
// no floor.
var floors = map[string]int{
	"codec": 0, "identity": 0,
	"journal": 1, "snapshot": 1, "transport": 1, "lease": 1, "ddata/durable": 1,
	"store":         2,
	"eventsourcing": 3, "cluster": 3,
	"delivery": 4, "projection": 4, "ddata": 4,
	"sharding": 5,
	"console":  6,
}

// spis are the packages of this module that a plugin may import, with all packages below them.
var spis = []string{
	"codec", "identity", "journal", "snapshot", "store", "transport", "lease", "ddata/durable", "projection", "internal",
}

// observed are further packages that a plugin with an Observer may import.
var observed = map[string][]string{
	"plugins/otel": {"eventsourcing", "cluster", "delivery", "ddata", "sharding"},
}

func TestFloors(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		from, ok := floorOf(p.path())
		if !ok {
			continue
		}
		for _, imported := range p.Imports {
			to, ok := floorOf(below(imported))
			switch {
			case !own(imported) || !ok:
			case to > from:
				t.Errorf("%s (floor %d) imports %s (floor %d), want a lower floor", p.path(), from, below(imported), to)
			case to == from && top(p.path()) != top(below(imported)):
				t.Errorf("%s imports %s: both are on floor %d, want a lower floor", p.path(), below(imported), to)
			}
		}
	}
}

// leaves are public packages of values and interfaces that users and internal packages share. They
// are the only packages to which an import may return from internal/.
var leaves = []string{"cluster/downing", "ddata/crdt", "ddata/durable", "sharding/allocation", "sharding/passivation"}

// No chain of imports leads from a top-level folder into internal/ and back into the same folder,
// except to a leaf. With such a chain, the folder and the internal package would be one unit in two
// places.
func TestNoImportReturnsFromInternal(t *testing.T) {
	t.Parallel()
	imports := make(map[string][]string)
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if own(imported) {
				imports[p.path()] = append(imports[p.path()], below(imported))
			}
		}
	}
	for path := range imports {
		if top(path) == "internal" {
			continue
		}
		seen := make(map[string]bool)
		var visit func(p string)
		visit = func(p string) {
			if seen[p] || top(p) != "internal" {
				return
			}
			seen[p] = true
			for _, next := range imports[p] {
				if top(next) == top(path) && !slices.Contains(leaves, next) {
					t.Errorf("%s imports %s through %s, want no import that returns to its folder", path, next, p)
				}
				visit(next)
			}
		}
		for _, next := range imports[path] {
			visit(next)
		}
	}
}

func TestLibrariesImportNoPlugin(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		path := p.path()
		if isExample(path) || within(path, "cmd") || within(path, "internal/sim") || isSuite(path) {
			continue
		}
		for _, imported := range p.Imports {
			to := below(imported)
			if !own(imported) || within(path, pluginOf(to)) && within(to, pluginOf(to)) && within(to, "plugins") {
				continue
			}
			if within(to, "plugins") || isExample(to) || within(to, "cmd") {
				t.Errorf("%s imports %s: only examples, commands and tests may import it", path, to)
			}
		}
	}
}

func TestPluginsImportTheirSPIOnly(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		path := p.path()
		if !within(path, "plugins") {
			continue
		}
		allowed := slices.Concat(spis, []string{pluginOf(path)}, observed[pluginOf(path)])
		for _, imported := range p.Imports {
			to := below(imported)
			if own(imported) && !slices.ContainsFunc(allowed, func(dir string) bool { return within(to, dir) }) {
				t.Errorf("%s imports %s: a plugin may import only the SPIs that it implements", path, to)
			}
		}
	}
}

// The code of an example must compile in other modules.
func TestExamplesImportPublicPackages(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if !isExample(p.path()) {
			continue
		}
		for _, imported := range p.Imports {
			if own(imported) && within(below(imported), "internal") {
				t.Errorf("%s imports %s, which other modules cannot import", p.path(), below(imported))
			}
		}
	}
}

// Every package that users can import has a floor, so that a new package cannot be forgotten.
func TestPackageFloors(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		path := p.path()
		if slices.Contains([]string{".", "internal", "plugins", "examples", "docs", "cmd"}, top(path)) {
			continue
		}
		if _, ok := floorOf(path); !ok {
			t.Errorf("%s has no floor: add it to the table floors", path)
		}
	}
}

func floorOf(path string) (int, bool) {
	for p := path; ; {
		if floor, ok := floors[p]; ok {
			return floor, true
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			return 0, false
		}
		p = p[:i]
	}
}

// top returns the first element of a path.
func top(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

// pluginOf returns the first two elements of a path.
func pluginOf(path string) string {
	parts := strings.SplitN(path, "/", 3)
	return strings.Join(parts[:min(len(parts), 2)], "/")
}
