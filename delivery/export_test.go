// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"time"

	"github.com/refold-io/refold/internal/hosting"
)

// The methods below let tests drive an outbox without a runtime.

// Configure sets the options as SendsWith does, and the reply type R.
func Configure[R any, M Message](o *Outbox[M], options Options) {
	o.options, o.answered = options, answeredSignal[M, R]
}

func (o *Outbox[M]) Attach(id, name string) error             { return part[M]{o}.Attach(id, name) }
func (o *Outbox[M]) Applying(seqNr uint64, metadata []byte)   { part[M]{o}.Applying(seqNr, metadata) }
func (o *Outbox[M]) Recovered(now time.Time) hosting.Outgoing { return part[M]{o}.Recovered(now) }
func (o *Outbox[M]) Durable(n uint64, now time.Time) hosting.Outgoing {
	return part[M]{o}.Durable(n, now)
}
func (o *Outbox[M]) Tick(now time.Time) hosting.Outgoing { return part[M]{o}.Tick(now) }
func (o *Outbox[M]) Next() time.Time                     { return part[M]{o}.Next() }
func (o *Outbox[M]) Admit(s hosting.Signal) bool         { return part[M]{o}.Admit(s) }
