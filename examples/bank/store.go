// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/store"
)

// openStore opens what --journal names. For reading only, it has to be there.
func openStore(ctx context.Context, name string, readOnly bool) (store.DB, error) {
	kind, at, _ := strings.Cut(name, ":")
	switch {
	case kind == "leveldb" && at != "":
		if readOnly {
			if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("there is no bank in %s", at)
			}
		}
		db, err := leveldb.Open(at, leveldb.Config{ReadOnly: readOnly})
		if err != nil {
			return nil, fmt.Errorf("open the journal %s: %w", name, err)
		}
		return db, nil
	case isPostgres(name):
		return openPostgres(ctx, name, readOnly)
	case kind == "inmem" && at == "" && readOnly:
		return nil, errors.New("journal inmem: holds nothing from one command to the next; name one on disk, such as leveldb:bank-data")
	case kind == "inmem" && at == "":
		return inmem.Open()
	}
	return nil, fmt.Errorf("journal %q: want leveldb:DIR, postgres://USER@HOST/DATABASE, postgres: for what REFOLD_POSTGRES names, or inmem: (in memory)", kind+":") // the rest may hold a password
}

// isPostgres reports whether an address is one of PostgreSQL.
func isPostgres(address string) bool {
	scheme, _, _ := strings.Cut(address, ":")
	return scheme == "postgres" || scheme == "postgresql"
}
