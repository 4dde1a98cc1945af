// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package singleton is the protocol by which the nodes of a cluster, or those of a
// role, host one instance of something: on the oldest of them, and never on two at once.
// It is values and pure functions.
//
// Each node runs a Manager for each singleton. It is told what the members are, what the other
// managers say, and when its instance has ended; it says when to start and to stop one.
//
//	         told that it is the oldest          all previous ones gave up or are gone
//	Younger ----------------------------> BecomingOldest ----------------------------> Oldest
//	   ^                                   (AcquiringLease in between, with a lease)      |
//	   |        nobody takes over           the instance ends          another is oldest  |
//	   '---------------------------------- HandingOver <----------------- WasOldest <-----'
//	                                            '--> End
//
// The next one asks the previous one to hand over (HandOverToMe), and asks again until it
// hears that this has begun (HandOverInProgress) and is done (HandOverDone). If the previous one knows earlier,
// it asks to be relieved (TakeOverFromMe). A member that crashed answers nothing: it counts as gone when
// it has been removed, and the removal margin has passed, in which a node that was cut off notices that it is
// down.
//
// What an instance does when it fails is its own matter: a manager doesn't start it
// again. That there is at most one holds as long as the members agree on who is a member: both
// sides of a partition must not survive, which package downing is for, or a lease must be used.
//
// A Proxy keeps what is sent to the singleton until it is known where it is.
package singleton
