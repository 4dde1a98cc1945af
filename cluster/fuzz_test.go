// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bytes"
	"testing"

	"github.com/refold-io/refold/cluster"
)

// DecodeForward rejects bytes, or decodes them to a message with the same encoding.
func FuzzForward(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{1, 255, 'a'})
	f.Add([]byte{2, 0})
	f.Add(cluster.AppendForward(nil, "counter", []byte("payload")))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, payload, err := cluster.DecodeForward(b)
		if err == nil && !bytes.Equal(cluster.AppendForward(nil, name, payload), b) {
			t.Errorf("%x decoded to %q and %x, which has another encoding", b, name, payload)
		}
	})
}
