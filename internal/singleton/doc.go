// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package singleton is the protocol by which the nodes of a cluster, or the nodes with a role, run
// one instance of a singleton. The instance runs on the oldest of these nodes, and never on two
// nodes at a time. The package consists of values and pure functions.
//
// Each node runs a Manager for each singleton. Its inputs are the members, messages of other
// managers, and the end of its instance. Its effects start and stop the instance.
//
//	         becomes the oldest                  all older ones handed over or are gone
//	Younger ----------------------------> BecomingOldest ----------------------------> Oldest
//	   ^                                   (AcquiringLease in between, with a lease)      |
//	   |        no successor                the instance ends          another is oldest  |
//	   '---------------------------------- HandingOver <----------------- WasOldest <-----'
//	                                            '--> End
//
// The next oldest member sends HandOverToMe to the previous one, repeatedly, until the hand-over
// has begun (HandOverInProgress) and is done (HandOverDone). If the previous one notices the change
// first, it sends TakeOverFromMe. A crashed member does not reply. It counts as gone when it has
// been removed and the removal margin has passed. During the removal margin a disconnected node
// detects that it is down.
//
// A manager does not restart an instance that ends on its own. There is at most one instance as
// long as the members agree on the membership. Therefore only one side of a partition may survive:
// package splitbrain decides which one. If two sides could survive, a lease must be used.
//
// A Proxy buffers messages for the singleton until the location of the instance is known.
package singleton
