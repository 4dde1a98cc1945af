// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
	"github.com/refold-io/refold/transport/transporttest"
)

func TestCarrier(t *testing.T) {
	t.Parallel()
	network := func(tb testing.TB, s *embedded.Server) transporttest.Network {
		tb.Helper()
		return func(self identity.Node) transport.Carrier {
			return connect(tb, nats.Config{Access: accessTo(s), Cluster: "test", Self: self})
		}
	}
	transporttest.Run(t, transporttest.Config{
		Network: func(tb testing.TB) transporttest.Network {
			tb.Helper()
			return network(tb, start(tb, embedded.Config{}))
		},
		Admin: func(tb testing.TB) (transporttest.Network, func(string) transport.AdminClient) {
			tb.Helper()
			s := start(tb, embedded.Config{})
			return network(tb, s), func(name string) transport.AdminClient {
				return operator(tb, nats.OperatorConfig{Access: accessTo(s), Cluster: "test", Name: name})
			}
		},
	})
}
