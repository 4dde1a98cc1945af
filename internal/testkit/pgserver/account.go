// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is who runs the server; nil is whoever runs this process.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is the credential of this process
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} { // binaries that were not installed by a package come without an account
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("pgserver: user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("pgserver: user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("pgserver: PostgreSQL does not run as root, and there is no other account for it: %w", errors.Join(errs...))
}

// maxSocketDir is how long the path of a folder may be that holds a socket: the
// name of a socket has at most 103 bytes in all.
const maxSocketDir = 70

// newFolder makes the folder of a server, below the one for temporary files if
// that is near enough for a socket and open to the account.
func newFolder(who *syscall.Credential) (string, error) {
	base, err := filepath.Abs(os.TempDir())
	if err != nil || len(base) > maxSocketDir || who != nil && !open(base) {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "refold-pg-")
	if err != nil {
		return "", fmt.Errorf("pgserver: make the folder: %w", err)
	}
	if err := own(dir, who); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

func own(path string, who *syscall.Credential) error {
	if who == nil {
		return nil
	}
	if err := os.Chown(path, int(who.Uid), int(who.Gid)); err != nil {
		return fmt.Errorf("pgserver: hand the folder over: %w", err)
	}
	return nil
}

// open reports whether everybody may enter a folder and all above it.
func open(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		return true
	}
}
