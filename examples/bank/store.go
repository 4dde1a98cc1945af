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

// openStore opens the store of --journal. Read-only, it requires that the store exists.
func openStore(ctx context.Context, name string, readOnly bool) (store.DB, error) {
	kind, at, _ := strings.Cut(name, ":")
	switch {
	case kind == "leveldb" && at != "":
		if readOnly {
			if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("the directory %s contains no bank", at)
			}
		}
		db, err := leveldb.Open(at, leveldb.Config{ReadOnly: readOnly})
		if err != nil {
			return nil, fmt.Errorf("open the journal %s: %w", name, err)
		}
		return db, nil
	case isPostgres(name):
		db := databases()[0]
		open := db.OpenTarget
		if readOnly {
			open = db.Open
		}
		src, err := open(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("open the journal: %w", err) // the address may contain a password
		}
		return store.Of(src.Journal, src.Snapshots), nil
	case kind == "inmem" && at == "" && readOnly:
		return nil, errors.New("journal inmem: is empty at the start of each command; use a stored journal, such as leveldb:bank-data")
	case kind == "inmem" && at == "":
		return inmem.Open()
	}
	return nil, fmt.Errorf("journal %q: expected inmem:, leveldb:DIR, postgres://USER@HOST/DATABASE, or postgres: with REFOLD_POSTGRES set", kind+":") // the rest may contain a password
}

func isPostgres(address string) bool {
	scheme, _, _ := strings.Cut(address, ":")
	return scheme == "postgres" || scheme == "postgresql"
}
