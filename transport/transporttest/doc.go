// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package transporttest checks implementations of transport.Carrier, by
// themselves and under a transport.Transport, and has a carrier that loses frames
// on demand.
//
//	func TestCarrier(t *testing.T) {
//		transporttest.Run(t, transporttest.Config{
//			Network: func(tb testing.TB) transporttest.Network { return newNetwork(tb).Carrier },
//		})
//	}
//
// # What Run checks
//
//	Carrier...    what transport.Carrier asks for: addresses, senders, sizes, order, buffers, closing
//	Link...       order, sizes, at most once, gaps after loss, doubling and overtaking
//	Flow...       backpressure, credit that comes back, slow receivers that stall nobody else
//	Trust...      forged senders, bare names, quarantine
//	Request...    answers, contexts, handlers that are not there
//	Close...      under load, with a handler that runs
//	Operator...   whom an operator reaches, errors, bounds; for carriers that are transport.Operable
//
// A carrier may lose frames, but not in a test where nothing goes wrong: the
// checks take a frame that does not arrive on a sound network for an error.
package transporttest
