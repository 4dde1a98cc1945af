// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package transporttest checks implementations of transport.Carrier, directly and below a
// transport.Transport. It also contains a carrier that loses frames on demand.
//
//	func TestCarrier(t *testing.T) {
//		transporttest.Run(t, transporttest.Config{
//			Network: func(tb testing.TB) transporttest.Network { return newNetwork(tb).Carrier },
//		})
//	}
//
// # What Run checks
//
//	Carrier...    the contract of transport.Carrier: addresses, senders, sizes, order, buffers, closing
//	Link...       order, sizes, at most once, gaps after loss, duplicates and reordering
//	Flow...       backpressure, restored credit, slow receivers that delay no other lane
//	Trust...      forged senders, bare names, quarantine
//	Request...    replies, contexts, missing handlers
//	Close...      under load, with a running handler
//	Operator...   the nodes that an operator reaches, errors, bounds; for carriers that are transport.AdminCarrier
//
// A carrier may lose frames. On a network without faults, however, the checks treat a frame that
// does not arrive as an error.
package transporttest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

// Network returns the carrier of an incarnation on one network. The carrier is not started.
type Network func(self identity.Node) transport.Carrier

// Config selects the checks.
type Config struct {
	// Network returns a network without nodes. It releases its resources with tb.Cleanup; the suite
	// closes the carriers. Required.
	Network func(tb testing.TB) Network
	// Admin is like Network, for carriers that implement transport.AdminCarrier. It also returns a
	// function that connects the named operator to the network. The suite closes the result of this
	// function. If Admin is nil, the Operator checks are omitted.
	Admin func(tb testing.TB) (Network, func(operator string) transport.AdminClient)
	// Timeout bounds each check. Defaults to five minutes.
	Timeout time.Duration

	// Tests of this package set wrap and asker to inject a bug.
	wrap  func(*transport.Transport) endpoint
	asker func(transport.AdminClient) transport.AdminClient
}

// Run checks a carrier. Each check is a parallel subtest on its own network.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	all := checks()
	if cfg.Admin == nil {
		t.Log("the checks of transport.AdminCarrier are omitted")
	} else {
		all = append(all, operatorChecks()...)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("rule: %s", c.rule)
			c.on(t, cfg)
		})
	}
}

type check struct {
	name, rule string
	run        func(f *fixture)
}

func (c check) on(tb testing.TB, cfg Config) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), cmp.Or(cfg.Timeout, 5*time.Minute))
	tb.Cleanup(cancel)
	f := &fixture{TB: tb, cfg: cfg, ctx: ctx}
	if strings.HasPrefix(c.name, "Operator") {
		f.network, f.connect = cfg.Admin(tb)
	} else {
		f.network = cfg.Network(tb)
	}
	c.run(f)
}

func checks() []check {
	return slices.Concat(carrierChecks(), linkChecks(), flowChecks(), trustChecks(), requestChecks(), closeChecks())
}

// endpoint is the part of transport.Transport that the checks use.
type endpoint interface {
	Self() identity.Node
	Send(to identity.Node, lane transport.Lane, kind transport.Kind, payload []byte) error
	SendToName(name string, kind transport.Kind, payload []byte) error
	Request(ctx context.Context, to identity.Node, kind transport.Kind, payload []byte) ([]byte, error)
	Handle(kind transport.Kind, h transport.Handler)
	HandleNamed(kind transport.Kind, h transport.Handler)
	HandleRequest(kind transport.Kind, h transport.RequestHandler)
	HandleAdmin(h transport.AdminHandler) error
	HandleNamedAdmin(h transport.AdminHandler) error
	Flush(ctx context.Context) error
	Quarantine(node identity.Node, quiet bool)
	Stats() transport.Stats
	Close() error
}

var _ endpoint = (*transport.Transport)(nil)
