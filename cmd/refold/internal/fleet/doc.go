// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package fleet runs the nodes of a cluster as processes on one machine, for demonstrations,
// benchmarks and tests. It starts, kills and suspends the processes, and receives reports from each
// node.
//
//	parent                              child, one for each node
//	Fleet.Start  ── Node as JSON ─────▶ Serve(ctx, stdin, stdout)
//	Fleet.Say    ── one word per line ▶   leave, cpu
//	Fleet.Ask    ── Request ──────────▶   operation on replicated data
//	Fleet.Next   ◀── Report per line ──   changes of the state, Answer
//	             ── end of input ─────▶   stops: the parent is gone
//
// A child runs the same program, with arguments that lead to Serve.
package fleet
