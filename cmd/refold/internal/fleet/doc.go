// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package fleet runs the nodes of a cluster as processes of their own on one machine, for
// demonstrations, benchmarks and tests: it starts them, kills them, stops them for a while, and
// hears from each what it knows of the cluster.
//
//	parent                              child, one for each node
//	Fleet.Start  ── Node as JSON ─────▶ Serve(ctx, stdin, stdout)
//	Fleet.Say    ── a word a line ────▶   leave, cpu
//	Fleet.Ask    ── Request ──────────▶   what to do with replicated data
//	Fleet.Reports ◀── Report a line ───   what changed, Answer
//	             ── end of input ─────▶   stops: the parent is gone
//
// What the child runs is the program itself, with arguments that lead to Serve.
package fleet
