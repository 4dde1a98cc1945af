// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// goreleaser has the settings of .goreleaser.yaml that this project uses. Decoding fails for others.
type goreleaser struct {
	Version     int
	ProjectName string `yaml:"project_name"`
	Before      struct{ Hooks []string }
	Builds      []struct {
		ID, Main, Binary    string
		Env, Flags, Ldflags []string
		Goos, Goarch        []string
		ModTimestamp        string `yaml:"mod_timestamp"`
	}
	Archives []struct {
		ID                  string
		IDs, Formats, Files []string
	}
	Checksum struct {
		NameTemplate string `yaml:"name_template"`
	}
	Changelog struct{ Disable bool }
	Release   struct {
		Draft      bool
		Prerelease string
	}
}

// goreleaser does not run here, so a test compares its configuration with the tree.
func TestReleaseConfiguration(t *testing.T) {
	t.Parallel()
	d := yaml.NewDecoder(bytes.NewReader(read(t, filepath.Join(root, ".goreleaser.yaml"))))
	d.KnownFields(true)
	var cfg goreleaser
	if err := d.Decode(&cfg); err != nil {
		t.Fatalf(".goreleaser.yaml: %v", err)
	}
	if cfg.Version != 2 || len(cfg.Builds) == 0 || len(cfg.Archives) == 0 || cfg.Checksum.NameTemplate == "" {
		t.Errorf(".goreleaser.yaml has version %d, %d builds, %d archives and the checksum file %q", cfg.Version, len(cfg.Builds), len(cfg.Archives), cfg.Checksum.NameTemplate)
	}
	mains := map[string]bool{}
	for _, p := range packages(t) {
		if p.Name == "main" {
			mains["./"+p.path()] = true
		}
	}
	var ids []string
	for _, b := range cfg.Builds {
		ids = append(ids, b.ID)
		if !mains[b.Main] {
			t.Errorf(".goreleaser.yaml: build %q has the main package %q, which does not exist", b.ID, b.Main)
		}
		if b.Binary != filepath.Base(b.Main) || !slices.Contains(b.Env, "CGO_ENABLED=0") || !slices.Contains(b.Flags, "-trimpath") {
			t.Errorf(".goreleaser.yaml: build %q is %+v, want a static binary with the name of its package, and no paths of the machine", b.ID, b)
		}
	}
	for _, a := range cfg.Archives {
		for _, id := range a.IDs {
			if !slices.Contains(ids, id) {
				t.Errorf(".goreleaser.yaml: archive %q contains build %q, which does not exist", a.ID, id)
			}
		}
		for _, file := range a.Files {
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf(".goreleaser.yaml: archive %q: %v", a.ID, err)
			}
		}
	}
}

// The page about releases names targets of make and sections of the changelog that exist.
func TestReleasePage(t *testing.T) {
	t.Parallel()
	page, makefile := string(read(t, filepath.Join(root, "docs", "releasing.md"))), "\n"+string(read(t, filepath.Join(root, "Makefile")))
	targets := regexp.MustCompile("`make ([a-z-]+)").FindAllStringSubmatch(page, -1)
	if len(targets) < 4 {
		t.Errorf("docs/releasing.md names %d targets of make", len(targets))
	}
	for _, m := range targets {
		if !strings.Contains(makefile, "\n"+m[1]+":") {
			t.Errorf("docs/releasing.md names make %s, which does not exist", m[1])
		}
	}
	changelog := string(read(t, filepath.Join(root, "CHANGELOG.md")))
	if !strings.Contains(changelog, "\n## [Unreleased]\n") {
		t.Error("CHANGELOG.md has no section Unreleased")
	}
	for _, m := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(changelog, -1) {
		if !slices.Contains([]string{"Added", "Changed", "Fixed", "Removed", "Security"}, m[1]) {
			t.Errorf("CHANGELOG.md has the section %q", m[1])
		}
	}
}
