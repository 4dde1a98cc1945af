// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package node composes the protocols of one node of a cluster into one machine, as
// values and pure functions: no clock, no goroutine, no socket, no log. The shell in package
// cluster and the simulator in internal/sim drive it and nothing else, so what is simulated is
// wired as what runs.
//
//	         inputs                                effects
//	           |                                      ^
//	+----------v--------------------------------------|----------+
//	|  Machine                                                   |
//	|                 views                 members              |
//	|   membership  --------->  downing,    --------> singleton  |
//	|   .Machine    <---------  Resolver              .Manager * |
//	|               down nodes                        .Proxy   * |
//	|                                                            |
//	|   link lost, suspended, resumed, exits ------>  all        |
//	+------------------------------------------------------------+
//
// All that the machines want done in one step comes out as one Effects, whose fields stand in the
// order in which they have to be carried out. What depends on each other never comes out in one step:
// a lease is released after it was told that the instance has ended, and an
// instance starts after it was told that the lease is held.
package node
