// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"time"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
)

func timedEvents() *codec.Registry {
	return codec.Types(codec.Name[line]("line"), codec.Name[waitUntil]("wait_until"))
}

// slowAppends is a journal whose appends take a while.
type slowAppends struct {
	journal.Journal
	pause time.Duration
}

func (j *slowAppends) Append(ctx context.Context, writes []journal.Write) []error {
	<-time.After(j.pause)
	return j.Journal.Append(ctx, writes)
}
