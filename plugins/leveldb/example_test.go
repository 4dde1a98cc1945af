// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"context"
	"fmt"
	"os"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

func Example() {
	dir, err := os.MkdirTemp("", "bank")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory

	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close() //nolint:errcheck // all is synced

	ctx := context.Background()
	j := db.TestJournal()
	errs := j.Append(ctx, []journal.Write{{ID: "account|42", Writer: "node-1", Events: []journal.Event{
		{SequenceNr: 1, Manifest: "opened", Payload: []byte("USD")},
		{SequenceNr: 2, Manifest: "deposited", Payload: []byte("10.00")},
	}}})
	if errs != nil {
		fmt.Println(errs)
		return
	}
	for e, err := range j.Replay(ctx, "account|42", 1, journal.MaxSequenceNr) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.SequenceNr, e.Manifest, string(e.Payload))
	}

	errs = j.Append(ctx, []journal.Write{{ID: "account|42", Expect: 1, Events: []journal.Event{
		{SequenceNr: 2, Manifest: "deposited", Payload: []byte("99.00")},
	}}})
	fmt.Println(errs[0])
	// Output:
	// 1 opened USD
	// 2 deposited 10.00
	// journal: conflict: "account|42": expected sequence number 1, found 2
}

// Stored events are found when the database is opened again.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "bank")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory

	ctx := context.Background()
	for _, manifest := range []string{"opened", "deposited"} {
		db, err := leveldb.Open(dir, leveldb.Config{})
		if err != nil {
			fmt.Println(err)
			return
		}
		j := db.TestJournal()
		last, err := j.HighestSequenceNr(ctx, "account|42")
		if err != nil {
			fmt.Println(err)
		}
		fmt.Println("last:", last)
		if errs := j.Append(ctx, []journal.Write{{ID: "account|42", Writer: "node-1", Expect: last, Events: []journal.Event{
			{SequenceNr: last + 1, Manifest: manifest},
		}}}); errs != nil {
			fmt.Println(errs)
		}
		if err := db.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// last: 0
	// last: 1
}

func ExampleOpen_inUse() {
	dir, err := os.MkdirTemp("", "bank")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory

	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close() //nolint:errcheck // nothing was written

	_, err = leveldb.Open(dir, leveldb.Config{ReadOnly: true})
	fmt.Println(err.Error() == fmt.Sprintf("leveldb: open %q: leveldb: directory is in use by this process or another one", dir))
	// Output: true
}
