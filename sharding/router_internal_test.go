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

// A command is abandoned when its caller no longer waits. A command without a caller is never
// abandoned.
func TestIsAbandoned(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	carrier := remoteOf(eventsourcing.Protocol[int]{})
	own := func(ctx context.Context, answered func(any, error)) shardcore.Message {
		return shardcore.Message{Local: &envelope{message: carrier.NewMessage(ctx, "x", nil, time.Time{}, answered, nil)}}
	}
	answered := func(any, error) {}
	asker := append(wire.AppendNode(nil, identity.Node{Name: "b", UID: 7}), 5)
	body := func(flags byte, fields ...byte) shardcore.Message {
		return shardcore.Message{Body: append(append([]byte{wireVersion, flags}, fields...), 0, 0)} // an empty manifest and payload
	}
	for name, c := range map[string]struct {
		shardcore.Message
		waited time.Duration
		want   bool
	}{
		"local caller no longer waits":   {own(ended, answered), 0, true},
		"local caller waits":             {own(t.Context(), answered), time.Hour, false},
		"no local caller":                {own(ended, nil), time.Hour, false},
		"remote caller no longer waits":  {body(withReplyAddress|withDeadline, append(asker, 100)...), 100 * time.Microsecond, true},
		"remote caller waits":            {body(withReplyAddress|withDeadline, append(asker, 100)...), 99 * time.Microsecond, false},
		"remote caller without deadline": {body(withReplyAddress, asker...), time.Hour, false},
		"no remote caller":               {body(withDeadline, 100), time.Hour, false},
		"malformed command":              {shardcore.Message{Body: []byte{wireVersion}}, time.Hour, false},
	} {
		if got := isAbandoned(&shardcore.Buffered{Message: c.Message, Waited: c.waited}); got != c.want {
			t.Errorf("%s: isAbandoned = %t, want %t", name, got, c.want)
		}
	}
}
