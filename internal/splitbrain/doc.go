// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package splitbrain is the split brain resolver: it decides which members of a cluster are down
// while some are unreachable. It consists of values and pure functions. The user's view of it is in
// package cluster/downing.
//
// A Resolver receives views of the cluster. When the view has not changed for Settings.StableAfter,
// the strategy decides which side survives:
//
//	r, err := splitbrain.New(self, splitbrain.Settings{Strategy: splitbrain.KeepMajority})
//	...
//	effects := r.Step(now, splitbrain.View{...}) // when members or reachability changed
//	effects = r.Tick(now)                        // each second
//	for _, n := range effects.Down { ... }       // this node comes last
package splitbrain
