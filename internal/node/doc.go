// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package node combines the protocols of one node of a cluster into one machine. It consists of
// values and pure functions, without clock, goroutines, sockets or logger. Both package cluster and
// the simulator in internal/sim drive this machine, so the simulation runs the production code.
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
// All effects of the machines in one step are returned as one Effects value. Its fields are in the
// order in which they must be carried out. Effects that depend on each other are never in one step:
// a lease is released only after the instance has reported its end, and an instance is started only
// after the lease is reported as held.
package node
