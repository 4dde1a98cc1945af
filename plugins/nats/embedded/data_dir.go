// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxToken is the maximum size of a token file, in bytes.
const maxToken = 1024

// ErrInUse reports that a running server owns the directory.
var ErrInUse = errors.New("embedded: the directory is in use")

// lock makes this server the owner of the directory. Without the lock, two servers would write to
// the same streams, and the second server would change the token of the first.
func (s *Server) lock() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	free, err := hold(file)
	switch {
	case err != nil:
		return errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
	case !free:
		return errors.Join(fmt.Errorf("%w: another server holds %s", ErrInUse, file.Name()), file.Close())
	}
	s.held = file
	return nil
}

// token returns the contents of a file, or writes a new token to it. Only the current user can read
// the file afterwards.
func token(file string) (string, error) {
	switch info, err := os.Stat(file); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	case info.Size() > maxToken:
		return "", fmt.Errorf("%s has %d bytes, the limit is %d", file, info.Size(), maxToken)
	default:
		if err := os.Chmod(file, 0o600); err != nil {
			return "", err
		}
		b, err := os.ReadFile(file) //nolint:gosec // in the folder that the user names
		if err != nil {
			return "", err
		}
		if known := strings.TrimSpace(string(b)); known != "" { // an empty file is left by a process that was killed while it wrote
			if strings.ContainsAny(known, ": \t\r\n") {
				return "", fmt.Errorf("%s contains no valid token: a token has no colon and no space", file)
			}
			return known, nil
		}
	}
	secret := rand.Text()
	return secret, os.WriteFile(file, []byte(secret+"\n"), 0o600)
}
