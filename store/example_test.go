// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/store"
)

// open opens the database that an address names. The rest of the program does not depend on its
// kind.
func open(ctx context.Context, address string) (store.DB, error) {
	switch scheme, rest, _ := strings.Cut(address, ":"); scheme {
	case "leveldb":
		return leveldb.Open(rest, leveldb.Config{})
	case "postgres":
		return postgres.Open(ctx, address, postgres.Config{})
	case "inmem":
		return store.Of(inmem.NewJournal(), inmem.NewSnapshotStore()), nil
	default:
		return nil, fmt.Errorf("unknown kind of database: %q", scheme)
	}
}

// One function opens databases of any kind, and one deferred call closes them.
func ExampleDB() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	for _, address := range []string{"inmem:", "leveldb:" + filepath.Join(dir, "data")} {
		if err := use(context.Background(), address); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// account|1
	// account|1
}

func use(ctx context.Context, address string) error {
	db, err := open(ctx, address)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // the journal has already reported that the event is stored
	opened := journal.Event{SequenceNr: 1, Time: time.Unix(1, 0).UTC(), Manifest: "opened"}
	for _, err := range db.Journal().Append(ctx, []journal.Write{{ID: "account|1", Writer: "w", Events: []journal.Event{opened}}}) {
		return err
	}
	for e, err := range journal.Current(ctx, db.Journal(), journal.Criteria{Types: []string{"account"}}, "") {
		if err != nil {
			return err
		}
		fmt.Println(e.ID)
	}
	return nil
}
