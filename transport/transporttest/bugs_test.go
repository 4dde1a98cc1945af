// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/testkit/recorder"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/transport"
	"github.com/refold-io/refold/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// planted is a bug in a carrier or a transport, with the checks that must find it.
type planted struct {
	finds   []string
	carrier func() func(c *inmem.Carrier) transport.Carrier
	wrap    func(t *transport.Transport) transporttest.Endpoint
	operate func(take func(transport.AdminRequest)) func(transport.AdminRequest)
	asker   func(a transport.AdminClient) transport.AdminClient
	hangs   bool // the bug makes a check wait until its time-out
}

func bugs() map[string]planted {
	all := carrierBugs()
	maps.Copy(all, endpointBugs())
	maps.Copy(all, operatorBugs())
	return all
}

// config returns a network with the bug.
func (b planted) config() transporttest.Config {
	network := func(n *inmem.Network) transporttest.Network {
		switch {
		case b.operate != nil:
			return func(self identity.Node) transport.Carrier {
				return &double{Carrier: n.Carrier(self), operate: b.operate}
			}
		case b.carrier != nil:
			carrier := b.carrier()
			return func(self identity.Node) transport.Carrier { return carrier(n.Carrier(self)) }
		}
		return func(self identity.Node) transport.Carrier { return n.Carrier(self) }
	}
	cfg := transporttest.Config{
		Network: func(testing.TB) transporttest.Network { return network(inmem.NewNetwork(inmem.NetworkConfig{})) },
		Admin: func(testing.TB) (transporttest.Network, func(string) transport.AdminClient) {
			n := inmem.NewNetwork(inmem.NetworkConfig{})
			return network(n), n.Operator
		},
	}
	return transporttest.WrapAdminClient(transporttest.Wrap(cfg, b.wrap), b.asker)
}

// Each check fails on the bugs that are planted for it.
func TestBugs(t *testing.T) {
	t.Parallel()
	for name, b := range bugs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, check := range b.finds {
				failures := recorder.Find(t, func(tb testing.TB) {
					tb.Helper()
					cfg := b.config()
					if b.hangs {
						cfg.Timeout = 500 * time.Millisecond
					}
					transporttest.RunOne(tb, cfg, check)
				})
				if len(failures) == 0 {
					t.Errorf("%s did not find the bug", check)
					continue
				}
				t.Logf("%s: %.200s", check, failures[0])
			}
		})
	}
}

// Each check finds at least one planted bug.
func TestEveryCheckFindsABug(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for _, b := range bugs() {
		for _, name := range b.finds {
			found[name] = true
		}
	}
	for _, name := range transporttest.Names() {
		if !found[name] {
			t.Errorf("no bug is planted for %s", name)
		}
	}
	for name := range found {
		if !slices.Contains(transporttest.Names(), name) {
			t.Errorf("a bug is planted for %s, which does not exist", name)
		}
	}
}
