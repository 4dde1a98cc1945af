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

// account is the account that runs the server; nil is the account of this process.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is the credential of this process
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} { // an installation without a package has no account for PostgreSQL
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("pgserver: user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("pgserver: PostgreSQL does not run as root, and no other account was found: %w", errors.Join(errs...))
}

// maxSocketDir is the maximum length of the path of a directory with a socket: the name of a socket
// has at most 103 bytes.
const maxSocketDir = 70

// newDirectory creates the directory of a server. The directory is below base if the path is short enough for a socket and the account may enter base. In all other cases the directory is below /tmp.
func newDirectory(base string, peer *syscall.Credential) (string, error) {
	base, err := filepath.Abs(base)
	if err != nil || len(base) > maxSocketDir || peer != nil && !open(base) {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "refold-pg-")
	if err != nil {
		return "", fmt.Errorf("pgserver: create the directory: %w", err)
	}
	if err := own(dir, peer); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

func own(path string, peer *syscall.Credential) error {
	if peer == nil {
		return nil
	}
	if err := os.Chown(path, int(peer.Uid), int(peer.Gid)); err != nil {
		return fmt.Errorf("pgserver: change the owner of the directory: %w", err)
	}
	return nil
}

// open reports whether every account may enter a directory and all its parents.
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
