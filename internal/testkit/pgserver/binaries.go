// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// MinVersion is the lowest supported major version of PostgreSQL.
const MinVersion = 13

// BinEnv is the environment variable with the directory of the binaries.
const BinEnv = "REFOLD_POSTGRES_BIN"

// ErrNoBinaries reports that PostgreSQL is not installed. Its text describes how to install it.
var ErrNoBinaries = errors.New("pgserver: no PostgreSQL binaries found: install PostgreSQL 13 or newer, e.g. apt-get install postgresql; or set REFOLD_POSTGRES_BIN to the folder that holds initdb and postgres")

// places are patterns of the directories in which packages install the binaries.
func places() []string {
	return []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/pgsql-*/bin",          // RPMs of the PostgreSQL project
		"/usr/libexec/postgresql*",  // Alpine
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/usr/local/pgsql/bin", // make install
		"/opt/local/lib/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	}
}

// FindBinaries returns the directory with initdb and postgres of a supported version. If
// REFOLD_POSTGRES_BIN is set, FindBinaries returns that directory. If not, it returns a directory
// in the path, or the directory of the newest version that a package has installed. The error
// matches ErrNoBinaries.
func FindBinaries(ctx context.Context) (string, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		if _, err := majorVersion(ctx, dir); err != nil {
			return "", fmt.Errorf("%w: %s: %w", ErrNoBinaries, BinEnv, err)
		}
		return dir, nil
	}
	var path string
	if initdb, err := exec.LookPath("initdb"); err == nil {
		path = filepath.Dir(initdb)
	}
	return find(ctx, path, places())
}

// find searches one directory, unless it is empty, and then all directories that match the
// patterns.
func find(ctx context.Context, first string, patterns []string) (string, error) {
	var reasons []error
	if first != "" {
		_, err := majorVersion(ctx, first)
		if err == nil {
			return first, nil
		}
		reasons = append(reasons, err)
	}
	newest, highest := "", 0
	for _, pattern := range patterns {
		dirs, err := filepath.Glob(filepath.Join(pattern, "initdb"))
		if err != nil {
			return "", fmt.Errorf("pgserver: find binaries: %w", err)
		}
		for _, initdb := range dirs {
			version, err := majorVersion(ctx, filepath.Dir(initdb))
			if err != nil {
				reasons = append(reasons, err)
			} else if version > highest {
				newest, highest = filepath.Dir(initdb), version
			}
		}
	}
	if newest == "" {
		return "", errors.Join(append([]error{ErrNoBinaries}, reasons...)...)
	}
	return newest, nil
}

var versionText = regexp.MustCompile(`\b(\d+)(?:\.|devel|beta|rc|\b)`)

func majorVersion(ctx context.Context, dir string) (int, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil { //nolint:gosec // a directory of the developer
		return 0, fmt.Errorf("pgserver: look for initdb: %w", err)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output() //nolint:gosec // a program of the developer
	if err != nil {
		return 0, fmt.Errorf("pgserver: run %s --version: %w", dir, err)
	}
	match := versionText.FindSubmatch(out)
	if match == nil {
		return 0, fmt.Errorf("pgserver: %s: unexpected version %.80q", dir, out)
	}
	version, err := strconv.Atoi(string(match[1]))
	switch {
	case err != nil:
		return 0, fmt.Errorf("pgserver: %s: unexpected version %.80q: %w", dir, out, err)
	case version < MinVersion:
		return 0, fmt.Errorf("pgserver: %s holds version %d; version %d or newer is required", dir, version, MinVersion)
	}
	return version, nil
}
