// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"testing"

	"github.com/refold-io/refold/transport"
)

func TestReasonNames(t *testing.T) {
	t.Parallel()
	seen := map[string]transport.Reason{transport.Reason(0).String(): 0}
	for why := transport.Reason(1); why < transport.Reasons; why++ {
		if other, ok := seen[why.String()]; ok {
			t.Errorf("reasons %d and %d are both named %q", why, other, why)
		}
		seen[why.String()] = why
	}
}
