// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package pgserver runs a private PostgreSQL server from installed binaries: in a
// temporary folder, on a free port and a socket of its own, for one process.
//
// The server ends with the process that started it, however that ends: a small
// watchdog holds a pipe from the process, and when it breaks, stops the server
// and removes its folder. PostgreSQL refuses to run as root, so a process of root
// runs it as the user postgres.
//
// It is made for tests and benchmarks. Data is as durable as the
// settings say, by default as PostgreSQL's own, but lives no longer than the
// process.
package pgserver
