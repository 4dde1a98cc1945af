// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package journaltest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/journal/journaltest"
	"github.com/refold-io/refold/plugins/inmem"
)

// The connection is lost during a write. A fence settles the outcome, even if the write arrives
// late.
func ExampleFaulty() {
	ctx := context.Background()
	f := journaltest.NewFaulty(inmem.NewJournal())
	late := f.Inject(journaltest.Fault{Do: journaltest.Late, Err: errors.New("connection lost")})

	deposit := journal.Write{ID: "account|42", Events: []journal.Event{{SequenceNr: 1, Manifest: "deposited"}}}
	fmt.Println(f.Append(ctx, []journal.Write{deposit}))

	fence := journal.Write{ID: "account|42", Events: []journal.Event{{SequenceNr: 1}}}
	fmt.Println(f.Append(ctx, []journal.Write{fence}))
	late.Release()
	fmt.Println(late.Landed(), "landed")
	// Output:
	// [connection lost]
	// []
	// 0 landed
}
