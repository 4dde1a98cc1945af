// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"testing"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/wire"
)

// A command is given up when its caller has left; one that nobody waits for is never.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	carrier := remoteOf(eventsourcing.Protocol[int]{})
	own := func(ctx context.Context, answered func(any, error)) shardcore.Message {
		return shardcore.Message{Local: &envelope{message: carrier.NewMessage(ctx, "x", nil, time.Time{}, answered)}}
	}
	answered := func(any, error) {}
	asker := append(wire.AppendNode(nil, identity.Node{Name: "b", UID: 7}), 5)
	body := func(flags byte, fields ...byte) shardcore.Message {
		return shardcore.Message{Body: append(append([]byte{wireVersion, flags}, fields...), 0, 0)} // no name, and no bytes
	}
	for name, c := range map[string]struct {
		shardcore.Message
		waited time.Duration
		want   bool
	}{
		"its caller has left":                 {own(ended, answered), 0, true},
		"its caller waits":                    {own(t.Context(), answered), time.Hour, false},
		"nobody waits":                        {own(ended, nil), time.Hour, false},
		"its caller elsewhere has left":       {body(withReplyAddress|withDeadline, append(asker, 100)...), 100 * time.Microsecond, true},
		"its caller elsewhere waits":          {body(withReplyAddress|withDeadline, append(asker, 100)...), 99 * time.Microsecond, false},
		"its caller elsewhere waits for ever": {body(withReplyAddress, asker...), time.Hour, false},
		"nobody elsewhere waits":              {body(withDeadline, 100), time.Hour, false},
		"its caller elsewhere can't be read":  {shardcore.Message{Body: []byte{wireVersion}}, time.Hour, false},
	} {
		if got := isAbandoned(&shardcore.Buffered{Message: c.Message, Waited: c.waited}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
