// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"

	"github.com/refold-io/refold/internal/node/replica"
)

// Limits of what waits for the loop.
const (
	MaxWaiting      = maxWaiting
	MaxWaitingCount = maxWaitingCount
)

// Inbox is what waits for the loop.
type Inbox struct{ *inbox }

func NewInbox() Inbox { return Inbox{newInbox()} }

func (b Inbox) Receive(ctx context.Context, payload []byte) {
	b.receive(ctx, replica.Packet{Payload: payload})
}

// Take returns how many packets have waited.
func (b Inbox) Take() int { return len(b.take(waiting{}).packets) }

func (b Inbox) Close() { b.close() }
